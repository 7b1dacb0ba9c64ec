// policy_clock.cpp - sums up what calls took.
#include "core/pipeline/policy_clock.h"

#include <utility>

#include "core/base/text.h"

namespace moorage::core {

uint64_t policy_clock::untold_ns() {
    uint64_t all_ns = 0;
    for (const one &of : all_) all_ns += call_ns_ != 0 ? of.times->calls * call_ns_ : of.times->ns;
    return all_ns - std::exchange(told_ns_, all_ns);
}

void policy_clock::report(std::vector<policy_time> &out) const {
    for (const one &of : all_)
        for (size_t i = 0; i < entry_points; ++i) {
            const entry_times::sum &sum = of.times->of[i];
            if (sum.calls == 0) continue;
            const uint64_t ns = call_ns_ != 0 ? sum.calls * call_ns_ : sum.ns;
            const auto which = static_cast<entry_point>(i);
            out.push_back({of.policy, format("{} {}", kind_of(which), name_of(which)), sum.calls,
                           static_cast<double>(ns) / 1e6});
        }
}

}  // namespace moorage::core
