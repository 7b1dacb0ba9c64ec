// arithmetic.h - [run] arithmetic: how products of activations with weights are computed.
#pragma once

#include <cstdint>

namespace moorage::core {

enum class arithmetic : uint8_t {
    by_format,  // not given: exact or fast, as the weights' format is usually run
    exact,      // activations are float32
    fast        // activations are rounded to the type that the weights' format is made for
};
// "exact" or "fast"; null for by_format.
constexpr const char *name_of(arithmetic mode) {
    return mode == arithmetic::exact ? "exact" : mode == arithmetic::fast ? "fast" : nullptr;
}
}  // namespace moorage::core
