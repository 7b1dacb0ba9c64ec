// home_calls.cpp - takes calls from place to place, and says where they are.
#include "tools/cluster/home_calls.h"

#include <algorithm>

namespace moorage::core {

home_calls::home_calls(cluster_state &state, const call_prices &prices, uint32_t model,
                       uint32_t number)
    : state_(state),
      prices_(prices),
      hidden_bytes_(state.cluster_scene.demand.hidden_bytes[model]),
      number_(number),
      serial_(state.serial()),
      returns_each_(state.returns_each()) {}

void home_calls::add(const call_request &work) {
    if (count_ == 0) called_ns_ = state_.now_ns;
    if (count_ == calls_.size()) calls_.emplace_back();
    order_.push_back(count_);
    pending_call &pending = calls_[count_++];
    const auto experts = static_cast<uint32_t>(work.experts.size());
    pending.server = work.server;
    pending.tokens = work.tokens;
    pending.uncomputed = experts;
    pending.not_at_server = pending.not_at_home = returns_each_ ? experts : 1;
    pending.experts.assign(work.experts.begin(), work.experts.end());
    all_tokens_ = work.step_tokens;
    figures_.calls += prices_.leaves_server(pending.server);
}

void home_calls::send_calls() {
    if (count_ == 0 || under_way_) return;
    under_way_ = true;
    sent_ = ended_ = 0;
    if (serial_)
        std::ranges::stable_sort(
            order_, {}, [&](uint32_t call) { return prices_.distances()[calls_[call].server]; });
    if (prices_.is_user())
        send(prices_.up_channel(), all_tokens_, message_direction::up, 0, 0);
    else
        send_next_call();
}

void home_calls::send(uint32_t channel, uint32_t tokens, message_direction direction, uint32_t call,
                      uint32_t output) {
    const uint64_t tag =
        uint64_t(direction) << 60 | uint64_t{number_} << 36 | uint64_t{call} << 20 | output;
    state_.links.send(channel, {traffic::activation, tokens * hidden_bytes_, tag}, state_.now_ns);
}

void home_calls::send_output(uint32_t channel, message_direction direction, uint32_t call,
                             uint32_t output) {
    const pending_call &pending = calls_[call];
    send(channel, output == sum ? pending.tokens : pending.experts[output].tokens, direction, call,
         output);
}

home_calls::call_place home_calls::message_crossed(uint64_t tag) {
    const uint32_t call = call_of(tag);
    const auto output = static_cast<uint32_t>(tag & sum);
    switch (static_cast<message_direction>(tag >> 60)) {
        case message_direction::up:
            send_next_call();
            return call_place::nothing;
        case message_direction::server:
            return call_place::server;
        case message_direction::home_server:
            return output_at_server(call, output);
        default:
            return output_at_home(call, output);
    }
}

// The next server, or all of them where they are called at once.
void home_calls::send_next_call() {
    while (sent_ < order_.size()) {
        const uint32_t call = order_[sent_++];
        send(prices_.outbound_channel(calls_[call].server), calls_[call].tokens,
             message_direction::server, call, 0);
        if (serial_) return;
    }
}

bool home_calls::computed(uint32_t call, uint32_t expert) {
    pending_call &pending = calls_[call];
    const bool whole = --pending.uncomputed == 0;
    if (!returns_each_ && !whole) return false;
    const uint32_t output = returns_each_ ? expert : sum;
    if (serial_ && pending.returning)
        pending.ready.push_back(output);
    else
        send_back(call, output);
    return whole;
}

void home_calls::send_back(uint32_t call, uint32_t output) {
    calls_[call].returning = true;
    send_output(prices_.inbound_channel(calls_[call].server), message_direction::home_server, call,
                output);
}

// An output is at the home's server.
home_calls::call_place home_calls::output_at_server(uint32_t call, uint32_t output) {
    pending_call &pending = calls_[call];
    pending.returning = false;
    if (!pending.ready.empty()) {
        const uint32_t next = pending.ready.front();
        pending.ready.erase(pending.ready.begin());
        send_back(call, next);
    }
    const bool whole = --pending.not_at_server == 0;
    if (prices_.is_user() && !serial_)
        send_output(prices_.down_channel(), message_direction::down, call, output);
    if (serial_ && whole) {
        if (sent_ < order_.size())
            send_next_call();
        else if (prices_.is_user())
            send_all_down();
    }
    return prices_.is_user() ? call_place::nothing : output_at_home(call, output);
}

void home_calls::send_all_down() {
    for (const uint32_t call : order_)
        for (uint32_t i = 0; i < calls_[call].not_at_home; ++i)
            send_output(prices_.down_channel(), message_direction::down, call,
                        returns_each_ ? i : sum);
}

home_calls::call_place home_calls::output_at_home(uint32_t call, uint32_t output) {
    pending_call &pending = calls_[call];
    arrived_experts_ = pending.experts;
    if (output != sum) arrived_experts_ = arrived_experts_.subspan(output, 1);
    if (--pending.not_at_home != 0) return call_place::home;
    if (prices_.leaves_server(pending.server)) {
        figures_.ns += state_.now_ns - called_ns_;
        figures_.experts += pending.experts.size();
    }
    if (++ended_ == count_) {
        count_ = 0;
        order_.clear();
        under_way_ = false;
    }
    return call_place::home;
}

}  // namespace moorage::core
