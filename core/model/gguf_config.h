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
#include <string_view>
#include <vector>

#include "core/base/json_fwd.h"
#include "core/base/result.h"
#include "core/model/gguf.h"
#include "core/model/model_config.h"

namespace moorage::core {

struct gguf_architecture {
    const char *name;   // general.architecture
    const char *model;  // model_type of config.json
    // Queries and keys are stored so that neighbours turn together.
    bool neighbours = false;
    // The norm before the experts.
    const char *mlp_norm = "ffn_norm";
    bool normalises = false;  // weights of the chosen experts, where no key says it
    bool slides = false;      // sliding_window means what it says
    bool ties = false;        // llama.cpp reads files without a head of their own
};
// Of a model_type. Requires: a known one.
const gguf_architecture &gguf_architecture_of(std::string_view model);

result<model_config> read_gguf_config(const gguf_files &of);
// The same before it is read: a config.json, whose queries and keys are as the publisher has them.
result<json> gguf_config_words(const gguf_files &of);
std::vector<std::string> known_gguf_architectures();

// The row of feed-forward norms in a layer: "ffn_norm" or "post_attention_norm".
const char *gguf_mlp_norm(const gguf_files &of);

}  // namespace moorage::core
