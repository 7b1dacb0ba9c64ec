// forward_tables.h - the inside of forward.h: the tables of a pass that the host gives the GPU, and
// the scores that the GPU gives the host.
#pragma once

#include "core/execute/gpu/forward.h"

namespace moorage::core::gpu {

// Puts words in the place where recorded launches read them. Short tables go with a launch, because
// then no copy engine has to start.
template <class Device>
void forward<Device>::upload_words(uint32_t *device, const uint32_t *pinned, uint64_t words) {
    if (words > words_kernel::words_max) return device_.copy_in(device, pinned, words * 4);
    words_kernel kernel;
    std::copy_n(pinned, words, kernel.words);
    kernel.count = static_cast<uint32_t>(words);
    kernel.output = device;
    launch(kernel, 1);
}

// Brings the table of the route, if no launch has taken it along.
template <class Device>
void forward<Device>::upload_pending() {
    if (pending_words_ != 0) upload_words(buffers_.route, buffers_.pinned_route, pending_words_);
    pending_words_ = 0;
}
template <class Device>
words_of_launch forward<Device>::take_pending() {
    words_of_launch table;
    std::copy_n(buffers_.pinned_route, pending_words_, table.words);
    table.count = pending_words_;
    table.output = buffers_.route;
    pending_words_ = 0;
    return table;
}

template <class Device>
void forward<Device>::fill_pass(const pass &tokens) {
    buffers_.tokens = tokens_;
    uint32_t *words = buffers_.pinned_pass;
    uint32_t *ids = words, *streams = ids + tokens_, *positions = streams + tokens_;
    uint32_t *rows = positions + tokens_;
    attend_tile *tiles = reinterpret_cast<attend_tile *>(rows + tokens_);
    float *cosines = reinterpret_cast<float *>(rows + 3ull * tokens_);
    float *sines = cosines + uint64_t{buffers_.pairs} * tokens_;
    const uint32_t group = config_.attention.kind == attention_kind::latent
                               ? config_.attention.heads
                               : config_.attention.heads / config_.attention.kv_heads;
    const uint32_t rows_max = attend_rows(config_, limits_);
    const uint32_t at_once = rows_max / std::min(group, rows_max);
    outputs_ = tiles_ = context_ = 0;
    for (uint32_t t = 0; t < tokens_; ++t) {
        const pass_token &token = tokens.tokens[t];
        // A source without ids (a trace) reads any row.
        ids[t] = token.token_id >= 0 ? static_cast<uint32_t>(token.token_id)
                                     : static_cast<uint32_t>(token.row % config_.vocabulary);
        streams[t] = token.stream;
        positions[t] = token.position;
        context_ = std::max(context_, token.position + 1);
        if (token.output) rows[outputs_++] = t;
        const bool extends_tile =
            t != 0 && tiles_ != 0 && tokens.tokens[t - 1].stream == token.stream &&
            positions[t - 1] + 1 == token.position && tiles[tiles_ - 1].count < at_once;
        if (extends_tile)
            ++tiles[tiles_ - 1].count;
        else
            tiles[tiles_++] = {t, 1};
    }
    assert(outputs_ <= limits_.outputs_max);
    if (tokens_ <= few_tokens) context_ = std::bit_ceil(context_);
    for (uint32_t t = 0; t < tokens_; ++t)
        rope_angles(turns_.turn_for_length(tokens.tokens[t].sequence_length()), positions[t],
                    {cosines + uint64_t{buffers_.pairs} * t, buffers_.pairs},
                    {sines + uint64_t{buffers_.pairs} * t, buffers_.pairs});
}

// Brings scores to the host, which watches for those of few tokens.
template <class Device>
void forward<Device>::send_scores(uint32_t layer, bool router, bool next_router) {
    const uint64_t count = uint64_t{tokens_} * config_.experts;
    // Buffers for unwanted results may be missing.
    float *const target = router ? buffers_.pinned_router + scores_offset(layer) : nullptr;
    float *const next_target =
        next_router ? buffers_.pinned_next_router + scores_offset(layer) : nullptr;
    if (tokens_ > few_tokens) {
        if (router) device_.copy_out(target, buffers_.router, count * sizeof(float));
        if (next_router) device_.copy_out(next_target, buffers_.next_router, count * sizeof(float));
        return;
    }
    launch(tell_kernel{{{buffers_.router, target}, {buffers_.next_router, next_target}},
                       count,
                       buffers_.notifications,
                       buffers_.pinned_notifications},
           1);
}

}  // namespace moorage::core::gpu
