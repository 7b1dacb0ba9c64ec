// ushape.hpp - whole layers, not experts (SlimCaching, Section VI-A, "U-shaped (layer)").
//
// A server takes whole layers: models by their popularity among its own homes, then layer by layer.
// A layer that does not fit is skipped and the next one tried. Models that none of its homes
// requests are left out.
//
// The plan is judged twice. objective_s is the latency of SlimCaching's routing over it, as for any
// other plan. ushape_s is the latency of U-shaped inference. The paper gives no formula for it.
// Here the layers that a home holds completely run at home, from the first on and from the last
// back. For the rest, the token goes up once and down once. On the way it passes the servers that
// hold the layers in the least time. If no server holds one of these layers completely, all of them
// run in the cloud. ushape_s is left out if that would need a cloud and there is none. Cost: layers
// * (experts + servers^2).
#pragma once

#include "slim_parts.hpp"

namespace moorage::policies {

using moorage::device_room;
using moorage::latency_model;

inline constexpr double infinity = std::numeric_limits<double>::infinity();

// A layer's experts.
struct expert_range {
    uint32_t begin, end;
};
inline expert_range layer_of(const moorage_demand &demand, uint32_t model, uint32_t layer) {
    const uint32_t begin =
        demand.host_model_first[model] + layer * demand.host_model_experts[model];
    return {begin, begin + demand.host_model_experts[model]};
}

// Places the whole layer on the server, or nothing of it.
inline void place_layer(latency_model &model, device_room &room, expert_range layer,
                        uint32_t server) {
    std::vector<uint32_t> devices;
    for (uint32_t x = layer.begin; x < layer.end; ++x) {
        const uint32_t device = room.find(x, server);
        if (device == latency_model::none) break;
        room.take(x, device);
        devices.push_back(device);
    }
    const bool whole = devices.size() == layer.end - layer.begin;
    for (uint32_t i = 0; i < devices.size(); ++i) {
        if (whole)
            model.add(layer.begin + i, devices[i]);
        else
            room.give(layer.begin + i, devices[i]);
    }
}

// U-shaped inference over a plan.
class ushape_latency {
public:
    explicit ushape_latency(const latency_model &model)
        : model_(model), cluster_(model.cluster()), demand_(model.demand()) {}

    // Mean over homes, by their tokens. Infinite if a cloud is needed and missing.
    double token_s() const {
        double tokens_per_s = 0, sum = 0;
        for (uint32_t h = 0; h < demand_.homes; ++h)
            tokens_per_s += demand_.host_home_tokens_per_s[h];
        for (uint32_t h = 0; h < demand_.homes; ++h) {
            const double weight = tokens_per_s > 0
                                      ? demand_.host_home_tokens_per_s[h] / tokens_per_s
                                      : 1.0 / demand_.homes;
            for (uint32_t m = 0; m < demand_.models; ++m) {
                const double share = demand_.host_home_model[size_t{h} * demand_.models + m];
                if (share > 0 && weight > 0) sum += weight * share * home_s(h, m);
            }
        }
        return sum;
    }

private:
    bool at_home(uint32_t home, uint32_t model, uint32_t layer) const {
        if (!demand_.host_home_holds) return false;
        const expert_range experts = layer_of(demand_, model, layer);
        const uint8_t *held = demand_.host_home_holds + size_t{home} * model_.experts();
        return std::all_of(held + experts.begin, held + experts.end,
                           [](uint8_t h) { return h != 0; });
    }
    // Time of a layer on a server. Infinite if the server does not hold all of it.
    double compute_s(uint32_t model, uint32_t layer, uint32_t server) const {
        const expert_range experts = layer_of(demand_, model, layer);
        for (uint32_t x = experts.begin; x < experts.end; ++x)
            if (!model_.holds(x, server)) return infinity;
        double longest = 0;
        for (uint32_t d = model_.device_begin(server); d < model_.device_begin(server + 1); ++d)
            longest =
                std::max(longest, cluster_.host_device_call_s[size_t{d} * cluster_.models + model]);
        return longest;
    }
    double message_s(uint32_t source, uint32_t target, double bytes) const {
        if (source == target) return 0;
        const size_t link = size_t{source} * cluster_.servers + target;
        const double rate = cluster_.host_link_bytes_per_s[link];
        return rate > 0 ? cluster_.host_link_s[link] + bytes / rate : infinity;
    }
    // Time from the home's server through layers [first_layer, end_layer) and back to it.
    double chain_s(uint32_t start, uint32_t model, uint32_t first_layer, uint32_t end_layer) const {
        const auto bytes = static_cast<double>(demand_.host_hidden_bytes[model]);
        std::vector<double> arrival_s(cluster_.servers, infinity), next(cluster_.servers);
        arrival_s[start] = 0;
        for (uint32_t layer = first_layer; layer < end_layer; ++layer) {
            for (uint32_t n = 0; n < cluster_.servers; ++n) {
                next[n] = infinity;
                const double compute = compute_s(model, layer, n);
                for (uint32_t p = 0; p < cluster_.servers && compute < infinity; ++p)
                    next[n] = std::min(next[n], arrival_s[p] + message_s(p, n, bytes) + compute);
            }
            arrival_s.swap(next);
        }
        double least = infinity;
        for (uint32_t n = 0; n < cluster_.servers; ++n)
            least = std::min(least, arrival_s[n] + message_s(n, start, bytes));
        return least;
    }
    double home_s(uint32_t home, uint32_t model) const {
        const uint32_t layers = demand_.host_model_layers[model];
        uint32_t first_layer = 0, end_layer = layers;
        while (first_layer < layers && at_home(home, model, first_layer)) ++first_layer;
        while (end_layer > first_layer && at_home(home, model, end_layer - 1)) --end_layer;
        const double local = (layers - (end_layer - first_layer)) *
                             cluster_.host_home_call_s[size_t{home} * cluster_.models + model];
        if (first_layer == end_layer) return local;
        const auto bytes = static_cast<double>(demand_.host_hidden_bytes[model]);
        const uint32_t server = cluster_.host_home_server[home];
        const double radio = bytes / cluster_.host_home_up_bytes_per_s[home] +
                             bytes / cluster_.host_home_down_bytes_per_s[home];
        const double chain = chain_s(server, model, first_layer, end_layer);
        if (chain < infinity) return local + radio + chain;
        if (!model_.has_cloud()) return infinity;
        return local + radio + 2 * cluster_.host_cloud_s[server] +
               bytes / cluster_.host_cloud_up_bytes_per_s[server] +
               bytes / cluster_.host_cloud_down_bytes_per_s[server] +
               (end_layer - first_layer) * cluster_.host_cloud_call_s[model];
    }

    const latency_model &model_;
    const moorage_cluster &cluster_;
    const moorage_demand &demand_;
};

class ushape : public moorage::slim::planner {
public:
    static constexpr moorage::about about{
        .name = "ushape",
        .summary = "places whole layers, most popular models first",
        .source = "SlimCaching, Section VI-A (baseline: U-shaped, layer)"};

    explicit ushape(const moorage::setup &) {}

    void plan(const moorage_cluster &cluster, const moorage_demand &demand,
              std::span<const moorage_copy>, moorage::copies &copies) {
        latency_model model(cluster, demand);
        device_room room(model);
        facts_.clear();
        for (uint32_t n = 0; n < cluster.servers; ++n) {
            std::vector<double> asked(demand.models, 0);
            for (uint32_t h = 0; h < demand.homes; ++h)
                for (uint32_t m = 0; m < demand.models; ++m)
                    if (cluster.host_home_server[h] == n)
                        asked[m] += demand.host_home_tokens_per_s[h] *
                                    demand.host_home_model[size_t{h} * demand.models + m];
            std::vector<uint32_t> order(demand.models);
            std::iota(order.begin(), order.end(), 0u);
            std::stable_sort(order.begin(), order.end(),
                             [&](uint32_t a, uint32_t b) { return asked[a] > asked[b]; });
            for (const uint32_t m : order)
                for (uint32_t l = 0; asked[m] > 0 && l < demand.host_model_layers[m]; ++l)
                    place_layer(model, room, layer_of(demand, m, l), n);
        }
        moorage::slim::finish(about.name, model, room, copies, facts_);
        const double chained_s = ushape_latency(model).token_s();
        if (chained_s < infinity) facts_.add("ushape_s", chained_s);
    }
};

}  // namespace moorage::policies
