// shape_writer.cpp - writes the keys that profile_file.cpp reads.
#include "core/config/shape_writer.h"

#include "core/base/text.h"
#include "core/config/toml_text.h"

namespace moorage::core {

std::string to_toml(const model_shape &shape, const std::string &geometry,
                    const std::string &sizes) {
    std::string text = "kind = \"model\"\nname = " + quoted(shape.name) + "\naliases = []\n";
    const auto add = [&](const char *key, auto value) { text += format("{} = {}\n", key, value); };
    const auto add_real = [&](const char *key, double value) {
        if (value != 0) text += format("{} = {}\n", key, value);
    };
    add("layers", shape.layers);
    add("moe_layers", shape.moe_layers);
    add("experts", shape.experts);
    add("top_k", shape.top_k);
    add("hidden", shape.hidden);
    add("moe_intermediate", shape.moe_intermediate);
    add("matrices", shape.matrices);
    add_real("weight_bytes", shape.weight_bytes);
    add("expert_bytes", shape.expert_bytes);
    add("non_expert_bytes", shape.non_expert_bytes);
    add("dense_bytes", shape.dense_bytes);
    add("kv_token_layer_bytes", shape.kv_token_layer_bytes);
    add("vocabulary", shape.vocabulary);
    add_real("expert_bits", shape.expert_bits);
    add_real("dense_bits", shape.dense_bits);
    add_real("head_bits", shape.head_bits);
    add_real("embedding_bits", shape.embedding_bits);
    add("products", shape.products);
    add_real("context_operations", shape.context_operations);
    if (shape.state_layer_bytes != 0) add("state_layer_bytes", shape.state_layer_bytes);
    return text + "\n[sources]\ngeometry = " + quoted(geometry) + "\nsizes = " + quoted(sizes) +
           "\n";
}

}  // namespace moorage::core
