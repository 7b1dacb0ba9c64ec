// segments.h - the two segments of a split expert.
#pragma once

#include <cstdint>

#include "moorage/base.h"

namespace moorage::core {

inline constexpr uint8_t first_segment = MOORAGE_SEGMENT(0, 2);
inline constexpr uint8_t last_segment = MOORAGE_SEGMENT(1, 2);

// If any bit of the last segment is set, the whole last segment is meant.
constexpr uint8_t whole_segments(uint8_t mask) {
    return mask & last_segment ? mask | last_segment : mask;
}

}  // namespace moorage::core
