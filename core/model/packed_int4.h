// packed_int4.h - four-bit weights of GPTQ, AWQ and compressed-tensors, repacked for the kernels:
// rows of outputs, and groups with their scale and zero point (weight_types.h).
//
//   packed_int4 packed{.kind = packing_kind::awq, .rows = 768, .columns = 2048};
//   packed.codes = qweight; packed.zeros = qzeros; packed.scales = scales;
//   if (auto layout = layout_of(packed)) pack(packed, *layout, memory, group_of);
//
// A value is scale * (code - zero point). Only this product rounds.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/base/result.h"
#include "core/base/safetensors.h"
#include "core/model/model_config.h"
#include "core/model/weights.h"

namespace moorage::core {

// The stored tensors of one matrix. The caller must check their shapes.
struct packed_int4 {
    packing_kind kind = packing_kind::gptq;
    uint32_t rows = 0, columns = 0, groups = 1;
    uint32_t group = 0;           // columns that share a scale, in order; 0: all
    bool zeros_less_one = false;  // gptq
    const tensor *codes = nullptr, *scales = nullptr;
    const tensor *zeros = nullptr;   // null: 8 everywhere
    std::vector<uint32_t> group_of;  // [columns]; empty: groups in order
};

// The result of pack(): its format and its memory.
struct int4_layout {
    weight_type type = weight_type::int4_ordered;
    uint64_t data_bytes = 0, scale_bytes = 0;
};
// Fails if columns or groups fit no layout.
result<int4_layout> layout_of(const packed_int4 &packed);
// Packs into `target`, which has the layout's size and is aligned to a float. The caller keeps
// `group_of` alive.
matrix pack(const packed_int4 &packed, const int4_layout &layout, std::byte *target,
            const uint32_t *group_of);

}  // namespace moorage::core
