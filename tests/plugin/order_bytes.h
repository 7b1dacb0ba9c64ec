// order_bytes.h - places and versions of orders for the buffer; all are 0.
#pragma once

#include <cstdint>

namespace moorage::test {

// Requires: at most 65,536 orders.
inline uint8_t *order_bytes() {
    static uint8_t zeros[65536] = {};
    return zeros;
}

}  // namespace moorage::test
