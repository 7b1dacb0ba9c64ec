// kv_cache.cpp - where the keys and values of a model lie in one stretch of memory.
#include "core/execute/cpu/kv_cache.h"

#include "core/config/executors.h"

namespace moorage::core {
namespace {

static_assert(find_executor("cpu")->kv_value_bytes == sizeof(float));

bool is_latent(const model_config &config) {
    return config.attention.kind == attention_kind::latent;
}

size_t values_per_key(const model_config &config) {
    const attention_config &attention = config.attention;
    if (is_latent(config)) return size_t{attention.kv_lora_rank} + config.rope.dimensions;
    return size_t{attention.kv_heads} * attention.head_dim;
}

size_t values_per_value(const model_config &config) {
    return is_latent(config) ? 0 : size_t{config.attention.kv_heads} * config.attention.value_dim;
}

}  // namespace

double kv_cache::bytes_wanted(const model_config &config, const kv_limits &limits) {
    return static_cast<double>(values_per_key(config) + values_per_value(config)) * sizeof(float) *
           config.layers * limits.streams * limits.context_max;
}

result<kv_cache> kv_cache::create(const model_config &config, const kv_limits &limits) {
    kv_cache cache;
    cache.streams_ = limits.streams;
    cache.key_stride_ = values_per_key(config);
    cache.value_stride_ = is_latent(config) ? cache.key_stride_ : values_per_value(config);
    cache.stream_values_ = (values_per_key(config) + values_per_value(config)) * limits.context_max;
    cache.values_offset_ = is_latent(config) ? 0 : values_per_key(config) * limits.context_max;
    auto pages = memory_block::create(
        uint64_t{config.layers} * limits.streams * cache.stream_values_ * sizeof(float),
        "key and value caches");
    if (!pages) return pages.failure();
    cache.pages_ = std::move(*pages);
    return cache;
}

}  // namespace moorage::core
