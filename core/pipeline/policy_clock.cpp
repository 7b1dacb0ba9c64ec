// policy_clock.cpp - sums up what calls took.
#include "core/pipeline/policy_clock.h"

#include <utility>

#include "core/base/text.h"

namespace moorage::core {

uint64_t policy_clock::unreported_ns() {
    uint64_t all_ns = 0;
    for (const timed_policy &policy : policies_)
        all_ns += call_ns_ != 0 ? policy.times->calls * call_ns_ : policy.times->ns;
    return all_ns - std::exchange(reported_ns_, all_ns);
}

void policy_clock::report(std::vector<policy_time> &times) const {
    for (const timed_policy &policy : policies_)
        for (size_t i = 0; i < entry_points; ++i) {
            const entry_times::sum &sum = policy.times->by_entry[i];
            if (sum.calls == 0) continue;
            const uint64_t ns = call_ns_ != 0 ? sum.calls * call_ns_ : sum.ns;
            const auto entry = static_cast<entry_point>(i);
            times.push_back({policy.name, format("{} {}", kind_of(entry), name_of(entry)),
                             sum.calls, static_cast<double>(ns) / 1e6});
        }
}

}  // namespace moorage::core
