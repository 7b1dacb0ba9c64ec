// cuda_executor.cpp - takes the memory of a run on the GPU, after it has seen that there is enough.
#if defined(MOORAGE_HAS_CUDA)

#include "core/execute/cuda/cuda_executor.h"

#include <algorithm>
#include <thread>

#include "core/base/memory_block.h"
#include "core/base/text.h"
#include "core/execute/cuda/cuda_run.h"

namespace moorage::core {

namespace cuda {

namespace {

constexpr uint64_t reserved_bytes = cuda_device::reserved_bytes;

std::string human(uint64_t bytes) { return human_bytes(static_cast<double>(bytes)); }

forward_limits limits_of(const cuda_executor_options &options) {
    const cpu_model_limits &from = options.limits;
    return {from.tokens_max,  from.streams, from.context_max,
            from.outputs_max, from.predict, options.exact};
}

// What the kernels do not compute is refused here, by name.
status check_model(const model &of) {
    const attention_config &a = of.config().attention;
    const bool latent = a.kind == attention_kind::latent;
    const uint32_t values = latent ? a.kv_lora_rank : a.value_dim;
    const uint32_t keys = latent ? a.kv_lora_rank + of.config().rope.dimensions : a.head_dim;
    if (values > 512 || keys > 576 || keys % 2 != 0)
        return error{
            format("executor cuda computes attention of up to 512 values and an even number of up "
                   "to 576 keys a head, the model has {} and {}; set executor to cpu",
                   values, keys)};
    for (const layer_weights &layer : of.weights().layers) {
        for (const mlp_weights *one : {&layer.dense, &layer.shared})
            if (one->gate && one->gate.type != one->up.type)
                return error{
                    "executor cuda takes gate and up projections of one type; set "
                    "executor to cpu"};
        for (const mlp_weights &expert : layer.experts) {
            const mlp_weights &first = layer.experts[0];
            if (expert.gate.type != first.gate.type || expert.up.type != first.gate.type ||
                expert.down.type != first.down.type)
                return error{
                    "executor cuda takes experts of one type of weights in a layer; set "
                    "executor to cpu"};
        }
    }
    return success();
}

}  // namespace

cuda_run::cuda_run(const cuda_executor_options &options)
    : stream_executor(options.transfers_max, nullptr),
      options_(options),
      moe_layers_(options.of->config().moe_layers()),
      experts_count_(options.of->config().experts),
      intermediate_(options.of->config().moe_intermediate),
      experts_(*options.of, *options.places, options.host_places),
      begun_(std::chrono::steady_clock::now()) {}

uint32_t cuda_run::packing_threads() {
    return std::clamp(std::thread::hardware_concurrency(), 1u, 16u);
}

status cuda_run::refuse(uint64_t weights_bytes, uint64_t buffers_bytes, uint64_t free_bytes) const {
    const uint64_t slots = options_.places->rows_total() / options_.places->rows();
    const uint64_t fixed = weights_bytes + buffers_bytes + reserved_bytes;
    const uint64_t slot = options_.places->rows() * experts_.row_bytes();
    const uint64_t fit =
        free_bytes > fixed ? (free_bytes - fixed) / std::max<uint64_t>(slot, 1) : 0;
    const std::string remedy =
        fit > 0 ? format("lower [memory] experts so that at most {} slots are left", fit)
                : std::string("shorten the context or the batch, or take a larger GPU");
    return error{format(
        "{} has {} free and the run needs {}: {} for weights other than experts, {} for caches and "
        "activations, {} for {} expert slots, {} in reserve; {}",
        gpu_->name(), human(free_bytes), human(fixed + arena_bytes()), human(weights_bytes),
        human(buffers_bytes), human(arena_bytes()), slots, human(reserved_bytes), remedy)};
}

// Counts first; an error when the GPU or the host has too little.
status cuda_run::plan_memory(uint64_t &weights_bytes, uint64_t &buffers_bytes) {
    const model_config &config = options_.of->config();
    const forward_limits limits = limits_of(options_);
    const uint32_t shared_bytes = attend_shared_bytes(config, limits, attend_rows(config, limits));
    if (shared_bytes > gpu_->shared_bytes_max())
        return error{format(
            "a block of {} has {} of shared memory and attention with heads of this size{} needs "
            "{}; set executor to cpu, or take a larger GPU",
            gpu_->name(), human(gpu_->shared_bytes_max()),
            options_.exact ? ", compared with references," : "", human(shared_bytes))};
    memory_plan weights, buffers, pinned;
    weights_loader(*gpu_, weights).load(options_.of->weights(), config.expert_bias);
    lay_out(config, limits, buffers, pinned);
    const uint64_t hidden_bytes = config.hidden * sizeof(float);
    pinned_scratch_bytes_ =
        pinned.bytes() + options_.limits.tokens_max * (1 + config.top_k) * hidden_bytes;
    weights_bytes = weights.bytes();
    buffers_bytes = buffers.bytes() + cuda_device::workspace_bytes;
    device_bytes_ = weights_bytes + buffers_bytes + arena_bytes();
    const uint64_t free_bytes = gpu_->free_bytes();
    if (gpu_->notes().failed()) return error{gpu_->notes().text()};
    if (device_bytes_ + reserved_bytes > free_bytes)
        return refuse(weights_bytes, buffers_bytes, free_bytes);
    const uint64_t available = memory_available_bytes();
    if (pinned_bytes() > available)
        return error{format("{} in pinned host memory take {}, this machine has {} available; {}",
                            options_.host_places ? "rows for experts" : "all experts",
                            human(pinned_bytes()), human(available),
                            options_.host_places
                                ? "lower [memory] host_experts or host_bytes"
                                : "say [memory] host_experts, so that the others are read from "
                                  "disk, or take a machine with more memory")};
    return success();
}

status cuda_run::prepare() {
    auto opened = cuda_device::create(options_.device);
    if (!opened) return opened.failure();
    gpu_ = std::move(opened).value();
    uint64_t weights_bytes = 0, buffers_bytes = 0;
    if (const status planned = plan_memory(weights_bytes, buffers_bytes); !planned)
        return planned.failure();
    if (options_.host_places) {
        auto link = load_link::create(*options_.of, /*from_disk=*/true);
        if (!link) return link.failure();
        disk_ = std::move(*link);
    }
    const model_config &config = options_.of->config();
    const forward_limits limits = limits_of(options_);
    std::byte *weights = gpu_->take_memory(weights_bytes);
    std::byte *buffers = gpu_->take_memory(buffers_bytes);
    std::byte *pinned = gpu_->take_pinned(pinned_scratch_bytes_, /*written=*/true);
    slots_ = gpu_->take_memory(arena_bytes());
    if (gpu_->notes().failed()) return error{gpu_->notes().text()};

    memory_plan weights_plan(weights), buffers_plan(buffers), pinned_plan(pinned);
    weights_ = weights_loader(*gpu_, weights_plan).load(options_.of->weights(), config.expert_bias);
    buffers_ = lay_out(config, limits, buffers_plan, pinned_plan);
    gpu_->use_scratch(buffers_.high, buffers_.low, buffers + buffers_plan.bytes());
    cpu_inputs_ = reinterpret_cast<float *>(pinned + pinned_plan.bytes());
    cpu_outputs_ = cpu_inputs_ + uint64_t{limits.tokens_max} * config.hidden;
    compute_ =
        std::make_unique<forward<cuda_device>>(*gpu_, *options_.of, weights_, buffers_, limits);
    if (const status filled = experts_.fill(*gpu_, packing_threads()); !filled)
        return filled.failure();
    helper_ = std::make_unique<cpu_experts>(*options_.of, experts_, options_.threads);
    bool made = inputs_ready_.make(gpu_->notes()) && outputs_ready_.make(gpu_->notes());
    for (batch &one : batches_) made = made && one.events.make(gpu_->notes());
    for (sent_piece &one : pieces_) made = made && one.events.make(gpu_->notes());
    if (!made) return error{gpu_->notes().text()};
    // Weights and images went up through the default stream, which the others do not wait for.
    gpu_->finish();
    if (gpu_->notes().failed()) return error{gpu_->notes().text()};
    begun_ = std::chrono::steady_clock::now();
    return success();
}

}  // namespace cuda

result<cuda_machine> make_cuda_executor(const cuda_executor_options &options) {
    if (const status checked = cuda::check_model(*options.of); !checked) return checked.failure();
    auto run = std::make_unique<cuda::cuda_run>(options);
    if (const status prepared = run->prepare(); !prepared) return prepared.failure();
    cuda_machine made;
    made.results = run.get();
    made.device = run->device_name();
    made.device_bytes = run->device_bytes();
    made.pinned_bytes = run->pinned_bytes();
    made.where = std::move(run);
    return made;
}

result<uint64_t> cuda_room_for_experts(const model &of, const cpu_model_limits &limits,
                                       int32_t device, bool exact) {
    auto opened = cuda::cuda_device::create(device);
    if (!opened) return opened.failure();
    cuda::memory_plan weights, buffers, pinned;
    cuda::weights_loader(**opened, weights).load(of.weights(), of.config().expert_bias);
    cuda_executor_options options;
    options.limits = limits;
    options.exact = exact;
    cuda::lay_out(of.config(), cuda::limits_of(options), buffers, pinned);
    const uint64_t fixed = weights.bytes() + buffers.bytes() + cuda::cuda_device::workspace_bytes +
                           cuda::reserved_bytes;
    const uint64_t free_bytes = (*opened)->free_bytes();
    if ((*opened)->notes().failed()) return error{(*opened)->notes().text()};
    return free_bytes - std::min(free_bytes, fixed);
}

}  // namespace moorage::core

#endif
