// peers.h - the other devices of a cluster, as the pipeline of one home sees them.
//
// Tokens enter at a home. If an expert is not in the home's fast memory, a device that has it may
// compute it. The tokens' hidden states go there, the outputs come back. Servers are numbered as in
// moorage_items. The home itself never offers.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/execute/executor.h"

namespace moorage::core {

// A server that has an expert, and the time to compute it there now, with the way.
struct remote_offer {
    uint32_t server;
    uint64_t total_ns;  // time of the expert alone
    uint64_t once_ns;   // part of it that is needed once for all experts of a step
};

// The experts of one step that one server is to compute.
struct call_request {
    uint32_t server;
    uint32_t layer;
    uint32_t tokens;                       // distinct tokens among those of the experts
    uint32_t step_tokens;                  // the same over all calls of the step
    std::span<const expert_work> experts;  // borrowed for the call
};

class peers {
public:
    virtual ~peers() = default;
    virtual uint32_t servers() const = 0;
    virtual std::span<const uint8_t> distances() const = 0;  // [servers] MOORAGE_DISTANCE_*
    virtual bool is_serial() const = 0;                      // MOORAGE_ITEMS_SERIAL
    // Whether the home's own host memory has the experts, so absent experts can be loaded.
    virtual bool can_load() const = 0;
    // Appends the servers that have the page, ascending. The server would compute `tokens` tokens,
    // of `step_tokens` in the whole step.
    virtual void offers(uint32_t page, uint32_t tokens, uint32_t step_tokens,
                        std::vector<remote_offer> &offers) = 0;
    // Starts a call. Calls of one step come together. Calls of the next step come after all of them
    // have completed. Every expert completes (event_kind::remote_expert) with its tag once its
    // output is back.
    virtual void call(const call_request &request) = 0;
};

}  // namespace moorage::core
