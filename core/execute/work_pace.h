// work_pace.h - how a copy on a device's link slows the device's computing, in virtual time.
//
// While a copy towards the device is under way, the device's work takes 1 + slowdown times as long
// (device_profile::busy_link_slowdown, decision 0049). So the remaining part of the work under way
// is kept. Its end is computed anew whenever the link begins or ceases to be busy. Policies that
// decide before the work and the host that draws a token after it are not slowed.
//
// Work is counted in parts of a nanosecond, so that sums are exact. An idle nanosecond does 1000 +
// s parts and a busy one 1000, where s is the slowdown in thousandths. Ends that fall between two
// nanoseconds are rounded up.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "core/execute/operations.h"

namespace moorage::core {

class work_pace {
public:
    // Requires: slowdown is a multiple of 0.001, >= 0.
    explicit work_pace(double slowdown)
        : idle_parts_(busy_parts + static_cast<uint64_t>(std::llround(slowdown * busy_parts))) {}

    // The front of `on` has just been started. Its ends are those for an idle link.
    void begin(stream &on, bool busy) const {
        if (idle_parts_ == busy_parts) return;
        on.paced_ns = on.decided_until_ns;
        on.launch_parts = (on.launched_until_ns - on.decided_until_ns) * idle_parts_;
        on.work_parts = (on.computed_until_ns - on.decided_until_ns) * idle_parts_;
        if (busy) set_ends(on, busy_parts);
    }
    // From now on a copy is under way (`busy`), or none is any more.
    void change(stream &on, uint64_t now_ns, bool busy) const {
        if (idle_parts_ == busy_parts || !on.running()) return;
        if (now_ns > on.paced_ns) {
            const uint64_t done = (now_ns - on.paced_ns) * (busy ? idle_parts_ : busy_parts);
            on.launch_parts -= std::min(on.launch_parts, done);
            on.work_parts -= std::min(on.work_parts, done);
            on.paced_ns = now_ns;
        }
        if (on.work_parts != 0) set_ends(on, busy ? busy_parts : idle_parts_);
    }

private:
    static constexpr uint64_t busy_parts = 1000;

    // Each nanosecond does `parts` of the work.
    static void set_ends(stream &on, uint64_t parts) {
        const uint64_t drawing_ns = on.due_ns - on.computed_until_ns;
        if (on.launch_parts != 0)
            on.launched_until_ns = on.paced_ns + (on.launch_parts + parts - 1) / parts;
        on.computed_until_ns = on.paced_ns + (on.work_parts + parts - 1) / parts;
        on.due_ns = on.computed_until_ns + drawing_ns;
    }

    const uint64_t idle_parts_;
};

}  // namespace moorage::core
