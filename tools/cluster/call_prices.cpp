// call_prices.cpp - finds the nearest holders, adds up the way there, the queue and the way back.
#include "tools/cluster/call_prices.h"

#include <algorithm>
#include <utility>

#include "moorage/dispatch.h"

namespace moorage::core {

call_prices::call_prices(cluster_state &state, const home_place &place)
    : state_(state), home_(place) {
    const cluster_arrays &cluster = state.cluster_scene.cluster;
    const demand_arrays &demand = state.cluster_scene.demand;
    const uint32_t pages = demand.model_layers[place.model] * demand.model_experts[place.model];
    nearest_.resize(pages);
    nearest_devices_.resize(size_t{pages} * state.options.offers_max);
    const uint32_t devices = state.devices();
    distances_.assign(devices + cluster.has_cloud(), MOORAGE_DISTANCE_OTHER);
    if (cluster.has_cloud()) distances_[devices] = MOORAGE_DISTANCE_CLOUD;
    network &links = state.links;
    const uint32_t entry = cluster.home_server[place.home];
    routes_.resize(distances_.size());
    for (uint32_t server = 0; server < routes_.size(); ++server) {
        const bool cloud = server == devices;
        const uint32_t endpoint =
            cloud ? links.cloud() : links.server(cluster.device_server[server]);
        if (!cloud && endpoint == entry) distances_[server] = MOORAGE_DISTANCE_OWN;
        routes_[server] = {make_crossing(entry, endpoint), make_crossing(endpoint, entry),
                           state.compute_ns(server, place.model, 1)};
    }
    if (links.home(place.home) == links.server(entry)) return;
    uplink_ = make_crossing(links.home(place.home), links.server(entry));
    downlink_ = make_crossing(links.server(entry), links.home(place.home));
}

call_prices::channel_time call_prices::make_crossing(uint32_t source, uint32_t target) const {
    network &links = state_.links;
    const uint64_t bytes = state_.cluster_scene.demand.hidden_bytes[home_.model];
    channel_time idle_crossing;
    idle_crossing.channel = links.channel(source, target);
    if (idle_crossing.channel == MOORAGE_NONE) return idle_crossing;
    idle_crossing.ns = links.alone_ns(idle_crossing.channel, bytes);
    idle_crossing.further_token_ns =
        static_cast<double>(links.alone_ns(idle_crossing.channel, 2 * bytes) - idle_crossing.ns);
    return idle_crossing;
}

// The devices that are considered for a page, found again where its holders have changed.
std::span<const uint32_t> call_prices::near(uint32_t page) {
    const uint32_t expert = state_.cluster_scene.demand.model_first[home_.model] + page;
    const uint32_t most = state_.options.offers_max;
    nearest &known = nearest_[page];
    uint32_t *devices = nearest_devices_.data() + size_t{page} * most;
    if (known.version != state_.holders.version(expert)) {
        known = {state_.holders.version(expert), 0};
        const uint32_t device_count = state_.devices();
        const uint32_t first =
            home_.device == MOORAGE_NONE ? home_.home % device_count : home_.device;
        const auto rank = [&](uint32_t device) {
            const server_route &route = routes_[device];
            return std::pair(route.outbound.ns + route.inbound.ns + route.compute_ns,
                             (device + device_count - first) % device_count);
        };
        for (const uint32_t device : state_.holders.devices_of(expert)) {
            if (device == home_.device || !routes_[device].is_linked()) continue;
            if (is_own(device)) {  // as a server with GPUs, and a real node, compute what they hold
                devices[0] = device;
                known.count = 1;
                break;
            }
            uint32_t position = known.count;
            while (position > 0 && rank(device) < rank(devices[position - 1])) --position;
            if (position == most) continue;
            if (known.count < most) ++known.count;
            std::copy_backward(devices + position, devices + known.count - 1,
                               devices + known.count);
            devices[position] = device;
        }
        std::sort(devices, devices + known.count);
    }
    return {devices, known.count};
}

void call_prices::offers(uint32_t page, uint32_t tokens, std::vector<remote_offer> &offers) {
    for (const uint32_t device : near(page)) offers.push_back(offer(device, tokens));
    if (state_.cluster_scene.cluster.has_cloud()) offers.push_back(offer(state_.devices(), tokens));
}

remote_offer call_prices::offer(uint32_t server, uint32_t tokens) const {
    const server_route &route = routes_[server];
    const double further_tokens = tokens - 1.0;
    uint64_t there_ns = state_.links.activation_backlog_ns(route.outbound.channel, state_.now_ns) +
                        route.outbound.time_ns(further_tokens);
    uint64_t back_ns = route.inbound.time_ns(further_tokens);
    // Calls run one after another. The way up and down is the same, whichever servers are called.
    if (is_user() && !state_.serial()) {
        there_ns += uplink_.time_ns(further_tokens);
        back_ns += downlink_.time_ns(further_tokens);
    }
    const uint64_t compute_ns =
        tokens == 1 ? route.compute_ns : state_.compute_ns(server, home_.model, tokens);
    const emulator *gpu = state_.gpu(server);
    const uint64_t queue_ns = gpu ? gpu->device_backlog_ns() : 0;
    const uint64_t beside_ns = gpu ? 0 : compute_ns;  // side by side with its other experts
    return {server, there_ns + queue_ns + compute_ns + back_ns,
            there_ns + queue_ns + beside_ns + (state_.returns_each() ? 0 : back_ns)};
}

}  // namespace moorage::core
