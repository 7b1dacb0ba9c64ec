// forward.h - a model's arithmetic as launches of kernels, one operation of a layer step at a time.
//
//   begin(pass)
//   for each layer with experts:  run_attention(layer)     router logits are under way to the host
//                                 run_shared(layer)        shared expert, while the host routes
//                                 route(...)               who goes where
//                                 run_experts(layer, ...)  any number of times, segments in order
//   run_head()                                             logits of the tokens with `output`
//
// The operations and their meaning are those of cpu_model.h. A Device launches kernels and copies.
// The GPU is one Device (cuda_device.cuh). The tests' loops on the CPU are another, so everything
// in this file is checked without a GPU.
//
// Device: launch(kernel, x, y, z, shared_bytes), copy_in(device, pinned, bytes), copy_out(pinned,
// device, bytes), product_of_many(item, tokens) -> bool, upload(device, host, bytes),
// multiprocessors(), shared_bytes_max(), recording_offered(), and the functions that recordings.h
// needs.
#pragma once

#include <algorithm>
#include <atomic>
#include <bit>
#include <cassert>
#include <tuple>
#include <type_traits>

#include "core/execute/gpu/arithmetic/attend.h"
#include "core/execute/gpu/arithmetic/heads.h"
#include "core/execute/gpu/arithmetic/tile.h"
#include "core/execute/gpu/arithmetic/tokens.h"
#include "core/execute/gpu/device_weights.h"
#include "core/execute/gpu/forward_buffers.h"
#include "core/execute/gpu/recordings.h"
#include "core/model/rope.h"
#include "core/source/source.h"

namespace moorage::core::gpu {

// A segment of an expert, at `image` in device memory.
struct expert_in_slot {
    uint32_t expert;
    uint32_t first, rows;  // of the intermediate dimension
    const std::byte *image;
};

template <class Device>
class forward {
public:
    // All borrowed; `weights` and `buffers` laid out for this model and these limits.
    forward(Device &device, const model &model, const device_weights &weights,
            const forward_buffers &buffers, const forward_limits &limits)
        : device_(device),
          model_(model),
          config_(model.config()),
          weights_(weights),
          buffers_(buffers),
          limits_(limits),
          moe_layers_(model.config().moe_layers()),
          turns_(config_.rope),
          recordings_(device) {
        if (!buffers_.notifications) return;
        *buffers_.pinned_notifications = notifications_;
        device_.upload(buffers_.notifications, &notifications_, sizeof(notifications_));
    }

    void begin(const pass &tokens);
    // Replaces begin() on a device that computes experts alone. Call it before route() and
    // run_experts(). `tokens`: so many tokens, whose inputs of the layer are there.
    void begin_experts(uint32_t tokens) {
        tokens_ = tokens;
        staged_ = 0;
    }

    // Computes up to the router of the layer-th layer with experts. Its logits go to the host. For
    // few tokens the host gets the scores before the launch ends; then the launch includes the
    // shared expert.
    void run_attention(uint32_t layer);

    // Computes the part of the layer that needs no routing, if it is not launched yet.
    void run_shared(uint32_t layer);

    // chosen, weights [B, k]: groups the choices by expert. Everything from an earlier layer has
    // been computed.
    void route(std::span<const uint32_t> chosen, std::span<const float> weights);
    // The assignments of an expert: rows [first, first + count) of expert_outputs. And their
    // tokens.
    uint32_t assignment_first(uint32_t expert) const { return first_assignments_[expert]; }
    uint32_t assignment_count(uint32_t expert) const {
        return first_assignments_[expert + 1] - first_assignments_[expert];
    }
    std::span<const uint32_t> assignment_tokens(uint32_t expert) const {
        return {buffers_.pinned_route + route_count_ + first_assignments_[expert],
                assignment_count(expert)};
    }

    // Computes segments of distinct experts of the layer, in one launch for each kind of size.
    // Segments of one expert come in rising order, in separate calls.
    void run_experts(uint32_t layer, std::span<const expert_in_slot> batch);

    // Computes the next layer's router scores as if this layer ended with the shared expert and the
    // chosen experts in `ready_experts`, which have been computed. The scores go to the host. No
    // later result depends on them. Requires: limits.predict, route() of the layer, a later layer
    // with experts.
    void predict(uint32_t layer, std::span<const uint32_t> ready_experts);

    void run_head();

    // The number that the host is told when the scores of the last launch are there. 0: they are
    // there once the launch has run. With the number, the host need not ask the driver, and it sees
    // the scores before the launch has ended.
    uint32_t notification_number() const { return tokens_ > few_tokens ? 0 : notifications_; }
    bool has_arrived(uint32_t number) const {
        const uint32_t arrived_number = std::atomic_ref<uint32_t>(*buffers_.pinned_notifications)
                                            .load(std::memory_order_acquire);
        return static_cast<int32_t>(arrived_number - number) >= 0;
    }

    // The results that run_attention() of the layer, and predict(), have brought to the host. Valid
    // until those of the layer after the next one are launched.
    std::span<const float> router(uint32_t layer) const {
        return {buffers_.pinned_router + scores_offset(layer), size_t{tokens_} * config_.experts};
    }
    std::span<const float> next_router(uint32_t layer) const {
        return {buffers_.pinned_next_router + scores_offset(layer),
                size_t{tokens_} * config_.experts};
    }
    uint32_t tokens() const { return tokens_; }
    uint32_t outputs() const { return outputs_; }

private:
    enum class pending : uint8_t { nothing, experts, dense };
    enum class operation : uint32_t { attention, head, prediction };

    // Records and replays as in recordings.h, for few tokens. `body` may run twice, each time from
    // the present state of the layers.
    template <class Body>
    void run_recorded(operation kind, uint32_t layer, Body &&body) {
        if (tokens_ > few_tokens || !device_.recording_offered()) return body();
        const auto saved_state = std::tuple(next_layer_, pending_, pending_shared_, pending_gate_);
        recordings_.run(
            {static_cast<uint32_t>(kind), layer, tokens_, tiles_, outputs_, context_}, [&] {
                std::tie(next_layer_, pending_, pending_shared_, pending_gate_) = saved_state;
                body();
            });
    }

    void compute_router_scores(uint32_t layer);
    void send_scores(uint32_t layer, bool router, bool next_router);
    uint64_t scores_offset(uint32_t layer) const {
        return uint64_t{layer % 2} * limits_.tokens_max * config_.experts;
    }

    template <class Kernel>
    void launch(const Kernel &kernel, uint32_t x, uint32_t y = 1, uint32_t z = 1,
                uint32_t shared_bytes = 0) {
        if (x != 0) device_.launch(kernel, x, y, z, shared_bytes);
    }

    void launch_shared_expert(uint32_t layer);
    void upload_words(uint32_t *device, const uint32_t *pinned, uint64_t words);
    void upload_pending();
    words_of_launch take_pending();
    void fill_pass(const pass &tokens);
    void run_layer(uint32_t layer);
    void run_normed_layer(uint32_t layer);
    template <class Cache>
    void run_attention_block(uint32_t layer);
    template <class Cache>
    void prepare_grouped_heads(uint32_t layer);
    template <class Cache>
    void prepare_latent_heads(uint32_t layer);
    template <class Cache>
    void attend(uint32_t layer);
    template <class Cache, uint32_t rows_max, uint32_t vectors>
    void attend_with(attend_shape shape, const device_layer &weights, uint32_t layer,
                     const float *query, float *output);
    void combine(const device_norm &norm, const uint32_t *rows, float *output, uint32_t count,
                 const float *source_state = nullptr);
    void run_mlp(const device_mlp &weights, const float *input);
    void multiply(std::span<product_item> items, uint32_t tokens);
    void multiply_by_tiles(const product_item &item, uint32_t tokens);
    void multiply_by_rows(std::span<const product_item> items, uint32_t tokens);
    template <weight_type type>
    bool rows_have_room(std::span<const product_item> items) const;
    void stage_expert(uint32_t layer, const expert_in_slot &segment, product_item &up,
                      product_item &down) const;
    void launch_items(const product_item *table, std::span<const product_item> items,
                      uint32_t tokens_max);

    template <class Cache>
    static Cache *cache_at(std::byte *cache) {
        return reinterpret_cast<Cache *>(cache);
    }
    token_table token_places() const {
        return {buffers_.streams(), buffers_.positions(), buffers_.cosines(),
                buffers_.sines(),   buffers_.pairs,       config_.rope.interleaved};
    }

    // A product of all tokens. add: to what the output holds, times the residual multiplier.
    product_item make_product(const matrix &weights, const float *bias, const float *input,
                              float *output, bool add) const {
        product_item item;
        item.weights = weights;
        item.bias = bias;
        item.input = input;
        item.exact = limits_.exact;
        item.output = output;
        item.input_stride = weights.columns;
        item.output_stride = item.rows = weights.rows;
        item.end = add ? product_end::add : product_end::store;
        if (add) item.multiplier = static_cast<float>(config_.residual_multiplier);
        return item;
    }

    // Its rows are `heads` groups side by side. Each has its own stretch of the input and the
    // output.
    static void set_head_groups(product_item &item, uint32_t heads, uint32_t input,
                                uint32_t output) {
        item.input_stride = heads * input;
        item.group_rows = item.group_stride = item.rows / heads;
        item.group_input = input;
        item.group_output = output;
    }

    Device &device_;
    const model &model_;
    const model_config &config_;
    const device_weights &weights_;
    forward_buffers buffers_;
    forward_limits limits_;
    std::vector<uint32_t> moe_layers_;
    rope_rotations turns_;
    uint32_t tokens_ = 0, outputs_ = 0, tiles_ = 0, next_layer_ = 0;
    uint32_t context_ = 0;  // longest context of the pass; rounded up to a power of two for few
                            // tokens
    recordings<Device> recordings_;
    pending pending_ = pending::nothing;
    bool pending_shared_ = false, pending_gate_ = false;
    std::vector<uint32_t> first_assignments_, next_assignments_;
    std::vector<uint8_t> counted_;  // [assignments] that a prediction uses
    uint32_t route_count_ = 0;
    uint32_t pending_words_ = 0;  // words of the route's table that the device has not been told
                                  // yet
    uint32_t notifications_ = 0;  // launches of tell_kernel; recorded ones count as often as they
                                  // run
    uint32_t staged_ = 0;         // items of the table used since the last route()
};

}  // namespace moorage::core::gpu

#include "core/execute/gpu/forward_layer.h"
#include "core/execute/gpu/forward_products.h"
#include "core/execute/gpu/forward_tables.h"
