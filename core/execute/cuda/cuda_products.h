// cuda_products.h - products of many tokens by the library. Part of the one file that launches
// kernels.
#pragma once

#include "core/execute/gpu/arithmetic/tokens.h"
#include "core/execute/cuda/cuda_device.h"

namespace moorage::core::gpu {

// For weights that the matrix units take as they are. Runs two products of the library, for the
// high and the low halves of the inputs. So no precision is lost that our own kernels keep.
inline bool cuda_device::product_of_many(const product_item &item, uint32_t tokens) {
    const matrix &weights = item.weights;
    if (!high_ || format_of(weights.type).unit != unit_form::itself || weights.columns % 8 != 0 ||
        !aligned16(weights.data) || item.gather || item.continues || item.first != 0 ||
        item.output_first != 0 || item.input_stride != weights.columns ||
        item.end == product_end::activate)
        return false;
    if (notes_.failed() || !enter()) return true;
    const uint64_t count = uint64_t{tokens} * weights.columns;
    launch(halve_kernel{item.input, high_, low_, count},
           static_cast<uint32_t>((count + halve_kernel::threads - 1) / halve_kernel::threads), 1, 1,
           0);
    const float alpha = 1, beta = item.end == product_end::add ? 1.0f : 0.0f;
    const int rows = static_cast<int>(item.rows), columns = static_cast<int>(weights.columns);
    for (const bool low : {false, true})
        MOORAGE_CUDA_CHECK(
            notes_, cublasGemmEx(library_, CUBLAS_OP_T, CUBLAS_OP_N, rows, static_cast<int>(tokens),
                                 columns, &item.multiplier, weights.data, CUDA_R_16BF,
                                 static_cast<int>(weights.row_bytes / 2), low ? low_ : high_,
                                 CUDA_R_16BF, columns, low ? &alpha : &beta, item.output,
                                 CUDA_R_32F, static_cast<int>(item.output_stride),
                                 CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT));
    if (item.bias)
        launch(bias_kernel{item.bias, item.output, item.rows, item.output_stride, item.multiplier},
               ceil_div(item.rows, bias_kernel::threads), tokens, 1, 0);
    return true;
}

}  // namespace moorage::core::gpu
