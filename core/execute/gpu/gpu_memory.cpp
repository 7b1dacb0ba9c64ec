// gpu_memory.cpp - counts by laying out without memory.
#include "core/execute/gpu/gpu_memory.h"

#include <algorithm>

#include "core/base/memory_block.h"
#include "core/base/text.h"

namespace moorage::core::gpu {

namespace {

std::string human(uint64_t bytes) { return human_bytes(static_cast<double>(bytes)); }

struct null_device {
    void upload(void *, const void *, uint64_t) {}
};

}  // namespace

forward_limits limits_of(const gpu_executor_options &options, uint64_t workspace_bytes) {
    const compute_limits &source = options.limits;
    return {source.tokens_max, source.streams, source.context_max, source.outputs_max,
            source.predict,    options.exact,  workspace_bytes};
}

gpu_needs needs_of(const model &model, const forward_limits &limits, bool first) {
    null_device device;
    memory_plan weights, buffers, pinned;
    weights_loader loader(device, weights);
    if (first) {
        loader.load(model.weights());
        lay_out(model.config(), limits, buffers, pinned);
    } else {
        loader.load_experts(model.weights());
        lay_out_experts(model.config(), limits, buffers, pinned);
    }
    return {weights.bytes(), buffers.bytes(), pinned.bytes()};
}

status check_model(const model &model, const char *executor) {
    const attention_config &attention = model.config().attention;
    const bool latent = attention.kind == attention_kind::latent;
    const uint32_t values = latent ? attention.kv_lora_rank : attention.value_dim;
    const uint32_t keys =
        latent ? attention.kv_lora_rank + model.config().rope.dimensions : attention.head_dim;
    if (values > 512 || keys > 576 || keys % 2 != 0)
        return error{
            format("executor {} computes attention of up to 512 values and an even number of up "
                   "to 576 keys a head, the model has {} and {}; set executor to cpu",
                   executor, values, keys)};
    for (const layer_weights &layer : model.weights().layers) {
        const auto mixes = [](const mlp_weights &mlp) {
            return mlp.gate && mlp.gate.type != mlp.up.type;
        };
        if (mixes(layer.dense) || mixes(layer.shared) || std::ranges::any_of(layer.experts, mixes))
            return error{
                format("executor {} takes gate and up projections of one type; set executor to cpu",
                       executor)};
        for (const mlp_weights &expert : layer.experts) {
            const mlp_weights &first = layer.experts[0];
            if (expert.gate.type != first.gate.type || expert.down.type != first.down.type)
                return error{format(
                    "executor {} takes a layer's experts in the same types of weights, one has {} "
                    "and {} where the first has {} and {}; set executor to cpu",
                    executor, name_of(expert.gate.type), name_of(expert.down.type),
                    name_of(first.gate.type), name_of(first.down.type))};
        }
    }
    return success();
}

status check_pass(const forward_limits &limits, const char *executor) {
    if (limits.tokens_max <= pass_tokens_max) return success();
    return error{
        format("executor {} computes up to {} tokens in a pass, this run has passes of {}; set "
               "run.prefill (for decoding run.batch) to at most {}",
               executor, pass_tokens_max, limits.tokens_max, pass_tokens_max)};
}

status check_room(const gpu_executor_options &options, const forward_limits &limits,
                  uint32_t number, const gpu_needs &needs, const gpu_capacity &offer,
                  const pinned_experts &experts) {
    const model_config &config = options.source_model->config();
    const uint32_t shared_bytes = attend_shared_bytes(config, limits, attend_rows(config, limits));
    if (number == 0 && shared_bytes > offer.shared_bytes)
        return error{format(
            "a block of {} has {} of shared memory and attention with heads of this size{} needs "
            "{}; set executor to cpu, or take a larger GPU",
            offer.name, human(offer.shared_bytes),
            options.exact ? ", compared with references," : "", human(shared_bytes))};
    const arena &places = *options.places.arenas[number];
    const uint64_t slots = places.rows_total() / places.rows();
    const uint64_t slot_bytes = places.rows() * experts.row_bytes();
    const uint64_t arena_bytes = places.rows_total() * experts.row_bytes();
    const uint64_t fixed = needs.weights_bytes + needs.buffers_bytes + offer.reserved_bytes;
    if (fixed + arena_bytes <= offer.free_bytes) return success();
    const uint64_t left = offer.free_bytes - std::min(offer.free_bytes, fixed);
    const uint64_t fit = left / std::max<uint64_t>(slot_bytes, 1);
    const char *key = options.places.arenas.size() == 1 ? "experts" : "experts or device_experts";
    return error{format(
        "{} has {} free and the run needs {}: {} for weights other than experts, {} for caches "
        "and activations, {} for {} expert slots, {} in reserve; {}",
        offer.name, human(offer.free_bytes), human(fixed + arena_bytes), human(needs.weights_bytes),
        human(needs.buffers_bytes), human(arena_bytes), slots, human(offer.reserved_bytes),
        fit > 0 ? format("lower [memory] {} so that at most {} slots are left", key, fit)
                : "shorten the context or the batch, or take a larger GPU")};
}

status check_pinned(const gpu_executor_options &options, uint64_t bytes) {
    const uint64_t available = memory_available_bytes();
    if (bytes <= available) return success();
    return error{format(
        "{} in pinned host memory take {}, this machine has {} available; {}",
        options.host_places ? "rows for experts" : "all experts", human(bytes), human(available),
        options.host_places ? "lower [memory] host_experts or host_bytes"
                            : "say [memory] host_experts, so that the others are read from disk, "
                              "or take a machine with more memory")};
}

}  // namespace moorage::core::gpu
