// load_report.cpp - sums what requests took by home, and what nodes counted.
#include "tools/node/load_report.h"

#include <algorithm>
#include <map>

#include "core/base/json.h"
#include "core/base/text.h"
#include "core/report/figures.h"

namespace moorage::core {

namespace {

uint64_t count_at(const json &object, const char *key) {
    const auto field = object.find(key);
    return field != object.end() && field->is_number_unsigned() ? field->get<uint64_t>() : 0;
}

json part_of(const json &object, const char *key) {
    const auto field = object.find(key);
    return field != object.end() && field->is_object() ? *field : json::object();
}

struct home_sums {
    uint64_t requests = 0, tokens = 0;
    time_collection latency_ns, ttft_ns;
};

class load_sums {
public:
    load_sums(const node_plan &plan, run_report &report) : plan_(plan), report_(report) {}

    void add(const load_request &asked, const load_outcome &done) {
        if (done.sent_ns != MOORAGE_NEVER) late_ns_.add(done.sent_ns - asked.at_ns);
        if (done.ended_ns != MOORAGE_NEVER) end_ns_ = std::max(end_ns_, done.ended_ns);
        if (done.end != load_end::answered) {
            ++trouble_[format("{}: {}{}{}", plan_.servers[asked.home].name, name_of(done.end),
                              done.text.empty() ? "" : ": ", done.text)];
            return;
        }
        home_sums &home = homes_[asked.home];
        const uint64_t latency_ns = done.ended_ns - asked.at_ns;
        const uint64_t first_ns = std::min(done.first_ns, done.ended_ns);
        // The last token goes through no layer any more.
        const uint64_t tokens = asked.request.ids.size() + done.written.size();
        home.tokens += tokens - (done.written.empty() ? 0 : 1);
        ++home.requests;
        home.latency_ns.add(latency_ns);
        home.ttft_ns.add(first_ns - asked.at_ns);
        latency_ns_.add(latency_ns);
        ttft_ns_.add(first_ns - asked.at_ns);
        if (done.written.size() > 1)
            tpot_ns_.add((done.ended_ns - first_ns) / (done.written.size() - 1));
    }

    void finish(json &load) {
        cluster_report &cluster = report_.cluster.emplace();
        report_.total_ms = static_cast<double>(end_ns_) / 1e6;
        cluster.duration_s = static_cast<double>(end_ns_) / 1e9;
        cluster.latency_ms = latency_ns_.summary();
        report_.ttft_ms = ttft_ns_.summary();
        report_.tpot_ms = tpot_ns_.summary();
        for (auto &[home, sums] : homes_) {
            report_.requests += sums.requests;
            report_.tokens += sums.tokens;
            cluster.homes.push_back({plan_.servers[home].name, sums.requests, sums.tokens,
                                     sums.latency_ns.summary(), sums.ttft_ns.summary(),
                                     /*local_ratio=*/{}});
        }
        if (end_ns_ != 0)
            report_.tokens_per_s = static_cast<double>(report_.tokens) / cluster.duration_s;
        for (const auto &[cause, count] : trouble_)
            report_.warnings.push_back(
                format("{}; {} request{}", cause, count, count == 1 ? "" : "s"));
        load["sent_late_ms"] = to_json(late_ns_.summary());
    }

private:
    const node_plan &plan_;
    run_report &report_;
    std::map<uint32_t, home_sums> homes_;
    std::map<std::string, uint64_t> trouble_;
    time_collection latency_ns_, ttft_ns_, tpot_ns_, late_ns_;
    uint64_t end_ns_ = 0;
};

void add_home(const node_plan &plan, uint32_t server, const node_counts &start_counts,
              const node_counts &end_counts, run_report &report, uint64_t &activations,
              uint64_t &elsewhere) {
    cluster_report &cluster = *report.cluster;
    cluster.calls += end_counts.calls - start_counts.calls;
    // Summed up here, and divided when all are there.
    cluster.remote_call_ms +=
        static_cast<double>(end_counts.called_us - start_counts.called_us) / 1e3;
    const uint64_t home_activations = end_counts.activations - start_counts.activations;
    const uint64_t home_elsewhere = end_counts.elsewhere - start_counts.elsewhere;
    activations += home_activations;
    elsewhere += home_elsewhere;
    for (cluster_report::home &home : cluster.homes)
        if (home.name == plan.servers[server].name)
            home.local_ratio = home_activations == 0
                                   ? 1
                                   : 1 - static_cast<double>(home_elsewhere) /
                                             static_cast<double>(home_activations);
    for (uint32_t peer = 0; peer < plan.servers.size(); ++peer) {
        const auto add = [&](uint32_t source, uint32_t target, uint64_t bytes) {
            if (bytes == 0) return;
            const auto found =
                std::ranges::find_if(cluster.links, [&](const cluster_report::link &entry) {
                    return entry.source == plan.servers[source].name &&
                           entry.target == plan.servers[target].name;
                });
            cluster_report::link &link =
                found != cluster.links.end()
                    ? *found
                    : cluster.links.emplace_back(cluster_report::link{plan.servers[source].name,
                                                                      plan.servers[target].name});
            link.activation_bytes += bytes;
            report.bytes.network += bytes;
        };
        add(server, peer,
            end_counts.servers[peer].outward_bytes - start_counts.servers[peer].outward_bytes);
        add(peer, server,
            end_counts.servers[peer].return_bytes - start_counts.servers[peer].return_bytes);
    }
}

void add_nodes(const node_plan &plan, const load_seen &seen, run_report &report) {
    uint64_t activations = 0, elsewhere = 0;
    for (uint32_t server = 0; server < plan.servers.size(); ++server) {
        const bool known = server < seen.end.size() && seen.end[server] &&
                           server < seen.start.size() && seen.start[server] &&
                           seen.start[server]->incarnation == seen.end[server]->incarnation;
        if (known)
            add_home(plan, server, *seen.start[server], *seen.end[server], report, activations,
                     elsewhere);
        else
            report.warnings.push_back(
                format("{}: what it counted is not known (no status address, or it was started "
                       "again); calls, links and local share are without it",
                       plan.servers[server].name));
    }
    std::ranges::sort(report.cluster->links, {}, [](const cluster_report::link &link) {
        return std::pair(link.source, link.target);
    });
    if (report.cluster->calls != 0)
        report.cluster->remote_call_ms /= static_cast<double>(report.cluster->calls);
    report.cluster->by_token = true;
    report.experts.requested = activations;
    report.experts.remote = report.experts.misses = std::min(elsewhere, activations);
    report.experts.hits = activations - report.experts.remote;
    if (activations != 0)
        report.cluster->local_ratio =
            static_cast<double>(report.experts.hits) / static_cast<double>(activations);
}

}  // namespace

std::optional<node_counts> counts_of(const json &status, size_t servers) {
    if (!status.is_object() || !status.contains("served")) return std::nullopt;
    node_counts counts;
    counts.incarnation = count_at(status, "incarnation");
    counts.served = count_at(part_of(status, "served"), "calls");
    const json called = part_of(status, "called");
    counts.calls = count_at(called, "calls");
    counts.activations = count_at(called, "activations");
    counts.elsewhere = count_at(called, "elsewhere");
    counts.servers.resize(servers);
    const auto peers = status.find("peers");
    if (peers != status.end() && peers->is_array())
        for (size_t i = 0; i < std::min(servers, peers->size()); ++i) {
            if (!(*peers)[i].is_object()) continue;
            const json bytes = part_of((*peers)[i], "hidden_bytes");
            counts.called_us += count_at((*peers)[i], "called_us");
            counts.servers[i] = {count_at(bytes, "there"), count_at(bytes, "back")};
        }
    return counts;
}

load_ends ends_of(const std::vector<load_outcome> &outcomes) {
    load_ends ends{};
    for (const load_outcome &outcome : outcomes) ++ends[static_cast<size_t>(outcome.end)];
    return ends;
}

run_report report_of(const node_plan &plan, const std::vector<load_request> &requests,
                     const std::vector<load_outcome> &outcomes, const load_seen &seen) {
    run_report report;
    report.executor = "nodes";
    json load;
    load_sums sums(plan, report);
    for (size_t i = 0; i < requests.size(); ++i) sums.add(requests[i], outcomes[i]);
    sums.finish(load);
    add_nodes(plan, seen, report);
    const load_ends ends = ends_of(outcomes);
    load["requests"] = requests.size();
    for (size_t i = 0; i < ends.size(); ++i) load[name_of(static_cast<load_end>(i))] = ends[i];
    json &config = *report.config;
    config["run"] = {{"executor", "nodes"}};
    config["load"] = std::move(load);
    return report;
}

std::string summary_of(const run_report &report) {
    const json load = part_of(*report.config, "load");
    std::string text = format("{} requests:", count_at(load, "requests"));
    const char *comma = " ";
    for (size_t i = 0; i < load_ends().size(); ++i) {
        const char *const name = name_of(static_cast<load_end>(i));
        const uint64_t count = count_at(load, name);
        if (count == 0 && i != 0) continue;
        text += format("{}{} {}", comma, count, name);
        comma = ", ";
    }
    const json late = part_of(load, "sent_late_ms");
    return text + format("; sent {} late (p99 {})", human_ms(late.value("mean", 0.0)),
                         human_ms(late.value("p99", 0.0)));
}

}  // namespace moorage::core
