// cluster_figures.cpp - adds up homes, links, devices and time.
#include "tools/cluster/cluster_figures.h"

#include <algorithm>
#include <utility>

namespace moorage::core {

namespace {

constexpr double buckets = 60;

double ratio(const activation_counts &counts) {
    const uint64_t total = counts.local + counts.remote;
    return total == 0 ? 1 : static_cast<double>(counts.local) / static_cast<double>(total);
}

void add_to(activation_counts &sum, const activation_counts &added) {
    sum.local += added.local;
    sum.remote += added.remote;
}

void add_to(layer_report &sum, const layer_report &added) {
    sum.experts += added.experts;
    sum.routing += added.routing;
    sum.h2d_bytes += added.h2d_bytes;
    sum.stall_ms += added.stall_ms;
    sum.slots += added.slots;
    sum.predicted += added.predicted;
    sum.predicted_right += added.predicted_right;
}

}  // namespace

double bucket_s(const cluster_config &config) {
    if (config.bucket_s > 0) return config.bucket_s;
    return config.duration_s > 0 ? config.duration_s / buckets : 10;
}

std::string endpoint_name(const scene &scene, const network &links, uint32_t endpoint) {
    if (endpoint < scene.cluster.servers) return scene.server_names[endpoint];
    if (endpoint == links.cloud()) return "cloud";
    for (uint32_t home = 0; home < scene.cluster.homes; ++home)
        if (links.home(home) == endpoint) return scene.home_names[home];
    return "?";
}

cluster_sums::cluster_sums(const scene &scene, const cluster_emulator &emulator,
                           const cluster_config &config)
    : scene_(scene), emulator_(emulator), config_(config) {}

cluster_sums::time_sums &cluster_sums::bucket_at(uint64_t ns) {
    const auto index = static_cast<size_t>(static_cast<double>(ns) / 1e9 / bucket_s(config_));
    if (index >= over_time_.size()) over_time_.resize(index + 1);
    return over_time_[index];
}

void cluster_sums::add(const cluster_node &node, pipeline &line, const arrival_source *requests) {
    run_report report;
    line.finish(report);
    sum_.tokens += report.tokens;
    sum_.requests += report.requests;
    sum_.experts += report.experts;
    sum_.routing += report.routing;
    sum_.bytes.h2d += report.bytes.h2d;
    sum_.bytes.d2h += report.bytes.d2h;
    sum_.bytes.prefetched += report.bytes.prefetched;
    sum_.bytes.prefetch_used += report.bytes.prefetch_used;
    sum_.bytes.prefetch_wasted += report.bytes.prefetch_wasted;
    sum_.bytes.prefetch_cut_off += report.bytes.prefetch_cut_off;
    sum_.bytes.prefetch_late += report.bytes.prefetch_late;
    sum_.bytes.demand += report.bytes.demand;
    sum_.bytes.behind += report.bytes.behind;
    sum_.time.compute += report.time.compute;
    sum_.time.transfer += report.time.transfer;
    sum_.time.stall += report.time.stall;
    sum_.time.cpu += report.time.cpu;
    // Models may differ in depth. Causes are added layer by layer; the part between layers is last
    // and kept apart.
    if (sum_.causes.size() < report.causes.size())
        sum_.causes.insert(sum_.causes.end() - !sum_.causes.empty(),
                           report.causes.size() - sum_.causes.size(), {});
    for (size_t i = 0; i < report.causes.size(); ++i) {
        auto &target = i + 1 == report.causes.size() ? sum_.causes.back() : sum_.causes[i];
        for (size_t phase = 0; phase < target.size(); ++phase)
            target[phase] += report.causes[i][phase];
    }
    if (node.place().model == 0) {
        sum_.layers.resize(std::max(sum_.layers.size(), report.layers.size()));
        for (size_t i = 0; i < report.layers.size(); ++i) add_to(sum_.layers[i], report.layers[i]);
    }
    experts_ns_ += line.experts_ns();
    if (!requests) return;
    home_sums &home = homes_[node.place().home];
    home.tokens += report.tokens;
    for (const auto &layer : report.causes)
        for (size_t phase = 0; phase < layer.size(); ++phase) home.causes[phase] += layer[phase];
    for (size_t i = 0; i < node.activations().size(); ++i) {
        add_to(home.activations, node.activations()[i]);
        const double middle_s = (static_cast<double>(i) + 0.5) * bucket_s(config_);
        add_to(bucket_at(static_cast<uint64_t>(middle_s * 1e9)).activations, node.activations()[i]);
    }
    add_requests(home, *requests);
}

void cluster_sums::add_requests(home_sums &home, const arrival_source &source) {
    for (const request_times &request : source.requests()) {
        if (request.ended_ns == MOORAGE_NEVER) continue;
        const uint64_t latency_ns = request.ended_ns - request.arrived_ns;
        const uint64_t ttft_ns = request.first_ns - request.arrived_ns;
        ++home.requests;
        home.latency_ns.add(latency_ns);
        home.ttft_ns.add(ttft_ns);
        latency_ns_.add(latency_ns);
        ttft_ns_.add(ttft_ns);
        if (request.output_tokens > 1)
            tpot_ns_.add((request.ended_ns - request.first_ns) / (request.output_tokens - 1));
        time_sums &bucket = bucket_at(request.arrived_ns);
        ++bucket.requests;
        bucket.latency_ns += latency_ns;
    }
}

void cluster_sums::add_links(cluster_report &report) const {
    const network &links = emulator_.links();
    for (uint32_t channel = 0; channel < links.channels(); ++channel) {
        const channel_figures figures = links.figures(channel);
        if (links.local(channel) || figures.bytes[0] + figures.bytes[1] == 0) continue;
        const double busy_ns = static_cast<double>(figures.busy_ns[0] + figures.busy_ns[1]);
        report.links.push_back({endpoint_name(scene_, links, figures.source),
                                endpoint_name(scene_, links, figures.target), figures.bytes[0],
                                figures.bytes[1], figures.queue_peak,
                                busy_ns / std::max(1.0, static_cast<double>(emulator_.now_ns()))});
    }
}

void cluster_sums::add_devices(cluster_report &report, const rebalancer &balance) const {
    const cluster_arrays &cluster = scene_.cluster;
    const std::vector<moorage_copy> copies = balance.copies();
    const std::vector<uint64_t> used = device_used_bytes(scene_, copies);
    for (uint32_t device = 0; device < cluster.devices(); ++device)
        report.devices.push_back(
            {scene_.device_names[device], 0, used[device], cluster.device_bytes[device], 0});
    for (const auto &node : emulator_.nodes()) {
        if (node->place().device == MOORAGE_NONE) continue;
        cluster_report::device &device_report = report.devices[node->place().device];
        device_report.utilisation = static_cast<double>(node->node_parts().executor->busy().gpu) /
                                    std::max(1.0, static_cast<double>(emulator_.now_ns()));
        device_report.served = node->serving().count();
    }
    const demand_arrays &demand = scene_.demand;
    std::vector<size_t> expert_layer;  // counted over all models
    for (uint32_t model = 0; model < demand.models; ++model) {
        report.models_layers.push_back(demand.model_layers[model]);
        for (uint32_t layer = 0; layer < demand.model_layers[model]; ++layer) {
            expert_layer.insert(expert_layer.end(), demand.model_experts[model],
                                report.layers_experts.size());
            report.layers_experts.push_back(demand.model_experts[model]);
        }
    }
    report.servers_layers.assign(cluster.servers,
                                 std::vector<uint32_t>(report.layers_experts.size(), 0));
    for (const moorage_copy &copy : copies)
        ++report.servers_layers[cluster.device_server[copy.device]][expert_layer[copy.expert]];
}

run_report cluster_sums::report(const rebalancer &balance, std::string_view policy) {
    run_report report = std::move(sum_);
    const double taken_s = static_cast<double>(emulator_.now_ns()) / 1e9;
    report.virtual_time = true;
    report.total_ms = taken_s * 1e3;
    report.tokens_per_s = taken_s > 0 ? static_cast<double>(report.tokens) / taken_s : 0;
    report.tpot_ms = tpot_ns_.summary();
    report.ttft_ms = ttft_ns_.summary();
    const network &links = emulator_.links();
    report.bytes.network =
        links.network_bytes(traffic::activation) + links.network_bytes(traffic::migration);
    cluster_report &cluster = report.cluster.emplace();
    cluster.policy = policy;
    cluster.duration_s = taken_s;
    cluster.bucket_s = bucket_s(config_);
    cluster.latency_ms = latency_ns_.summary();
    if (report.tokens != 0)
        cluster.experts_ms_per_token =
            static_cast<double>(experts_ns_) / 1e6 / static_cast<double>(report.tokens);
    const call_figures calls = emulator_.calls();
    cluster.calls = calls.calls;
    if (calls.calls != 0)
        cluster.remote_call_ms =
            static_cast<double>(calls.ns) / 1e6 / static_cast<double>(calls.calls);
    activation_counts counts;
    for (auto &[home, sums] : homes_) {
        add_to(counts, sums.activations);
        cluster.homes.push_back({scene_.home_names[home], sums.requests, sums.tokens,
                                 sums.latency_ns.summary(), sums.ttft_ns.summary(),
                                 ratio(sums.activations), sums.causes});
    }
    cluster.local_ratio = ratio(counts);
    const auto demand_bytes = links.network_bytes_over_time(traffic::activation);
    const auto moved_bytes = links.network_bytes_over_time(traffic::migration);
    for (size_t i = 0; i < over_time_.size(); ++i) {
        const time_sums &bucket = over_time_[i];
        const double latency_ms = bucket.requests == 0
                                      ? 0
                                      : static_cast<double>(bucket.latency_ns) / 1e6 /
                                            static_cast<double>(bucket.requests);
        cluster.over_time.push_back({ratio(bucket.activations), latency_ms, bucket.requests,
                                     i < demand_bytes.size() ? demand_bytes[i] : 0,
                                     i < moved_bytes.size() ? moved_bytes[i] : 0});
    }
    add_links(cluster);
    add_devices(cluster, balance);
    cluster.migrations = balance.decisions();
    return report;
}

}  // namespace moorage::core
