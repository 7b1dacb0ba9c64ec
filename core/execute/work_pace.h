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

    // The front of `stream` has just been started. Its ends are those for an idle link.
    void begin(stream &stream, bool busy) const {
        if (idle_parts_ == busy_parts) return;
        stream.paced_ns = stream.decided_until_ns;
        stream.launch_parts = (stream.launched_until_ns - stream.decided_until_ns) * idle_parts_;
        stream.work_parts = (stream.computed_until_ns - stream.decided_until_ns) * idle_parts_;
        if (busy) set_ends(stream, busy_parts);
    }
    // busy: a copy is under way from now on; otherwise none is.
    void change(stream &stream, uint64_t now_ns, bool busy) const {
        if (idle_parts_ == busy_parts || !stream.running()) return;
        if (now_ns > stream.paced_ns) {
            const uint64_t done_parts =
                (now_ns - stream.paced_ns) * (busy ? idle_parts_ : busy_parts);
            stream.launch_parts -= std::min(stream.launch_parts, done_parts);
            stream.work_parts -= std::min(stream.work_parts, done_parts);
            stream.paced_ns = now_ns;
        }
        if (stream.work_parts != 0) set_ends(stream, busy ? busy_parts : idle_parts_);
    }

private:
    static constexpr uint64_t busy_parts = 1000;

    // Each nanosecond does `parts` of the work.
    static void set_ends(stream &stream, uint64_t parts) {
        const uint64_t drawing_ns = stream.due_ns - stream.computed_until_ns;
        if (stream.launch_parts != 0)
            stream.launched_until_ns = stream.paced_ns + (stream.launch_parts + parts - 1) / parts;
        stream.computed_until_ns = stream.paced_ns + (stream.work_parts + parts - 1) / parts;
        stream.due_ns = stream.computed_until_ns + drawing_ns;
    }

    const uint64_t idle_parts_;
};

}  // namespace moorage::core
