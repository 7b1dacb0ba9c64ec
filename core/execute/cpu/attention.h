// attention.h - the attention block of a layer on the CPU, grouped and latent, for any mix of
// streams in a pass.
//
// The keys and values of all tokens of a pass enter the caches before any token attends. So a chunk
// of a prompt is causal within itself. Latent attention decodes without unfolding the cache. The
// key half of kv_b is moved to the query, the value half to the output (DeepSeek-V2, 2.1.2,
// absorbed matrices).
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "core/execute/cpu/kernels.h"
#include "core/execute/cpu/kv_cache.h"
#include "core/model/model.h"
#include "core/model/rope.h"
#include "core/source/source.h"

namespace moorage::core {

// Calls body(token) for every token, in parallel if that is worth the overhead.
template <class Body>
void each_token(thread_pool &pool, uint32_t tokens, const Body &body) {
    constexpr uint32_t worth_a_round = 8;
    if (tokens >= worth_a_round)
        pool.parallel_for(tokens, [&](uint32_t token) { body(token); });
    else
        for (uint32_t token = 0; token < tokens; ++token) body(token);
}

class attention_block {
public:
    // `model` and `pool` are borrowed.
    attention_block(const model &model, thread_pool &pool, kv_cache cache, uint32_t tokens_max);
    ~attention_block();

    void begin(const pass &tokens);
    // output[t] = attention of the layer over input[t], with output projection and its bias. Both
    // are [tokens, hidden]. `layer` counts all layers. `input` is normalised.
    void operator()(uint32_t layer, const_rows input, rows output);
    uint64_t memory_bytes() const;
    // Floats of scratch for one token.
    static uint64_t scratch_values(const model_config &config);

private:
    void grouped(uint32_t layer, const attention_weights &weights, const_rows input);
    void latent(uint32_t layer, const attention_weights &weights, const_rows input);
    void attend_to_cache(uint32_t layer, const attention_call &shape);
    void finish_heads(uint32_t token, const attention_weights &weights, uint32_t layer);
    void finish_latent(uint32_t token, const attention_weights &weights, uint32_t layer);
    void rotate(uint32_t token, float *values) const;

    // The halves of kv_b, per head.
    struct latent_matrices {
        std::vector<matrix> key_up;    // [heads] of [kv_lora_rank, nope]: transposed
        std::vector<matrix> value_up;  // [heads] of [value_dim, kv_lora_rank]
    };
    void absorb_keys(const model_weights &weights);
    void absorb(const matrix &source, std::byte *target, latent_matrices &matrices) const;

    const model &model_;
    const model_config &config_;
    thread_pool &pool_;
    kv_cache cache_;

    uint32_t tokens_ = 0;
    std::vector<uint32_t> streams_, positions_, starts_, window_starts_;  // [tokens]
    std::vector<float> cosines_, sines_;                                  // [tokens, pairs]
    rope_rotations turns_;

    // Per token: projected queries, keys and values. Latent: queries moved to the compressed space,
    // and outputs in it. mixed_: outputs of the heads.
    std::vector<float> query_, key_, value_, query_low_, absorbed_, latent_out_, mixed_;
    std::vector<const float *> key_caches_, value_caches_;  // [tokens] of the layer at hand
    std::vector<product> products_;                         // [heads]
    std::vector<latent_matrices> latent_;                   // [layers]
    std::vector<std::byte> absorbed_bytes_;                 // memory of the matrices from absorb()
};

}  // namespace moorage::core
