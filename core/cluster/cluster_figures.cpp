// cluster_figures.cpp - adds up homes, links, devices and time.
#include "core/cluster/cluster_figures.h"

#include <algorithm>
#include <utility>

namespace moorage::core {

namespace {

constexpr double buckets = 60;

double ratio(const activation_counts &of) {
    const uint64_t all = of.local + of.remote;
    return all == 0 ? 1 : static_cast<double>(of.local) / static_cast<double>(all);
}

void add_to(activation_counts &sum, const activation_counts &one) {
    sum.local += one.local;
    sum.remote += one.remote;
}

void add_to(layer_report &sum, const layer_report &one) {
    sum.experts += one.experts;
    sum.routing += one.routing;
    sum.h2d_bytes += one.h2d_bytes;
    sum.stall_ms += one.stall_ms;
    sum.slots += one.slots;
    sum.predicted += one.predicted;
    sum.predicted_right += one.predicted_right;
}

}  // namespace

double bucket_s(const cluster_config &of) {
    if (of.bucket_s > 0) return of.bucket_s;
    return of.duration_s > 0 ? of.duration_s / buckets : 10;
}

std::string endpoint_name(const scene &of, const network &links, uint32_t endpoint) {
    if (endpoint < of.cluster.servers) return of.server_names[endpoint];
    if (endpoint == links.cloud()) return "cloud";
    for (uint32_t home = 0; home < of.cluster.homes; ++home)
        if (links.home(home) == endpoint) return of.home_names[home];
    return "?";
}

cluster_sums::cluster_sums(const scene &of, const cluster_emulator &all,
                           const cluster_config &config)
    : scene_(of), all_(all), config_(config) {}

cluster_sums::time_sums &cluster_sums::at(uint64_t ns) {
    const auto index = static_cast<size_t>(static_cast<double>(ns) / 1e9 / bucket_s(config_));
    if (index >= over_time_.size()) over_time_.resize(index + 1);
    return over_time_[index];
}

void cluster_sums::add(const cluster_node &node, pipeline &line, const arrival_source *requests) {
    run_report one;
    line.finish(one);
    sum_.tokens += one.tokens;
    sum_.requests += one.requests;
    sum_.experts += one.experts;
    sum_.routing += one.routing;
    sum_.bytes.h2d += one.bytes.h2d;
    sum_.bytes.d2h += one.bytes.d2h;
    sum_.bytes.prefetched += one.bytes.prefetched;
    sum_.bytes.prefetch_used += one.bytes.prefetch_used;
    sum_.bytes.prefetch_wasted += one.bytes.prefetch_wasted;
    sum_.bytes.prefetch_cut_off += one.bytes.prefetch_cut_off;
    sum_.bytes.prefetch_late += one.bytes.prefetch_late;
    sum_.bytes.demand += one.bytes.demand;
    sum_.bytes.behind += one.bytes.behind;
    sum_.time.compute += one.time.compute;
    sum_.time.transfer += one.time.transfer;
    sum_.time.stall += one.time.stall;
    sum_.time.cpu += one.time.cpu;
    // Models may differ in depth. Causes are added layer by layer; the part between layers is last
    // and kept apart.
    if (sum_.causes.size() < one.causes.size())
        sum_.causes.insert(sum_.causes.end() - !sum_.causes.empty(),
                           one.causes.size() - sum_.causes.size(), {});
    for (size_t i = 0; i < one.causes.size(); ++i) {
        auto &to = i + 1 == one.causes.size() ? sum_.causes.back() : sum_.causes[i];
        for (size_t phase = 0; phase < to.size(); ++phase) to[phase] += one.causes[i][phase];
    }
    if (node.place().model == 0) {
        sum_.layers.resize(std::max(sum_.layers.size(), one.layers.size()));
        for (size_t i = 0; i < one.layers.size(); ++i) add_to(sum_.layers[i], one.layers[i]);
    }
    experts_ns_ += line.experts_ns();
    if (!requests) return;
    home_sums &home = homes_[node.place().home];
    home.tokens += one.tokens;
    for (const auto &layer : one.causes)
        for (size_t phase = 0; phase < layer.size(); ++phase) home.causes[phase] += layer[phase];
    for (size_t i = 0; i < node.activations().size(); ++i) {
        add_to(home.activations, node.activations()[i]);
        const double middle_s = (static_cast<double>(i) + 0.5) * bucket_s(config_);
        add_to(at(static_cast<uint64_t>(middle_s * 1e9)).activations, node.activations()[i]);
    }
    add_requests(home, *requests);
}

void cluster_sums::add_requests(home_sums &home, const arrival_source &from) {
    for (const request_times &one : from.requests()) {
        if (one.ended_ns == MOORAGE_NEVER) continue;
        const uint64_t latency_ns = one.ended_ns - one.arrived_ns;
        const uint64_t ttft_ns = one.first_ns - one.arrived_ns;
        ++home.requests;
        home.latency_ns.add(latency_ns);
        home.ttft_ns.add(ttft_ns);
        latency_ns_.add(latency_ns);
        ttft_ns_.add(ttft_ns);
        if (one.output_tokens > 1)
            tpot_ns_.add((one.ended_ns - one.first_ns) / (one.output_tokens - 1));
        time_sums &bucket = at(one.arrived_ns);
        ++bucket.requests;
        bucket.latency_ns += latency_ns;
    }
}

void cluster_sums::add_links(cluster_report &out) const {
    const network &links = all_.links();
    for (uint32_t channel = 0; channel < links.channels(); ++channel) {
        const channel_figures of = links.figures(channel);
        if (links.local(channel) || of.bytes[0] + of.bytes[1] == 0) continue;
        const double busy_ns = static_cast<double>(of.busy_ns[0] + of.busy_ns[1]);
        out.links.push_back({endpoint_name(scene_, links, of.from),
                             endpoint_name(scene_, links, of.to), of.bytes[0], of.bytes[1],
                             of.queue_peak,
                             busy_ns / std::max(1.0, static_cast<double>(all_.now_ns()))});
    }
}

void cluster_sums::add_devices(cluster_report &out, const rebalancer &balance) const {
    const cluster_arrays &of = scene_.cluster;
    const std::vector<moorage_copy> copies = balance.copies();
    const std::vector<uint64_t> used = device_used_bytes(scene_, copies);
    for (uint32_t device = 0; device < of.devices(); ++device)
        out.devices.push_back(
            {scene_.device_names[device], 0, used[device], of.device_bytes[device], 0});
    for (const auto &node : all_.nodes()) {
        if (node->place().device == MOORAGE_NONE) continue;
        cluster_report::device &one = out.devices[node->place().device];
        one.utilisation = static_cast<double>(node->of().where->busy().gpu) /
                          std::max(1.0, static_cast<double>(all_.now_ns()));
        one.served = node->serving().count();
    }
    const demand_arrays &demand = scene_.demand;
    std::vector<size_t> expert_layer;  // counted over all models
    for (uint32_t model = 0; model < demand.models; ++model) {
        out.models_layers.push_back(demand.model_layers[model]);
        for (uint32_t layer = 0; layer < demand.model_layers[model]; ++layer) {
            expert_layer.insert(expert_layer.end(), demand.model_experts[model],
                                out.layers_experts.size());
            out.layers_experts.push_back(demand.model_experts[model]);
        }
    }
    out.servers_layers.assign(of.servers, std::vector<uint32_t>(out.layers_experts.size(), 0));
    for (const moorage_copy &copy : copies)
        ++out.servers_layers[of.device_server[copy.device]][expert_layer[copy.expert]];
}

run_report cluster_sums::report(const rebalancer &balance, std::string_view policy) {
    run_report report = std::move(sum_);
    const double taken_s = static_cast<double>(all_.now_ns()) / 1e9;
    report.virtual_time = true;
    report.total_ms = taken_s * 1e3;
    report.tokens_per_s = taken_s > 0 ? static_cast<double>(report.tokens) / taken_s : 0;
    report.tpot_ms = tpot_ns_.summary();
    report.ttft_ms = ttft_ns_.summary();
    const network &links = all_.links();
    report.bytes.network =
        links.network_bytes(traffic::activation) + links.network_bytes(traffic::migration);
    cluster_report &out = report.cluster.emplace();
    out.policy = policy;
    out.duration_s = taken_s;
    out.bucket_s = bucket_s(config_);
    out.latency_ms = latency_ns_.summary();
    if (report.tokens != 0)
        out.experts_ms_per_token =
            static_cast<double>(experts_ns_) / 1e6 / static_cast<double>(report.tokens);
    const call_figures calls = all_.calls();
    out.calls = calls.calls;
    if (calls.calls != 0)
        out.remote_call_ms = static_cast<double>(calls.ns) / 1e6 / static_cast<double>(calls.calls);
    activation_counts all;
    for (auto &[home, sums] : homes_) {
        add_to(all, sums.activations);
        out.homes.push_back({scene_.home_names[home], sums.requests, sums.tokens,
                             sums.latency_ns.summary(), sums.ttft_ns.summary(),
                             ratio(sums.activations), sums.causes});
    }
    out.local_ratio = ratio(all);
    const auto demand_bytes = links.network_bytes_over_time(traffic::activation);
    const auto moved_bytes = links.network_bytes_over_time(traffic::migration);
    for (size_t i = 0; i < over_time_.size(); ++i) {
        const time_sums &one = over_time_[i];
        const double latency_ms = one.requests == 0 ? 0
                                                    : static_cast<double>(one.latency_ns) / 1e6 /
                                                          static_cast<double>(one.requests);
        out.over_time.push_back({ratio(one.activations), latency_ms, one.requests,
                                 i < demand_bytes.size() ? demand_bytes[i] : 0,
                                 i < moved_bytes.size() ? moved_bytes[i] : 0});
    }
    add_links(out);
    add_devices(out, balance);
    out.migrations = balance.decisions();
    return report;
}

}  // namespace moorage::core
