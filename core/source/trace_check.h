// trace_check.h - checks the values of a trace's tensors chunk by chunk.
//
// Fast checks tell only whether a chunk is right. A wrong chunk is checked again, slowly, to find
// the first wrong value.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <span>
#include <string>

#include "core/base/result.h"
#include "core/base/safetensors.h"

namespace moorage::core {

// Ids have 16 bits, and every table of a run has an entry per layer and expert.
inline constexpr uint64_t trace_experts_max = 65536, trace_pages_max = uint64_t{1} << 24;

// The value at `index` of a tensor's bytes, at any alignment.
template <class Value>
Value element(const std::byte *data, uint64_t index) {
    Value value;
    std::memcpy(&value, data + index * sizeof(Value), sizeof(Value));
    return value;
}

// Called when the bytes up to `end` of a tensor are checked, so that they can leave memory.
using checked_up_to = std::function<void(const std::byte *begin, const std::byte *end)>;

// Checks that ids of `tensor` [tokens, layers, per_group] are below `experts` and distinct in their
// group. Requires: u8 or u16, all dimensions above 0, experts <= 65536.
status check_ids(const tensor &tensor, uint32_t experts, const checked_up_to &done);
// Checks that all values of `tensor` [tokens, layers, n] are finite. Requires: f16 or f32.
status check_finite(const tensor &tensor, const checked_up_to &done);

}  // namespace moorage::core
