// activation_form.h - the form to which activations are rounded before they meet weights of a
// format (decision 0036).
#pragma once

#include "core/config/arithmetic.h"
#include "core/model/weight_types.h"

namespace moorage::core {

enum class activation_form : uint8_t {
    floats,  // float32: not rounded
    codes,   // 8 bits and a scale for 16 columns; sums are integers (kernels_codes.h)
    bfloats  // bf16, if many tokens meet a panel and the processor multiplies pairs
};

// The usual form for each format. Other engines multiply int4 of safetensors, fp8, f16 and mxfp4 of
// gpt-oss with activations of 16 bits. Here these formats meet float32.
constexpr activation_form usual_form_of(weight_type type) {
    const weight_format &format = format_of(type);
    if (type == weight_type::bf16) return activation_form::bfloats;
    return format.order == value_order::groups && format.gguf_id != no_gguf_id
               ? activation_form::codes
               : activation_form::floats;
}
constexpr activation_form form_of(arithmetic mode, weight_type type) {
    const activation_form usual_form = usual_form_of(type);
    const bool rounds = mode == arithmetic::fast ||
                        (mode == arithmetic::by_format && usual_form == activation_form::codes);
    return rounds ? usual_form : activation_form::floats;
}

}  // namespace moorage::core
