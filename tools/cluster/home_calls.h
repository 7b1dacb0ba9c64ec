// home_calls.h - the calls of one home's step, over emulated links.
//
// A call has three parts in a row: the hidden states go there, the experts are computed, the
// outputs come back, as a sum or one by one. Calls go out all at once (Prism), or one after
// another, latency included, and their outputs go down to the user at the end (SlimCaching, Eq. 7
// and 11). A user's hidden states go up to its server once, and come down from there. This class
// does not know who computes. message_crossed() says that a call has reached the place where it is
// to be computed. The caller reports each result to computed().
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tools/cluster/call_prices.h"
#include "tools/cluster/live_cluster.h"

namespace moorage::core {

class home_calls {
public:
    struct pending_call {
        uint32_t server = 0, tokens = 0;
        uint32_t uncomputed = 0;     // experts not computed yet
        uint32_t not_at_server = 0;  // outputs (one, or one an expert) that have not reached the
                                     // home's server
        uint32_t not_at_home = 0;  // outputs that have not reached the home
        std::vector<expert_work> experts;
        std::vector<uint32_t> ready;  // outputs that wait for earlier ones
        bool returning = false;       // an output is on its way to the home's server
    };

    // All borrowed. `number` of the home comes back in the tags of its messages.
    home_calls(cluster_state &state, const call_prices &prices, uint32_t model, uint32_t number);

    uint32_t number() const { return number_; }
    void add(const call_request &work);
    // All calls of the step were added. Sends them, if there are any.
    void send_calls();

    static uint32_t home_of(uint64_t tag) { return tag >> 36 & 0xffffff; }
    static uint32_t call_of(uint64_t tag) { return tag >> 20 & 0xffff; }
    enum class call_place : uint8_t { nothing, server, home };
    // A message with this tag has crossed its channel. Sends the next messages. The call is now at
    // the server that computes it, or its outputs are home: arrived_experts() says which.
    call_place message_crossed(uint64_t tag);
    const pending_call &call_at(uint32_t call) const { return calls_[call]; }
    // An expert has been computed, by its place in the call. Returns whether it was the last of the
    // call.
    bool computed(uint32_t call, uint32_t expert);

    std::span<const expert_work> arrived_experts() const { return arrived_experts_; }
    uint64_t called_ns() const { return called_ns_; }  // when the calls of the step were made
    const call_figures &figures() const { return figures_; }

private:
    // The direction of a message. Hidden states go up to the home's server or to a server that
    // computes. An output goes to the home's server or down to the home.
    enum class message_direction : uint64_t { server, home_server, up, down };
    static constexpr uint32_t sum = 0xfffff;  // in place of an expert: the weighted sum of all

    void send(uint32_t channel, uint32_t tokens, message_direction direction, uint32_t call,
              uint32_t output);
    void send_output(uint32_t channel, message_direction direction, uint32_t call, uint32_t output);
    void send_next_call();
    void send_back(uint32_t call, uint32_t output);
    call_place output_at_server(uint32_t call, uint32_t output);
    void send_all_down();
    call_place output_at_home(uint32_t call, uint32_t output);

    cluster_state &state_;
    const call_prices &prices_;
    const uint64_t hidden_bytes_;
    const uint32_t number_;
    const bool serial_, returns_each_;
    std::vector<pending_call> calls_;  // calls of the step: the first count_
    uint32_t count_ = 0;
    std::vector<uint32_t> order_;  // the order of sending: as added, or by distance
    bool under_way_ = false;
    size_t sent_ = 0, ended_ = 0;
    uint32_t all_tokens_ = 0;
    uint64_t called_ns_ = 0;
    std::span<const expert_work> arrived_experts_;
    call_figures figures_;
};

}  // namespace moorage::core
