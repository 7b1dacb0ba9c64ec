// planned_prices.h - the prices of calls by the cluster's file, not by measured calls. With them
// nodes choose among holders as an emulated run of the same file does, call by call.
//
// Links and servers are as described, all of them idle. `moorage node --prices file` uses it to
// compare real nodes with the emulator. Serving uses measured prices.
#pragma once

#include <cstdint>
#include <vector>

#include "core/execute/peers.h"
#include "tools/placement/scene.h"

namespace moorage::core {

struct planned_price {  // for a server, from one home
    double there_row_ns = 0, there_ns = 0, back_row_ns = 0, back_ns = 0;
    double call_ns = 0, token_ns = 0;  // computing one token, and each further one
    bool queues = false;               // calls queue there, and do not run side by side
    bool returns_each = false;
};

// [servers] from server `home`. For a server with several devices, the price of its first.
std::vector<planned_price> planned_prices(const scene &cluster_scene, uint32_t home);
// The offer for `tokens` of one expert, as in the emulator's call_prices.
remote_offer offer_at(const planned_price &price, uint32_t server, uint32_t tokens);

}  // namespace moorage::core
