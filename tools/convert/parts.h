// parts.h - rows of a model's parts in the other file kind's layout: rotated heads, stacked
// experts, separate or joined halves.
#pragma once

#include <cstdint>
#include <vector>

#include "tools/convert/target.h"
#include "core/model/model_config.h"
#include "core/model/weights.h"

namespace moorage::core {

// The order of a head's rows decides which of its values RoPE rotates together.
enum class head_order : uint8_t { as_is, to_neighbours, to_halves };
// `heads` of equal length, each with its rows reordered.
source_rows reorder_heads(const matrix &weights, uint32_t heads, head_order order);
std::vector<float> reorder_heads(std::span<const float> values, uint32_t heads, head_order order);

// [experts, rows, columns]: one matrix of each expert.
source_rows stack_experts(const std::vector<mlp_weights> &experts, matrix mlp_weights::*member);
// [experts, length]: one bias of each expert.
source_rows stack_experts(const std::vector<mlp_weights> &experts,
                          std::span<const float> mlp_weights::*member);
// Gate rows, then up rows, of each expert.
source_rows join_gate_up(const std::vector<mlp_weights> &experts);
// Inputs x outputs. alternate_gate_up(): [experts, hidden, 2 intermediate], gate and up in turn.
// transpose_down(): [experts, intermediate, hidden].
source_rows alternate_gate_up(const std::vector<mlp_weights> &experts);
source_rows transpose_down(const std::vector<mlp_weights> &experts);
source_rows alternate_bias(const std::vector<mlp_weights> &experts);

// kv_b of latent attention, from whichever form the model has. Halves: the keys' [heads, rank,
// nope], transposed, and the values' [heads, value, rank]. Whole: [heads (nope + value), rank].
source_rows key_half_rows(const attention_weights &attention, const attention_config &config);
source_rows value_half_rows(const attention_weights &attention, const attention_config &config);
source_rows joined_kv_b_rows(const attention_weights &attention, const attention_config &config);

}  // namespace moorage::core
