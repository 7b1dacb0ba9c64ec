// gguf_config.h - the metadata of a GGUF file in the words of a config.json.
//
//   result<model_config> config = read_gguf_config(files);
//
// What GGUF has no key for (which expert rows, biases, norms and heads there are) is asked of the
// tensors. The rules are those of the published models, also where llama.cpp has others: the sparse
// mixer and layer norm of Phi-3.5-MoE, the exact YaRN bounds of gpt-oss, DeepSeek-V2's groups
// scored by their best expert.
#pragma once

#include <string>
#include <vector>

#include "core/base/result.h"
#include "core/model/gguf.h"
#include "core/model/model_config.h"

namespace moorage::core {

result<model_config> read_gguf_config(const gguf_files &of);
std::vector<std::string> known_gguf_architectures();

// The row of feed-forward norms in a layer: "ffn_norm" or "post_attention_norm".
const char *gguf_mlp_norm(const gguf_files &of);

}  // namespace moorage::core
