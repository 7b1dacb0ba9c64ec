// ideal_executor.cpp - completions in the order of their times.
#include "core/cluster/ideal_executor.h"

#include <algorithm>

namespace moorage::core {

void ideal_executor::add(const completion &what) {
    waiting_.push_back({now_ + what.duration_ns, order_++, what});
    std::push_heap(waiting_.begin(), waiting_.end(), later);
    busy_.gpu += what.duration_ns;
}

std::optional<completion> ideal_executor::step() {
    settle();
    std::pop_heap(waiting_.begin(), waiting_.end(), later);
    const completion done = waiting_.back().what;
    waiting_.pop_back();
    return done;
}

}  // namespace moorage::core
