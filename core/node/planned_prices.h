// planned_prices.h - what a call takes by the cluster's file, not by what calls took: so that nodes
// choose among holders as an emulated run of the same file does, call by call.
//
// Links and servers as they are described, all of them idle. `moorage node --prices file` uses it
// to hold real nodes against the emulator; serving is done at measured prices.
#pragma once

#include <cstdint>
#include <vector>

#include "core/execute/peers.h"
#include "core/placement/scene.h"

namespace moorage::core {

struct planned_price {  // of a server, from one home
    double there_row_ns = 0, there_ns = 0, back_row_ns = 0, back_ns = 0;
    double call_ns = 0, token_ns = 0;  // computing one token, and each further one
    bool queues = false;               // one after another there, not side by side
    bool returns_each = false;
};

// [servers] from server `home`; of a server with several devices, its first.
std::vector<planned_price> planned_prices(const scene &of, uint32_t home);
// For `tokens` of one expert, as the emulator's call_prices.
remote_offer offer_at(const planned_price &price, uint32_t server, uint32_t tokens);

}  // namespace moorage::core
