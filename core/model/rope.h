// rope.h - rotary position embedding: how fast each pair of a head's values turns, for every kind
// of scaling to longer contexts.
//
//   rope_turns turns(config.rope);
//   const rope_turn &turn = turns.of_length(40);  // of a sequence of 40 tokens
//   angle of pair i at position p: float(p) * turn.frequencies[i]
//   cosine and sine times turn.attention_factor
//
// Some scalings follow the length of the sequence: all of its positions then turn otherwise when it
// grows beyond the trained length, and all that was computed of it belongs to a shorter sequence.
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

// Which turn a sequence of `length` tokens has: the same number, the same turn. 0: that of the
// trained length; 1, or the length itself, beyond it where the turn follows the length.
uint64_t rope_scaling_of(const rope_config &of, uint64_t length);
// Of a sequence of `context` tokens; read by dynamic and longrope alone. Requires: dimensions even,
// and for longrope factors of dimensions / 2 entries.
rope_turn rope_turn_of(const rope_config &of, uint64_t context);

// The turns of sequences of any lengths; those asked for last are kept.
class rope_turns {
public:
    // `of` is borrowed.
    explicit rope_turns(const rope_config &of);
    // Valid until the next call.
    const rope_turn &of_length(uint64_t length);

private:
    const rope_config &of_;
    rope_turn trained_, beyond_;
    uint64_t beyond_scaling_ = 0;  // of beyond_; 0: not made
};

// cosines, sines [dimensions / 2] at `position`, times the attention factor.
void rope_angles(const rope_turn &turn, uint32_t position, std::span<float> cosines,
                 std::span<float> sines);
// Turns the first 2 * cosines.size() of `values`; interleaved: pairs (0, 1), (2, 3), ...; otherwise
// (0, n / 2), (1, n / 2 + 1), ...
void rope_rotate(bool interleaved, std::span<const float> cosines, std::span<const float> sines,
                 float *values);

}  // namespace moorage::core
