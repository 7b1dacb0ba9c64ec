// call_prices.cpp - finds the nearest holders, adds up the way there, the queue and the way back.
#include "core/cluster/call_prices.h"

#include <algorithm>
#include <utility>

#include "moorage/dispatch.h"

namespace moorage::core {

call_prices::call_prices(cluster_state &all, const home_place &of) : all_(all), home_(of) {
    const cluster_arrays &cluster = all.of.cluster;
    const demand_arrays &demand = all.of.demand;
    const uint32_t pages = demand.model_layers[of.model] * demand.model_experts[of.model];
    nearest_.resize(pages);
    nearest_devices_.resize(size_t{pages} * all.how.offers_max);
    const uint32_t devices = all.devices();
    distances_.assign(devices + cluster.has_cloud(), MOORAGE_DISTANCE_OTHER);
    if (cluster.has_cloud()) distances_[devices] = MOORAGE_DISTANCE_CLOUD;
    network &links = all.links;
    const uint32_t entry = cluster.home_server[of.home];
    ways_.resize(distances_.size());
    for (uint32_t server = 0; server < ways_.size(); ++server) {
        const bool cloud = server == devices;
        const uint32_t there = cloud ? links.cloud() : links.server(cluster.device_server[server]);
        if (!cloud && there == entry) distances_[server] = MOORAGE_DISTANCE_OWN;
        ways_[server] = {make_crossing(entry, there), make_crossing(there, entry),
                         all.compute_ns(server, of.model, 1)};
    }
    if (links.home(of.home) == links.server(entry)) return;
    up_ = make_crossing(links.home(of.home), links.server(entry));
    down_ = make_crossing(links.server(entry), links.home(of.home));
}

call_prices::crossing call_prices::make_crossing(uint32_t from, uint32_t to) const {
    network &links = all_.links;
    const uint64_t bytes = all_.of.demand.hidden_bytes[home_.model];
    crossing made;
    made.channel = links.channel(from, to);
    if (made.channel == MOORAGE_NONE) return made;
    made.ns = links.alone_ns(made.channel, bytes);
    made.more_ns = static_cast<double>(links.alone_ns(made.channel, 2 * bytes) - made.ns);
    return made;
}

// The devices that are considered for a page, found again where its holders have changed.
std::span<const uint32_t> call_prices::near(uint32_t page) {
    const uint32_t expert = all_.of.demand.model_first[home_.model] + page;
    const uint32_t most = all_.how.offers_max;
    nearest &known = nearest_[page];
    uint32_t *devices = nearest_devices_.data() + size_t{page} * most;
    if (known.version != all_.holders.version(expert)) {
        known = {all_.holders.version(expert), 0};
        const uint32_t all = all_.devices();
        const uint32_t first = home_.device == MOORAGE_NONE ? home_.home % all : home_.device;
        const auto rank = [&](uint32_t one) {
            const way &to = ways_[one];
            return std::pair(to.there.ns + to.back.ns + to.compute_ns, (one + all - first) % all);
        };
        for (const uint32_t one : all_.holders.of(expert)) {
            if (one == home_.device || !ways_[one].linked()) continue;
            if (own(one)) {  // as a server with GPUs, and a real node, compute what they hold
                devices[0] = one;
                known.count = 1;
                break;
            }
            uint32_t at = known.count;
            while (at > 0 && rank(one) < rank(devices[at - 1])) --at;
            if (at == most) continue;
            if (known.count < most) ++known.count;
            std::copy_backward(devices + at, devices + known.count - 1, devices + known.count);
            devices[at] = one;
        }
        std::sort(devices, devices + known.count);
    }
    return {devices, known.count};
}

void call_prices::offers(uint32_t page, uint32_t tokens, std::vector<remote_offer> &out) {
    for (const uint32_t device : near(page)) out.push_back(offer(device, tokens));
    if (all_.of.cluster.has_cloud()) out.push_back(offer(all_.devices(), tokens));
}

remote_offer call_prices::offer(uint32_t server, uint32_t tokens) const {
    const way &to = ways_[server];
    const double more = tokens - 1.0;
    uint64_t there_ns =
        all_.links.activation_backlog_ns(to.there.channel, all_.now_ns) + to.there.of(more);
    uint64_t back_ns = to.back.of(more);
    // Calls run one after another. The way up and down is the same, whichever servers are called.
    if (user() && !all_.serial()) {
        there_ns += up_.of(more);
        back_ns += down_.of(more);
    }
    const uint64_t compute_ns =
        tokens == 1 ? to.compute_ns : all_.compute_ns(server, home_.model, tokens);
    const emulator *gpu = all_.gpu(server);
    const uint64_t queue_ns = gpu ? gpu->gpu_backlog_ns() : 0;
    const uint64_t beside_ns = gpu ? 0 : compute_ns;  // side by side with its other experts
    return {server, there_ns + queue_ns + compute_ns + back_ns,
            there_ns + queue_ns + beside_ns + (all_.returns_each() ? 0 : back_ns)};
}

}  // namespace moorage::core
