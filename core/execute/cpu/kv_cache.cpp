// kv_cache.cpp - where the keys and values of a model lie in one stretch of memory.
#include "core/execute/cpu/kv_cache.h"

#include "core/config/executors.h"

namespace moorage::core {
namespace {

static_assert(find_executor("cpu")->kv_value_bytes == sizeof(float));

bool latent(const model_config &of) { return of.attention.kind == attention_kind::latent; }

size_t key_values(const model_config &of) {
    const attention_config &attention = of.attention;
    if (latent(of)) return size_t{attention.kv_lora_rank} + of.rope.dimensions;
    return size_t{attention.kv_heads} * attention.head_dim;
}

size_t value_values(const model_config &of) {
    return latent(of) ? 0 : size_t{of.attention.kv_heads} * of.attention.value_dim;
}

}  // namespace

double kv_cache::bytes_wanted(const model_config &of, const kv_limits &limits) {
    return static_cast<double>(key_values(of) + value_values(of)) * sizeof(float) * of.layers *
           limits.streams * limits.context_max;
}

result<kv_cache> kv_cache::create(const model_config &of, const kv_limits &limits) {
    kv_cache made;
    made.streams_ = limits.streams;
    made.key_stride_ = key_values(of);
    made.value_stride_ = latent(of) ? made.key_stride_ : value_values(of);
    made.stream_values_ = (key_values(of) + value_values(of)) * limits.context_max;
    made.values_offset_ = latent(of) ? 0 : key_values(of) * limits.context_max;
    auto pages = memory_block::create(
        uint64_t{of.layers} * limits.streams * made.stream_values_ * sizeof(float),
        "key and value caches");
    if (!pages) return pages.failure();
    made.pages_ = std::move(*pages);
    return made;
}

}  // namespace moorage::core
