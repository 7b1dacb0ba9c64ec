// server_work.h - the work of a server's device for others: operations of its own queue, between
// those of its home. Each operation carries a number that leads to its call.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "core/pipeline/pipeline.h"

namespace moorage::core {

// One expert of a call that a home has made.
struct call_expert {
    uint32_t home, call, expert;  // numbers of the home and of its call, place in the call
    uint32_t page;
};

// Calls under way, by numbers that are used again.
class numbered_calls {
public:
    uint32_t add(const call_expert &expert) {
        if (free_.empty()) {
            experts_.push_back(expert);
            return static_cast<uint32_t>(experts_.size() - 1);
        }
        const uint32_t number = free_.back();
        free_.pop_back();
        experts_[number] = expert;
        return number;
    }
    call_expert take(uint32_t number) {
        free_.push_back(number);
        return experts_[number];
    }

private:
    std::vector<call_expert> experts_;
    std::vector<uint32_t> free_;
};

class server_work {
public:
    explicit server_work(uint32_t pages) : promised_(pages) {}
    void attach(pipeline *line) { line_ = line; }  // borrowed

    // A call for the page has been made. Its copy stays until the call is computed.
    void promise(uint32_t page) { ++promised_[page]; }
    bool promised(uint32_t page) const { return promised_[page] != 0; }
    // The hidden states are there.
    void serve(const call_expert &called, expert_work work) {
        work.tag = for_others | under_way_.add(called);
        if (!line_->serve(work)) held_back_.push_back(work);
    }
    // A transfer has ended, so there may be room for another.
    void ask_again() {
        if (held_back_.empty()) return;
        const expert_work work = held_back_.front();
        held_back_.pop_front();
        if (!line_->serve(work)) held_back_.push_back(work);
    }
    // Whether the completion belongs to this work.
    static bool is_of(const completion &done) {
        return done.kind == event_kind::device_expert && (done.tag & for_others) != 0;
    }
    call_expert computed(const completion &done) {
        const call_expert called = under_way_.take(done.tag & ~for_others);
        --promised_[called.page];
        ++count_;
        return called;
    }
    uint64_t count() const { return count_; }  // experts computed

private:
    static constexpr uint32_t for_others = 1u << 31;  // in the tags of this work

    pipeline *line_ = nullptr;
    std::vector<uint32_t> promised_;  // [pages] calls under way
    numbered_calls under_way_;
    std::deque<expert_work> held_back_;  // work that found no transfer
    uint64_t count_ = 0;
};

}  // namespace moorage::core
