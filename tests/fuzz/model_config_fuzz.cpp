// model_config_fuzz.cpp - feeds any text to the reader of config.json. Checks beside the
// sanitizers: an accepted configuration keeps the promises that executors rely on, and a refusal is
// one line of text.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "core/model/model.h"

using namespace moorage::core;

namespace {

void require(bool holds) {
    if (!holds) std::abort();
}

void check_rope(const rope_config &rope, uint32_t head_dim) {
    require(rope.dimensions >= 2 && rope.dimensions % 2 == 0 && rope.dimensions <= head_dim);
    require(std::isfinite(rope.theta) && rope.theta > 1);
    require(std::isfinite(rope.factor) && rope.factor > 0 && rope.original_positions >= 1);
    if (rope.kind != rope_kind::longrope) return;
    require(rope.short_factor.size() == rope.dimensions / 2);
    require(rope.long_factor.size() == rope.dimensions / 2);
    for (const double factor : rope.long_factor) require(factor > 0);
}

void check_attention(const model_config &config) {
    const attention_config &attention = config.attention;
    require(attention.heads >= 1 && attention.kv_heads >= 1 &&
            attention.heads % attention.kv_heads == 0);
    require(attention.head_dim >= 1 && attention.value_dim >= 1);
    require(std::isfinite(attention.scale) && attention.scale > 0);
    require(attention.sliding.empty() || attention.sliding.size() == config.layers);
    require(attention.sliding.empty() == (attention.window == 0));
    if (attention.kind == attention_kind::latent)
        require(attention.kv_lora_rank >= 1 &&
                attention.head_dim == attention.nope_dim + config.rope.dimensions);
    require(config.kv_token_layer_bytes(2) > 0);
}

void check_router(const model_config &config) {
    const router_config &router = config.router;
    require(config.top_k >= 1 && config.top_k <= config.experts);
    require(router.groups >= 1 && config.experts % router.groups == 0);
    require(router.groups_chosen >= 1 && router.groups_chosen <= router.groups);
    require(router.groups_chosen * (config.experts / router.groups) >= config.top_k);
    require(router.group != group_rule::best_two || config.experts / router.groups >= 2);
    require(router.score != score_kind::sparsemixer || config.top_k == 2);
    require(std::isfinite(router.scale) && router.scale > 0);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const auto parsed =
        parse_model_config({reinterpret_cast<const char *>(data), size}, "fuzz/config.json");
    if (!parsed) {
        require(!parsed.failure().text.empty());
        require(parsed.failure().text.find('\n') == std::string::npos);
        return 0;
    }
    const model_config &config = *parsed;
    require(config.moe.size() == config.layers && !config.moe_layers().empty());
    require(config.moe_layers().size() == config.layers || config.dense_intermediate >= 1);
    require(config.hidden >= 1 && config.vocabulary >= 1 && config.moe_intermediate >= 1);
    check_rope(config.rope, config.attention.head_dim);
    check_attention(config);
    check_router(config);
    // Counts the bytes of every tensor: no product overflows.
    const auto refused = random_model(config, {.seed = 0, .distinct_experts = 1, .bytes_max = 1});
    require(!refused.ok());
    return 0;
}
