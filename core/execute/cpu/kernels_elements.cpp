// kernels_elements.cpp - norms, row by row.
#include "core/execute/cpu/kernels.h"

#include "core/execute/cpu/kernels_vector.h"

namespace moorage::core {

void normalise(norm_kind kind, const norm_weights &weights, float epsilon, uint32_t tokens,
               uint32_t width, const_rows input, rows output) {
    for (uint32_t token = 0; token < tokens; ++token)
        vector_elements().normalise(
            kind, weights.weight.data(), weights.bias.empty() ? nullptr : weights.bias.data(),
            epsilon, width, input.data + token * input.stride, output.data + token * output.stride);
}

}  // namespace moorage::core
