// rope.h - rotary position embedding: how fast each pair of a head's values rotates, for every kind
// of context scaling.
//
//   rope_rotations rotations(config.rope);
//   const rope_rotation &rotation = rotations.turn_for_length(40);  // of a sequence of 40 tokens
//   angle of pair i at position p: float(p) * rotation.frequencies[i]
//   cosine and sine times rotation.attention_factor
//
// Some scalings depend on the length of the sequence. When it grows beyond the trained length, all
// of its positions rotate differently, and earlier results belong to a shorter sequence.
//
// Pure functions, the same for every executor. Papers: RoFormer (plain), position interpolation
// (linear), NTK-aware scaling (dynamic), YaRN, LongRoPE; llama3 is that model's own rule.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/model/model_config.h"

namespace moorage::core {

struct rope_rotation {
    std::vector<float> frequencies;  // [dimensions / 2] radians from one position to the next
    float attention_factor = 1;      // factor of cosines and sines; scores get its square
};

// Identifies the rotation of a sequence of `length` tokens: equal numbers mean equal rotations. 0:
// the rotation of the trained length. Beyond it: 1, or the length itself if the rotation depends on
// it.
uint64_t rope_scaling_of(const rope_config &rope, uint64_t length);
// For a sequence of `context` tokens, which only dynamic and longrope use. Requires: even
// dimensions; for longrope, factors of dimensions / 2 entries.
rope_rotation compute_rope_rotation(const rope_config &rope, uint64_t context);

// The rotations for sequences of any lengths. Keeps the latest ones.
class rope_rotations {
public:
    // `rope` is borrowed.
    explicit rope_rotations(const rope_config &rope);
    // Valid until the next call.
    const rope_rotation &turn_for_length(uint64_t length);

private:
    const rope_config &rope_;
    rope_rotation trained_, beyond_;
    uint64_t beyond_scaling_ = 0;  // scaling of beyond_; 0: not computed yet
};

// cosines, sines [dimensions / 2] at `position`, multiplied by the attention factor.
void rope_angles(const rope_rotation &turn, uint32_t position, std::span<float> cosines,
                 std::span<float> sines);
// Rotates the first 2 * cosines.size() of `values`. interleaved: pairs (0, 1), (2, 3), ...;
// otherwise (0, n / 2), (1, n / 2 + 1), ...
void rope_rotate(bool interleaved, std::span<const float> cosines, std::span<const float> sines,
                 float *values);

}  // namespace moorage::core
