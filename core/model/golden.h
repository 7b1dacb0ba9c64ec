// golden.h - a model's reference results: golden.safetensors beside its weights.
//
// It holds input_ids [n], logits [n, vocabulary], hidden_states [layers + 1, n, hidden] and greedy
// [m]. Hidden states are the embedding, the input of every further layer, and the last layer's
// output after the final norm; they may be missing. Greedy is the first `golden_prompt` ids and
// their continuation. Integers are i32, the rest is f32.
//
// For NAME.gguf, or NAME-00001-of-00003.gguf, the file is NAME.ref.safetensors. There `greedy`
// continues all of input_ids. Logits in float64 arithmetic are preferred to others, and those of
// the published model to those of the file's makers (published_float64_logits, float64_logits).
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

#include "core/base/result.h"
#include "core/model/model_config.h"

namespace moorage::core {

inline constexpr uint32_t golden_prompt = 8;  // ids before the greedy continuation

struct golden_data {
    std::vector<int32_t> input_ids;
    std::vector<int32_t> greedy;  // the ids after the prompt
    std::vector<float> logits, hidden_states;
    uint32_t prompt = golden_prompt;  // how many of input_ids come before `greedy`
};

// For the model in `directory`, or in a GGUF file. Checked against its configuration.
result<golden_data> read_golden(const std::filesystem::path &directory, const model_config &config);

// max |actual - expected| / max |expected|: the relative error of a whole tensor. Infinite if a
// value is not finite.
double relative_error(std::span<const float> actual, std::span<const float> expected);

}  // namespace moorage::core
