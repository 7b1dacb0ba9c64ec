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

error wrong(std::string text) { return error{std::move(text), true}; }

// Entries of one list, or of several lists that share one namespace, by name.
using names = std::map<std::string, std::string>;  // name, place

template <class Entry>
status add_names(const std::vector<Entry> &entries, const char *what, names &out) {
    for (const Entry &one : entries)
        if (const auto [at, fresh] = out.emplace(one.name, one.place); !fresh)
            return wrong(format("{}: {} {} has the name of the entry at {}; names are given once",
                                one.place, what, one.name, at->second));
    return success();
}

// All names that may be written: those of entries, and those of the counted entries they belong to.
std::vector<std::string> known_names(const names &all) {
    std::vector<std::string> known;
    for (const auto &[name, place] : all) {
        const std::string whole = name.substr(0, name.find('.'));
        if (known.empty() || known.back() != whole) known.push_back(whole);
        if (whole != name) known.push_back(name);
    }
    return known;
}

error unknown(const std::string &place, const char *what, const std::string &name,
              const names &all) {
    const std::vector<std::string> known = known_names(all);
    const std::string hint = did_you_mean(name, known);
    const std::string list = known.empty() ? "none" : format("{}", fmt::join(known, ", "));
    return wrong(format("{}: there is no {} {}{}", place, what, name,
                        hint.empty() ? "; there are " + list : hint));
}

// Replaces model names by those of single entries, and makes shares sum to one.
status complete_models(const cluster_config &config, const names &known, cluster_workload &out) {
    std::vector<std::pair<std::string, double>> models;
    std::map<std::string, bool> seen;
    double sum = 0;
    const bool has_shares = !out.models.empty() && out.models.front().second > 0;
    if (out.models.empty())
        for (const cluster_model &model : config.models) models.emplace_back(model.name, 0);
    for (const auto &[name, share] : out.models) {
        const size_t first = models.size();
        for (const cluster_model &model : config.models)
            if (is_named(model.name, name)) {
                if (!seen.emplace(model.name, true).second)
                    return wrong(format("{}: [[cluster.workloads]] {} names model {} twice",
                                        out.place, out.name, model.name));
                models.emplace_back(model.name, 0);
            }
        if (models.size() == first) return unknown(out.place, "model", name, known);
        for (size_t at = first; at < models.size(); ++at)
            models[at].second = share / static_cast<double>(models.size() - first);
        sum += share;
    }
    if (has_shares && std::fabs(sum - 1) > 1e-9)
        return wrong(
            format("{}: [[cluster.workloads]] {}: the shares of its models sum to {:#.6g}, "
                   "and 1 is needed",
                   out.place, out.name, sum));
    if (out.models_per_user_max > models.size())
        return wrong(
            format("{}: [[cluster.workloads]] {}: models_per_user is {}, and it has {} "
                   "models",
                   out.place, out.name, out.models_per_user_max, models.size()));
    if (!has_shares) {
        double total = 0;
        for (size_t rank = 0; rank < models.size(); ++rank)
            total += portable_pow(static_cast<double>(rank + 1), -out.model_zipf);
        for (size_t rank = 0; rank < models.size(); ++rank)
            models[rank].second =
                portable_pow(static_cast<double>(rank + 1), -out.model_zipf) / total;
    }
    out.models = std::move(models);
    return success();
}

template <class Entry>
status check_workload(const std::vector<Entry> &entries, const names &workloads) {
    for (const Entry &one : entries)
        if (!one.workload.empty() && !workloads.contains(one.workload))
            return unknown(one.place, "workload", one.workload, workloads);
    return success();
}

// For nodes: two nodes cannot listen at one address.
status check_addresses(const std::vector<cluster_server> &servers) {
    names taken;
    for (const cluster_server &one : servers)
        for (const std::string *list : {&one.address, &one.heartbeats, &one.status})
            for (std::string address : split(*list, ',')) {
                std::erase(address, ' ');
                const auto [at, fresh] = taken.emplace(address, one.name);
                if (fresh || address.empty()) continue;
                return wrong(
                    format("{}: server {}: {} is server {}'s already; a node listens at "
                           "addresses of its own, counted ones in turn: address = "
                           "[\"host:7301\", \"host:7302\"]",
                           one.place, one.name, address, at->second));
            }
    return success();
}

// Which pairs of servers have a link, in the order from, to.
class link_matrix {
public:
    explicit link_matrix(const cluster_config &config)
        : servers_(config.servers.size()), linked_(servers_ * servers_, 0) {
        if (config.radio && config.radio->server_bandwidth_hz > 0)
            std::fill(linked_.begin(), linked_.end(), uint8_t{1});
        std::vector<uint8_t> ends(servers_);
        for (const cluster_link &link : config.links) {
            for (size_t to = 0; to < servers_; ++to)
                ends[to] = is_named(config.servers[to].name, link.to) ? 1 : 0;
            for (size_t from = 0; from < servers_; ++from) {
                if (!is_named(config.servers[from].name, link.from)) continue;
                for (size_t to = 0; to < servers_; ++to) {
                    if (from == to || ends[to] == 0) continue;
                    linked_[from * servers_ + to] = 1;
                    if (link.symmetric) linked_[to * servers_ + from] = 1;
                }
            }
        }
    }
    bool both_ways(size_t one, size_t other) const {
        return linked_[one * servers_ + other] && linked_[other * servers_ + one];
    }

private:
    size_t servers_;
    std::vector<uint8_t> linked_;
};

status check_links(const cluster_config &config, const names &servers) {
    for (const cluster_link &link : config.links)
        for (const std::string &end : {link.from, link.to})
            if (std::none_of(config.servers.begin(), config.servers.end(),
                             [&](const cluster_server &one) { return is_named(one.name, end); }))
                return unknown(link.place, "server", end, servers);
    const size_t count = config.servers.size();
    if (count < 2) return success();
    const link_matrix links(config);
    const bool by_radio = config.radio && !config.users.empty();
    std::vector<std::string> alone;
    std::string apart;
    for (size_t one = 0; one < count; ++one) {
        size_t reached = 0;
        for (size_t other = 0; other < count; ++other) {
            if (other == one) continue;
            if (links.both_ways(one, other))
                ++reached;
            else if (apart.empty())
                apart = format("{} and {}", config.servers[one].name, config.servers[other].name);
        }
        if (reached == 0 && !(by_radio && config.cloud)) alone.push_back(config.servers[one].name);
    }
    if (!alone.empty())
        return wrong(
            format("{}: no link reaches {} there and back; add [[cluster.links]] with from "
                   "and to",
                   config.place, fmt::join(alone, ", ")));
    if (!config.cloud && !apart.empty())
        return wrong(
            format("{}: {} have no link there and back, and there is no cloud, so a token "
                   "of one cannot use an expert of the other; add [[cluster.links]]",
                   config.place, apart));
    return success();
}

// Servers and users have separate streams, and every entry draws. So positions do not move if there
// are more users or if one position is given.
status draw_positions(cluster_config &config) {
    if (!config.radio) {
        if (config.users.empty()) return success();
        return wrong(format("{}: [[cluster.users]] {} reaches no server; add [cluster.radio]",
                            config.users.front().place, config.users.front().name));
    }
    const double side = config.radio->area_m;
    const auto draw = [&](auto &entries, uint64_t stream) -> status {
        random_stream random(config.radio->position_seed, stream);
        for (auto &one : entries) {
            const position drawn{random.unit() * side, random.unit() * side};
            if (one.at) continue;
            if (side == 0)
                return wrong(
                    format("{}: {} has no position; give position = [x, y] in metres, or "
                           "[cluster.radio] area_m to draw one",
                           one.place, one.name));
            one.at = drawn;
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
        return wrong(
            format("{}: [cluster] has no model; add [[cluster.models]] with name and shape",
                   config.place));
    if (config.servers.empty())
        return wrong(format("{}: [cluster] has no server; add [[cluster.servers]]", config.place));
    names models, homes, workloads;
    if (const status named = add_names(config.models, "model", models); !named) return named;
    if (const status named = add_names(config.servers, "server", homes); !named) return named;
    const names servers = homes;
    if (const status named = add_names(config.users, "user", homes); !named) return named;
    if (const status named = add_names(config.workloads, "workload", workloads); !named)
        return named;
    for (const cluster_workload &workload : config.workloads)
        if (!workload.then.empty() && !workloads.contains(workload.then))
            return unknown(workload.place, "workload", workload.then, workloads);
    for (cluster_workload &workload : config.workloads)
        if (const status complete = complete_models(config, models, workload); !complete)
            return complete;
    if (const status apart = check_addresses(config.servers); !apart) return apart;
    if (const status known = check_workload(config.servers, workloads); !known) return known;
    if (const status known = check_workload(config.users, workloads); !known) return known;
    const bool asks = !config.users.empty() ||
                      std::any_of(config.servers.begin(), config.servers.end(),
                                  [](const cluster_server &one) { return !one.workload.empty(); });
    if (!asks)
        return wrong(
            format("{}: nobody asks for anything; give servers a workload, or add "
                   "[[cluster.users]]",
                   config.place));
    if (const status linked = check_links(config, servers); !linked) return linked;
    return draw_positions(config);
}

}  // namespace moorage::core
