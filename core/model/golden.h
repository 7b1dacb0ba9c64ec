// golden.h - a model's reference results: golden.safetensors beside its weights.
//
// input_ids [n], logits [n, vocabulary], hidden_states [layers + 1, n, hidden] (the embedding, the
// input of every further layer, the last layer's output after the final norm), greedy [m] (the
// first `golden_prompt` ids and what follows them); integers i32, the rest f32. Hidden states may
// be missing. Beside NAME.gguf, or NAME-00001-of-00003.gguf, lies NAME.ref.safetensors: there
// `greedy` follows all of input_ids, and logits in float64 arithmetic count before others, of the
// published model before those of the file's makers (published_float64_logits, float64_logits).
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
    std::vector<int32_t> greedy;  // what follows the prompt, without it
    std::vector<float> logits, hidden_states;
    uint32_t prompt = golden_prompt;  // how many of input_ids `greedy` follows
};

// Of the model in `directory`, or in a GGUF file, checked against its configuration.
result<golden_data> read_golden(const std::filesystem::path &directory, const model_config &config);

// max |is - expected| / max |expected|: the relative error of a whole tensor. Infinite when a value
// is not finite.
double relative_error(std::span<const float> is, std::span<const float> expected);

}  // namespace moorage::core
