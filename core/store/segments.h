// segments.h - the two segments that this host cuts experts into, where it cuts them.
#pragma once

#include <cstdint>

#include "moorage/base.h"

namespace moorage::core {

inline constexpr uint8_t first_segment = MOORAGE_SEGMENT(0, 2);
inline constexpr uint8_t last_segment = MOORAGE_SEGMENT(1, 2);

// Whatever bits of the last one somebody names, it is meant as a whole.
constexpr uint8_t whole_segments(uint8_t mask) {
    return mask & last_segment ? mask | last_segment : mask;
}

}  // namespace moorage::core
