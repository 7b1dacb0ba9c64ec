// parts.h - rows of a model's parts as the other kind of file has them: heads turned, experts
// stacked, halves apart or together.
#pragma once

#include <cstdint>
#include <vector>

#include "core/convert/target.h"
#include "core/model/model_config.h"
#include "core/model/weights.h"

namespace moorage::core {

// Which values of a head turn together is a matter of the order of its rows.
enum class turning : uint8_t { as_is, to_neighbours, to_halves };
// `heads` of equal length, each turned.
source_rows turned(const matrix &of, uint32_t heads, turning how);
std::vector<float> turned(std::span<const float> of, uint32_t heads, turning how);

// [experts, rows, columns] of one matrix of each.
source_rows stacked(const std::vector<mlp_weights> &of, matrix mlp_weights::*which);
// [experts, length] of one bias of each.
source_rows stacked(const std::vector<mlp_weights> &of, std::span<const float> mlp_weights::*which);
// Gate rows, then up rows, of each expert.
source_rows joined(const std::vector<mlp_weights> &of);
// Inputs x outputs: [experts, hidden, 2 intermediate], gate and up alternating, and
// [experts, intermediate, hidden].
source_rows alternating(const std::vector<mlp_weights> &of);
source_rows transposed_down(const std::vector<mlp_weights> &of);
source_rows alternating_bias(const std::vector<mlp_weights> &of);

// kv_b of latent attention: its halves [heads, rank, nope], that of the keys turned round, and
// [heads, value, rank]; or the whole [heads (nope + value), rank]; from whichever there is.
source_rows keys_half(const attention_weights &of, const attention_config &config);
source_rows values_half(const attention_weights &of, const attention_config &config);
source_rows whole_kv_b(const attention_weights &of, const attention_config &config);

}  // namespace moorage::core
