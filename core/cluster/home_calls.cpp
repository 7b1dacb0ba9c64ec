// home_calls.cpp - takes calls from place to place, and says where they are.
#include "core/cluster/home_calls.h"

#include <algorithm>

namespace moorage::core {

home_calls::home_calls(cluster_state &all, const call_prices &ways, uint32_t model, uint32_t number)
    : all_(all),
      ways_(ways),
      hidden_bytes_(all.of.demand.hidden_bytes[model]),
      number_(number),
      serial_(all.serial()),
      returns_each_(all.returns_each()) {}

void home_calls::add(const remote_call &work) {
    if (count_ == 0) called_ns_ = all_.now_ns;
    if (count_ == calls_.size()) calls_.emplace_back();
    order_.push_back(count_);
    one_call &one = calls_[count_++];
    const auto experts = static_cast<uint32_t>(work.experts.size());
    one.server = work.server;
    one.tokens = work.tokens;
    one.open = experts;
    one.away = one.absent = returns_each_ ? experts : 1;
    one.experts.assign(work.experts.begin(), work.experts.end());
    all_tokens_ = work.all_tokens;
    figures_.calls += ways_.leaves(one.server);
}

void home_calls::set_out() {
    if (count_ == 0 || under_way_) return;
    under_way_ = true;
    sent_ = ended_ = 0;
    if (serial_)
        std::ranges::stable_sort(
            order_, {}, [&](uint32_t call) { return ways_.distances()[calls_[call].server]; });
    if (ways_.user())
        send(ways_.up(), all_tokens_, bound::up, 0, 0);
    else
        call_next();
}

void home_calls::send(uint32_t channel, uint32_t tokens, bound where, uint32_t call,
                      uint32_t output) {
    const uint64_t tag =
        uint64_t(where) << 60 | uint64_t{number_} << 36 | uint64_t{call} << 20 | output;
    all_.links.send(channel, {traffic::activation, tokens * hidden_bytes_, tag}, all_.now_ns);
}

void home_calls::send_output(uint32_t channel, bound where, uint32_t call, uint32_t output) {
    const one_call &one = calls_[call];
    send(channel, output == sum ? one.tokens : one.experts[output].tokens, where, call, output);
}

home_calls::reached home_calls::crossed(uint64_t tag) {
    const uint32_t call = call_of(tag);
    const auto output = static_cast<uint32_t>(tag & sum);
    switch (static_cast<bound>(tag >> 60)) {
        case bound::up:
            call_next();
            return reached::nothing;
        case bound::server:
            return reached::server;
        case bound::home_server:
            return at_server(call, output);
        default:
            return at_home(call, output);
    }
}

// The next server, or all of them where they are called at once.
void home_calls::call_next() {
    while (sent_ < order_.size()) {
        const uint32_t call = order_[sent_++];
        send(ways_.there(calls_[call].server), calls_[call].tokens, bound::server, call, 0);
        if (serial_) return;
    }
}

bool home_calls::computed(uint32_t call, uint32_t expert) {
    one_call &one = calls_[call];
    const bool whole = --one.open == 0;
    if (!returns_each_ && !whole) return false;
    const uint32_t output = returns_each_ ? expert : sum;
    if (serial_ && one.returning)
        one.ready.push_back(output);
    else
        send_back(call, output);
    return whole;
}

void home_calls::send_back(uint32_t call, uint32_t output) {
    calls_[call].returning = true;
    send_output(ways_.back(calls_[call].server), bound::home_server, call, output);
}

// An output is at the home's server.
home_calls::reached home_calls::at_server(uint32_t call, uint32_t output) {
    one_call &one = calls_[call];
    one.returning = false;
    if (!one.ready.empty()) {
        const uint32_t next = one.ready.front();
        one.ready.erase(one.ready.begin());
        send_back(call, next);
    }
    const bool whole = --one.away == 0;
    if (ways_.user() && !serial_) send_output(ways_.down(), bound::down, call, output);
    if (serial_ && whole) {
        if (sent_ < order_.size())
            call_next();
        else if (ways_.user())
            send_all_down();
    }
    return ways_.user() ? reached::nothing : at_home(call, output);
}

void home_calls::send_all_down() {
    for (const uint32_t call : order_)
        for (uint32_t i = 0; i < calls_[call].absent; ++i)
            send_output(ways_.down(), bound::down, call, returns_each_ ? i : sum);
}

home_calls::reached home_calls::at_home(uint32_t call, uint32_t output) {
    one_call &one = calls_[call];
    came_home_ = one.experts;
    if (output != sum) came_home_ = came_home_.subspan(output, 1);
    if (--one.absent != 0) return reached::home;
    if (ways_.leaves(one.server)) {
        figures_.ns += all_.now_ns - called_ns_;
        figures_.experts += one.experts.size();
    }
    if (++ended_ == count_) {
        count_ = 0;
        order_.clear();
        under_way_ = false;
    }
    return reached::home;
}

}  // namespace moorage::core
