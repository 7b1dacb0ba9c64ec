// peers.h - the other devices of a cluster, as the pipeline of one home sees them.
//
// A home is what tokens enter at. An expert that is not in its fast memory may be computed by a
// device that has it: the tokens' hidden states go there, the outputs come back. Servers are
// numbered as in moorage_items; the home itself never offers.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/execute/executor.h"

namespace moorage::core {

// A server that has an expert, and what computing it there would take now, the way included.
struct remote_offer {
    uint32_t server;
    uint64_t all_ns;   // alone
    uint64_t once_ns;  // of it, what is taken once for all experts of a step
};

// The experts of one step that one server is to compute.
struct remote_call {
    uint32_t server;
    uint32_t layer;
    uint32_t tokens;                       // distinct ones among those of the experts
    uint32_t all_tokens;                   // among those of all calls of the step
    std::span<const expert_work> experts;  // borrowed for the call
};

class peers {
public:
    virtual ~peers() = default;
    virtual uint32_t servers() const = 0;
    virtual std::span<const uint8_t> distances() const = 0;  // [servers] MOORAGE_DISTANCE_*
    virtual bool serial() const = 0;                         // MOORAGE_ITEMS_SERIAL
    // Whether the home's own host memory has the experts, so that what is absent can be loaded.
    virtual bool loads() const = 0;
    // Appends the servers that have the page, ascending. `tokens` are to be computed by it, of
    // `step_tokens` that the step has in all.
    virtual void offers(uint32_t page, uint32_t tokens, uint32_t step_tokens,
                        std::vector<remote_offer> &out) = 0;
    // Calls of one step come together, those of the next after all of them have completed. Every
    // expert completes (event_kind::remote_expert) with its tag once its output is back.
    virtual void call(const remote_call &work) = 0;
};

}  // namespace moorage::core
