// arithmetic.h - [run] arithmetic: how products of activations with weights are computed.
#pragma once

#include <cstdint>

namespace moorage::core {

enum class arithmetic : uint8_t {
    by_format,  // where nothing is said: exact or fast, as the format of the weights is used
    exact,      // activations are float32
    fast        // and are rounded to what the format of the weights was made for
};
inline constexpr const char *arithmetic_names[] = {"by_format", "exact", "fast"};

}  // namespace moorage::core
