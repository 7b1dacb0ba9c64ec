// cluster_check.cpp - checks across the tables of a cluster: names, shares, reachability.
#include <algorithm>
#include <cmath>
#include <map>

#include "core/base/portable_math.h"
#include "core/base/random.h"
#include "core/base/text.h"
#include "core/config/cluster_config.h"

namespace moorage::core {

namespace {

error usage_error(std::string text) { return error{std::move(text), true}; }

// Entries of one list, or of several lists that share one namespace, by name.
using names = std::map<std::string, std::string>;  // name, place

template <class Entry>
status add_names(const std::vector<Entry> &entries, const char *kind, names &known) {
    for (const Entry &entry : entries)
        if (const auto [found, is_new] = known.emplace(entry.name, entry.place); !is_new)
            return usage_error(
                format("{}: {} {} has the name of the entry at {}; names are given once",
                       entry.place, kind, entry.name, found->second));
    return success();
}

// All names that may be written: those of entries, and those of the counted entries they belong to.
std::vector<std::string> known_names(const names &entries) {
    std::vector<std::string> known;
    for (const auto &[name, place] : entries) {
        const std::string whole = name.substr(0, name.find('.'));
        if (known.empty() || known.back() != whole) known.push_back(whole);
        if (whole != name) known.push_back(name);
    }
    return known;
}

error unknown_name_error(const std::string &place, const char *kind, const std::string &name,
                         const names &entries) {
    const std::vector<std::string> known = known_names(entries);
    const std::string hint = did_you_mean(name, known);
    const std::string list = known.empty() ? "none" : format("{}", fmt::join(known, ", "));
    return usage_error(format("{}: there is no {} {}{}", place, kind, name,
                              hint.empty() ? "; there are " + list : hint));
}

// Replaces model names by those of single entries, and makes shares sum to one.
status complete_models(const cluster_config &config, const names &known,
                       cluster_workload &workload) {
    std::vector<std::pair<std::string, double>> models;
    std::map<std::string, bool> seen;
    double sum = 0;
    const bool has_shares = !workload.models.empty() && workload.models.front().second > 0;
    if (workload.models.empty())
        for (const cluster_model &model : config.models) models.emplace_back(model.name, 0);
    for (const auto &[name, share] : workload.models) {
        const size_t first = models.size();
        for (const cluster_model &model : config.models)
            if (is_named(model.name, name)) {
                if (!seen.emplace(model.name, true).second)
                    return usage_error(format("{}: [[cluster.workloads]] {} names model {} twice",
                                              workload.place, workload.name, model.name));
                models.emplace_back(model.name, 0);
            }
        if (models.size() == first) return unknown_name_error(workload.place, "model", name, known);
        for (size_t index = first; index < models.size(); ++index)
            models[index].second = share / static_cast<double>(models.size() - first);
        sum += share;
    }
    if (has_shares && std::fabs(sum - 1) > 1e-9)
        return usage_error(
            format("{}: [[cluster.workloads]] {}: the shares of its models sum to {:#.6g}, "
                   "and 1 is needed",
                   workload.place, workload.name, sum));
    if (workload.models_per_user_max > models.size())
        return usage_error(
            format("{}: [[cluster.workloads]] {}: models_per_user is {}, and it has {} "
                   "models",
                   workload.place, workload.name, workload.models_per_user_max, models.size()));
    if (!has_shares) {
        double total = 0;
        for (size_t rank = 0; rank < models.size(); ++rank)
            total += portable_pow(static_cast<double>(rank + 1), -workload.model_zipf);
        for (size_t rank = 0; rank < models.size(); ++rank)
            models[rank].second =
                portable_pow(static_cast<double>(rank + 1), -workload.model_zipf) / total;
    }
    workload.models = std::move(models);
    return success();
}

template <class Entry>
status check_workload(const std::vector<Entry> &entries, const names &workloads) {
    for (const Entry &entry : entries)
        if (!entry.workload.empty() && !workloads.contains(entry.workload))
            return unknown_name_error(entry.place, "workload", entry.workload, workloads);
    return success();
}

// For nodes: two nodes cannot listen at one address.
status check_addresses(const std::vector<cluster_server> &servers) {
    names taken;
    for (const cluster_server &server : servers)
        for (const std::string *list : {&server.address, &server.heartbeats, &server.status})
            for (std::string address : split(*list, ',')) {
                std::erase(address, ' ');
                const auto [found, is_new] = taken.emplace(address, server.name);
                if (is_new || address.empty()) continue;
                return usage_error(
                    format("{}: server {}: {} is server {}'s already; a node listens at "
                           "addresses of its own, counted ones in turn: address = "
                           "[\"host:7301\", \"host:7302\"]",
                           server.place, server.name, address, found->second));
            }
    return success();
}

// Which pairs of servers have a link, in the order source, target.
class link_matrix {
public:
    explicit link_matrix(const cluster_config &config)
        : server_count_(config.servers.size()), linked_(server_count_ * server_count_, 0) {
        if (config.radio && config.radio->server_bandwidth_hz > 0)
            std::fill(linked_.begin(), linked_.end(), uint8_t{1});
        std::vector<uint8_t> is_target(server_count_);
        for (const cluster_link &link : config.links) {
            for (size_t target = 0; target < server_count_; ++target)
                is_target[target] = is_named(config.servers[target].name, link.target) ? 1 : 0;
            for (size_t source = 0; source < server_count_; ++source) {
                if (!is_named(config.servers[source].name, link.source)) continue;
                for (size_t target = 0; target < server_count_; ++target) {
                    if (source == target || is_target[target] == 0) continue;
                    linked_[source * server_count_ + target] = 1;
                    if (link.symmetric) linked_[target * server_count_ + source] = 1;
                }
            }
        }
    }
    bool is_linked_both_ways(size_t first, size_t second) const {
        return linked_[first * server_count_ + second] && linked_[second * server_count_ + first];
    }

private:
    size_t server_count_;
    std::vector<uint8_t> linked_;
};

status check_links(const cluster_config &config, const names &servers) {
    for (const cluster_link &link : config.links)
        for (const std::string &end : {link.source, link.target})
            if (std::none_of(
                    config.servers.begin(), config.servers.end(),
                    [&](const cluster_server &server) { return is_named(server.name, end); }))
                return unknown_name_error(link.place, "server", end, servers);
    const size_t count = config.servers.size();
    if (count < 2) return success();
    const link_matrix links(config);
    const bool by_radio = config.radio && !config.users.empty();
    std::vector<std::string> unreached;
    std::string unlinked_pair;
    for (size_t first = 0; first < count; ++first) {
        size_t reached = 0;
        for (size_t second = 0; second < count; ++second) {
            if (second == first) continue;
            if (links.is_linked_both_ways(first, second))
                ++reached;
            else if (unlinked_pair.empty())
                unlinked_pair =
                    format("{} and {}", config.servers[first].name, config.servers[second].name);
        }
        if (reached == 0 && !(by_radio && config.cloud))
            unreached.push_back(config.servers[first].name);
    }
    if (!unreached.empty())
        return usage_error(
            format("{}: no link reaches {} there and back; add [[cluster.links]] with from "
                   "and to",
                   config.place, fmt::join(unreached, ", ")));
    if (!config.cloud && !unlinked_pair.empty())
        return usage_error(
            format("{}: {} have no link there and back, and there is no cloud, so a token "
                   "of one cannot use an expert of the other; add [[cluster.links]]",
                   config.place, unlinked_pair));
    return success();
}

// Servers and users have separate streams, and every entry draws. So positions do not move if there
// are more users or if one position is given.
status draw_positions(cluster_config &config) {
    if (!config.radio) {
        if (config.users.empty()) return success();
        return usage_error(format("{}: [[cluster.users]] {} reaches no server; add [cluster.radio]",
                                  config.users.front().place, config.users.front().name));
    }
    const double side = config.radio->area_m;
    const auto draw = [&](auto &entries, uint64_t stream) -> status {
        random_stream random(config.radio->position_seed, stream);
        for (auto &entry : entries) {
            const position drawn{random.unit() * side, random.unit() * side};
            if (entry.location) continue;
            if (side == 0)
                return usage_error(
                    format("{}: {} has no position; give position = [x, y] in metres, or "
                           "[cluster.radio] area_m to draw one",
                           entry.place, entry.name));
            entry.location = drawn;
        }
        return success();
    };
    if (const status drawn = draw(config.servers, 1); !drawn) return drawn;
    return draw(config.users, 2);
}

}  // namespace

bool is_named(const std::string &entry, const std::string &name) {
    return name == "*" || entry == name ||
           (entry.size() > name.size() && entry[name.size()] == '.' && entry.starts_with(name));
}

status complete_cluster_config(cluster_config &config) {
    if (config.models.empty())
        return usage_error(
            format("{}: [cluster] has no model; add [[cluster.models]] with name and shape",
                   config.place));
    if (config.servers.empty())
        return usage_error(
            format("{}: [cluster] has no server; add [[cluster.servers]]", config.place));
    names models, homes, workloads;
    if (const status named = add_names(config.models, "model", models); !named) return named;
    if (const status named = add_names(config.servers, "server", homes); !named) return named;
    const names servers = homes;
    if (const status named = add_names(config.users, "user", homes); !named) return named;
    if (const status named = add_names(config.workloads, "workload", workloads); !named)
        return named;
    for (const cluster_workload &workload : config.workloads)
        if (!workload.next_workload.empty() && !workloads.contains(workload.next_workload))
            return unknown_name_error(workload.place, "workload", workload.next_workload,
                                      workloads);
    for (cluster_workload &workload : config.workloads)
        if (const status complete = complete_models(config, models, workload); !complete)
            return complete;
    if (const status apart = check_addresses(config.servers); !apart) return apart;
    if (const status known = check_workload(config.servers, workloads); !known) return known;
    if (const status known = check_workload(config.users, workloads); !known) return known;
    const bool has_requests =
        !config.users.empty() ||
        std::any_of(config.servers.begin(), config.servers.end(),
                    [](const cluster_server &server) { return !server.workload.empty(); });
    if (!has_requests)
        return usage_error(
            format("{}: nobody asks for anything; give servers a workload, or add "
                   "[[cluster.users]]",
                   config.place));
    if (const status linked = check_links(config, servers); !linked) return linked;
    return draw_positions(config);
}

}  // namespace moorage::core
