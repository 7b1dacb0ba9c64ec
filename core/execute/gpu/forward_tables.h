// forward_tables.h - the inside of forward.h: the tables of a pass that the host gives the GPU, and
// the scores that the GPU gives the host.
#pragma once

#include "core/execute/gpu/forward.h"

namespace moorage::core::gpu {

// Puts words in the place where recorded launches read them. Short tables go with a launch, because
// then no copy engine has to start.
template <class Device>
void forward<Device>::bring(uint32_t *device, const uint32_t *pinned, uint64_t words) {
    if (words > words_kernel::words_max) return device_.copy_in(device, pinned, words * 4);
    words_kernel kernel;
    std::copy_n(pinned, words, kernel.words);
    kernel.count = static_cast<uint32_t>(words);
    kernel.output = device;
    launch(kernel, 1);
}

// Brings the table of the route, if no launch has taken it along.
template <class Device>
void forward<Device>::bring_pending() {
    if (pending_words_ != 0) bring(b_.route, b_.pinned_route, pending_words_);
    pending_words_ = 0;
}
template <class Device>
words_of_launch forward<Device>::take_pending() {
    words_of_launch out;
    std::copy_n(b_.pinned_route, pending_words_, out.words);
    out.count = pending_words_;
    out.output = b_.route;
    pending_words_ = 0;
    return out;
}

template <class Device>
void forward<Device>::fill_pass(const pass &tokens) {
    b_.tokens = tokens_;
    uint32_t *words = b_.pinned_pass;
    uint32_t *ids = words, *streams = ids + tokens_, *positions = streams + tokens_;
    uint32_t *rows = positions + tokens_;
    attend_tile *tiles = reinterpret_cast<attend_tile *>(rows + tokens_);
    float *cosines = reinterpret_cast<float *>(rows + 3ull * tokens_);
    float *sines = cosines + uint64_t{b_.pairs} * tokens_;
    const uint32_t group = config_.attention.kind == attention_kind::latent
                               ? config_.attention.heads
                               : config_.attention.heads / config_.attention.kv_heads;
    const uint32_t rows_max = attend_rows(config_, limits_);
    const uint32_t at_once = rows_max / std::min(group, rows_max);
    outputs_ = tiles_ = context_ = 0;
    for (uint32_t t = 0; t < tokens_; ++t) {
        const pass_token &one = tokens.tokens[t];
        // A source without ids (a trace) reads any row.
        ids[t] = one.token_id >= 0 ? static_cast<uint32_t>(one.token_id)
                                   : static_cast<uint32_t>(one.row % config_.vocabulary);
        streams[t] = one.stream;
        positions[t] = one.position;
        context_ = std::max(context_, one.position + 1);
        if (one.output) rows[outputs_++] = t;
        const bool goes_on = t != 0 && tiles_ != 0 && tokens.tokens[t - 1].stream == one.stream &&
                             positions[t - 1] + 1 == one.position &&
                             tiles[tiles_ - 1].count < at_once;
        if (goes_on)
            ++tiles[tiles_ - 1].count;
        else
            tiles[tiles_++] = {t, 1};
    }
    assert(outputs_ <= limits_.outputs_max);
    if (tokens_ <= few_tokens) context_ = std::bit_ceil(context_);
    for (uint32_t t = 0; t < tokens_; ++t)
        rope_angles(turns_.of_length(tokens.tokens[t].sequence_length()), positions[t],
                    {cosines + uint64_t{b_.pairs} * t, b_.pairs},
                    {sines + uint64_t{b_.pairs} * t, b_.pairs});
}

// Brings scores to the host, which watches for those of few tokens.
template <class Device>
void forward<Device>::hand_over(uint32_t layer, bool router, bool next_router) {
    const uint64_t count = uint64_t{tokens_} * config_.experts;
    // Buffers for unwanted results may be missing.
    float *const to = router ? b_.pinned_router + scores_at(layer) : nullptr;
    float *const next_to = next_router ? b_.pinned_next_router + scores_at(layer) : nullptr;
    if (tokens_ > few_tokens) {
        if (router) device_.copy_out(to, b_.router, count * sizeof(float));
        if (next_router) device_.copy_out(next_to, b_.next_router, count * sizeof(float));
        return;
    }
    launch(
        tell_kernel{{{b_.router, to}, {b_.next_router, next_to}}, count, b_.told, b_.pinned_told},
        1);
}

}  // namespace moorage::core::gpu
