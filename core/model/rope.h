// rope.h - rotary position embedding: how fast each pair of a head's values turns, for every kind
// of scaling to longer contexts.
//
//   rope_turn turn = rope_turn_of(config.rope, context);
//   angle of pair i at position p: float(p) * turn.frequencies[i]
//   cosine and sine times turn.attention_factor
//
// Pure functions, the same for every executor. Papers: RoFormer (plain), position interpolation
// (linear), NTK-aware scaling (dynamic), YaRN, LongRoPE; llama3 is that model's own rule.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/model/model_config.h"

namespace moorage::core {

struct rope_turn {
    std::vector<float> frequencies;  // [dimensions / 2] radians from one position to the next
    float attention_factor = 1;      // of cosines and sines, so of scores its square
};

// Whether the turn depends on how long the context is: then the one of a pass follows the last
// position of its stream, as the reference does.
bool rope_follows_context(const rope_config &of);
// `context`: positions of the stream up to the last one of the pass; read by dynamic and longrope
// alone. Requires: dimensions even, and for longrope factors of dimensions / 2 entries.
rope_turn rope_turn_of(const rope_config &of, uint64_t context);

// cosines, sines [dimensions / 2] at `position`, times the attention factor.
void rope_angles(const rope_turn &turn, uint32_t position, std::span<float> cosines,
                 std::span<float> sines);
// Turns the first 2 * cosines.size() of `values`; interleaved: pairs (0, 1), (2, 3), ...; otherwise
// (0, n / 2), (1, n / 2 + 1), ...
void rope_rotate(bool interleaved, std::span<const float> cosines, std::span<const float> sines,
                 float *values);

}  // namespace moorage::core
