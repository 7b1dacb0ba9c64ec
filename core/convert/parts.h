// parts.h - rows of a model's parts in the other file kind's layout: rotated heads, stacked
// experts, separate or joined halves.
#pragma once

#include <cstdint>
#include <vector>

#include "core/convert/target.h"
#include "core/model/model_config.h"
#include "core/model/weights.h"

namespace moorage::core {

// The order of a head's rows decides which of its values RoPE rotates together.
enum class turning : uint8_t { as_is, to_neighbours, to_halves };
// `heads` of equal length, each with its rows reordered.
source_rows turned(const matrix &of, uint32_t heads, turning how);
std::vector<float> turned(std::span<const float> of, uint32_t heads, turning how);

// [experts, rows, columns]: one matrix of each expert.
source_rows stacked(const std::vector<mlp_weights> &of, matrix mlp_weights::*which);
// [experts, length]: one bias of each expert.
source_rows stacked(const std::vector<mlp_weights> &of, std::span<const float> mlp_weights::*which);
// Gate rows, then up rows, of each expert.
source_rows joined(const std::vector<mlp_weights> &of);
// Inputs x outputs. alternating(): [experts, hidden, 2 intermediate] with gate and up alternating.
// transposed_down(): [experts, intermediate, hidden].
source_rows alternating(const std::vector<mlp_weights> &of);
source_rows transposed_down(const std::vector<mlp_weights> &of);
source_rows alternating_bias(const std::vector<mlp_weights> &of);

// kv_b of latent attention, from whichever form the model has. Halves: the keys' [heads, rank,
// nope], transposed, and the values' [heads, value, rank]. Whole: [heads (nope + value), rank].
source_rows keys_half(const attention_weights &of, const attention_config &config);
source_rows values_half(const attention_weights &of, const attention_config &config);
source_rows whole_kv_b(const attention_weights &of, const attention_config &config);

}  // namespace moorage::core
