// planned_prices.cpp - reads links and devices of a scene.
#include "core/node/planned_prices.h"

#include <algorithm>
#include <cmath>

#include "moorage/placement.h"

namespace moorage::core {

namespace {

uint64_t up(double ns) { return static_cast<uint64_t>(std::ceil(std::max(0.0, ns) - 1e-6)); }

}  // namespace

std::vector<planned_price> planned_prices(const scene &of, uint32_t home) {
    const cluster_arrays &all = of.cluster;
    std::vector<planned_price> made(all.servers);
    const auto row = static_cast<double>(of.demand.hidden_bytes[0]);
    for (uint32_t server = 0; server < all.servers; ++server) {
        planned_price &one = made[server];
        const size_t there = size_t{home} * all.servers + server;
        const size_t back = size_t{server} * all.servers + home;
        one.there_row_ns = row / all.link_bytes_per_s[there] * 1e9;
        one.there_ns = all.link_s[there] * 1e9;
        one.back_row_ns = row / all.link_bytes_per_s[back] * 1e9;
        one.back_ns = all.link_s[back] * 1e9;
        one.returns_each = (all.flags & MOORAGE_RETURNS_EACH) != 0;
        for (uint32_t device = all.devices(); device-- > 0;) {
            if (all.device_server[device] != server) continue;
            one.call_ns = all.device_call_s[size_t{device} * all.models] * 1e9;
            one.token_ns = all.device_token_s[size_t{device} * all.models] * 1e9;
            one.queues = !of.hardware[device].id.empty();
        }
    }
    return made;
}

remote_offer offer_at(const planned_price &price, uint32_t server, uint32_t tokens) {
    const uint64_t there_ns = up(price.there_row_ns * tokens + price.there_ns);
    const uint64_t back_ns = up(price.back_row_ns * tokens + price.back_ns);
    const uint64_t compute_ns = up(price.call_ns + price.token_ns * (tokens - 1.0));
    const uint64_t beside_ns = price.queues ? 0 : compute_ns;
    return {server, there_ns + compute_ns + back_ns,
            there_ns + beside_ns + (price.returns_each ? 0 : back_ns)};
}

}  // namespace moorage::core
