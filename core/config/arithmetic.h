// arithmetic.h - [run] arithmetic: how products of activations with weights are computed.
#pragma once

#include <cstdint>

namespace moorage::core {

enum class arithmetic : uint8_t {
    by_format,  // where nothing is said: exact or fast, as the format of the weights is used
    exact,      // activations are float32
    fast        // and are rounded to what the format of the weights was made for
};
// "exact", "fast"; null: nothing was said.
constexpr const char *name_of(arithmetic mode) {
    return mode == arithmetic::exact ? "exact" : mode == arithmetic::fast ? "fast" : nullptr;
}
}  // namespace moorage::core
