// ideal_executor.cpp - completions in the order of their times.
#include "core/cluster/ideal_executor.h"

#include <algorithm>

namespace moorage::core {

void ideal_executor::add(event_kind kind, uint32_t tag, uint64_t duration_ns, uint8_t segments) {
    waiting_.push_back({now_ + duration_ns, order_++, {kind, tag, duration_ns, segments}});
    std::push_heap(waiting_.begin(), waiting_.end(), later);
    busy_.gpu += duration_ns;
}

std::optional<completion> ideal_executor::step() {
    account();
    std::pop_heap(waiting_.begin(), waiting_.end(), later);
    const completion done = waiting_.back().what;
    waiting_.pop_back();
    return done;
}

}  // namespace moorage::core
