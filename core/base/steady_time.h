// steady_time.h - nanoseconds of a clock that ignores changes of the time of day.
#pragma once

#include <chrono>
#include <cstdint>

namespace moorage::core {

inline uint64_t steady_ns() {
    return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                     std::chrono::steady_clock::now().time_since_epoch())
                                     .count());
}

}  // namespace moorage::core
