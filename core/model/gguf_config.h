// gguf_config.h - translates the metadata of a GGUF file into the keys of a config.json.
//
//   result<model_config> config = read_gguf_config(files);
//
// GGUF has no keys for some facts: which expert rows, biases, norms and heads exist. These are read
// from the tensors. The rules are those of the published models, even if llama.cpp has others: the
// sparse mixer and layer norm of Phi-3.5-MoE, the exact YaRN bounds of gpt-oss, DeepSeek-V2's
// groups scored by their best expert.
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
    // Queries and keys are stored so that RoPE rotates neighbours together.
    bool rotates_neighbours = false;
    // The name of the norm before the experts.
    const char *mlp_norm = "ffn_norm";
    bool normalises_weights = false;  // divides the weights of the chosen experts by their sum, if
                                      // no key says so
    bool has_window = false;     // sliding_window applies
    bool can_omit_head = false;  // llama.cpp reads files that have no head
};
// Looks up a model_type. Requires: a known one.
const gguf_architecture &gguf_architecture_of(std::string_view model);

result<model_config> read_gguf_config(const gguf_files &files);
// The same before parsing, as a config.json. Queries and keys are in the publisher's layout.
result<json> gguf_config_json(const gguf_files &files);
std::vector<std::string> known_gguf_architectures();

// The name of the norm before the experts in a layer: "ffn_norm" or "post_attention_norm".
const char *gguf_mlp_norm(const gguf_files &files);

}  // namespace moorage::core
