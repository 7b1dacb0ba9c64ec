// kernels_elements.cpp - norms, row by row.
#include "core/execute/cpu/kernels.h"

#include "core/execute/cpu/kernels_vector.h"

namespace moorage::core {

void normalise(norm_kind kind, const norm_weights &by, float epsilon, uint32_t tokens,
               uint32_t width, const_rows input, rows output) {
    for (uint32_t token = 0; token < tokens; ++token)
        vector_elements().normalise(
            kind, by.weight.data(), by.bias.empty() ? nullptr : by.bias.data(), epsilon, width,
            input.data + token * input.stride, output.data + token * output.stride);
}

}  // namespace moorage::core
