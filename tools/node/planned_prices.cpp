// planned_prices.cpp - reads links and devices of a scene.
#include "tools/node/planned_prices.h"

#include <algorithm>
#include <cmath>

#include "moorage/placement.h"

namespace moorage::core {

namespace {

uint64_t ceil_ns(double ns) { return static_cast<uint64_t>(std::ceil(std::max(0.0, ns) - 1e-6)); }

}  // namespace

std::vector<planned_price> planned_prices(const scene &cluster_scene, uint32_t home) {
    const cluster_arrays &cluster = cluster_scene.cluster;
    std::vector<planned_price> prices(cluster.servers);
    const auto row = static_cast<double>(cluster_scene.demand.hidden_bytes[0]);
    for (uint32_t server = 0; server < cluster.servers; ++server) {
        planned_price &price = prices[server];
        const size_t outward_link = size_t{home} * cluster.servers + server;
        const size_t return_link = size_t{server} * cluster.servers + home;
        price.there_row_ns = row / cluster.link_bytes_per_s[outward_link] * 1e9;
        price.there_ns = cluster.link_s[outward_link] * 1e9;
        price.back_row_ns = row / cluster.link_bytes_per_s[return_link] * 1e9;
        price.back_ns = cluster.link_s[return_link] * 1e9;
        price.returns_each = (cluster.flags & MOORAGE_RETURNS_EACH) != 0;
        for (uint32_t device = cluster.devices(); device-- > 0;) {
            if (cluster.device_server[device] != server) continue;
            price.call_ns = cluster.device_call_s[size_t{device} * cluster.models] * 1e9;
            price.token_ns = cluster.device_token_s[size_t{device} * cluster.models] * 1e9;
            price.queues = !cluster_scene.hardware[device].id.empty();
        }
    }
    return prices;
}

remote_offer offer_at(const planned_price &price, uint32_t server, uint32_t tokens) {
    const uint64_t there_ns = ceil_ns(price.there_row_ns * tokens + price.there_ns);
    const uint64_t back_ns = ceil_ns(price.back_row_ns * tokens + price.back_ns);
    const uint64_t compute_ns = ceil_ns(price.call_ns + price.token_ns * (tokens - 1.0));
    const uint64_t beside_ns = price.queues ? 0 : compute_ns;
    return {server, there_ns + compute_ns + back_ns,
            there_ns + beside_ns + (price.returns_each ? 0 : back_ns)};
}

}  // namespace moorage::core
