// measure_executor.cpp - the times of the executor's operations, over models of one layer.
#if defined(MOORAGE_HAS_CUDA)

#include <algorithm>
#include <numeric>

#include "core/execute/cpu/forward.h"
#include "core/execute/cpu/measure_beside.h"
#include "core/execute/measure_models.h"
#include "core/execute/measure_timing.h"
#include "core/execute/cuda/cuda_executor.h"
#include "core/execute/cuda/measure_parts.h"

namespace moorage::core::gpu {

namespace {

double host_now() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
}

// A model of one layer, every expert in a slot of its own; all tokens of a pass choose the same.
class layer_probe {
public:
    status make(const cuda_measure_options &options, const probe_shape &shape, uint32_t tokens_max,
                uint32_t context_max) {
        auto made_model = probe_model(shape);
        if (!made_model) return made_model.failure();
        model_ = std::move(made_model).value();
        places_ =
            std::make_unique<arena>(1, shape.experts, shape.moe_intermediate, 0, shape.experts);
        for (uint32_t page = 0; page < shape.experts; ++page)
            places_->take(page, MOORAGE_WHOLE, false);
        gpu_executor_options executor_options;
        executor_options.source_model = model_.get();
        executor_options.places = places_.get();
        executor_options.limits = {.tokens_max = tokens_max, .context_max = context_max};
        executor_options.transfers_max = 8;
        executor_options.threads = options.common.threads;
        executor_options.device = options.device;
        auto machine = make_cuda_executor(executor_options);
        if (!machine) return machine.failure();
        executor_ = std::move(machine->device_executor);
        return success();
    }
    const model &source_model() const { return *model_; }
    executor &device_executor() { return *executor_; }
    uint64_t expert_bytes() const { return model_->sizes().expert_bytes; }
    status check() const {
        if (executor_->failed()) return error{executor_->failure()};
        return success();
    }

    // Up to the scores of the router.
    double attention(uint32_t tokens, uint32_t position) {
        const std::vector<int32_t> ids(tokens, 1);
        pass_ = prompt_pass(ids, 0, position, false);
        executor_->begin(pass_);
        executor_->attention(0, pass_);
        return wait_for(event_kind::gate, 1);
    }
    // Experts first, first + 1, ... for every token, as many as the model asks for.
    void choose(uint32_t first) {
        const uint32_t k = model_->config().top_k, experts = model_->config().experts;
        chosen_.resize(pass_.tokens.size() * k);
        for (size_t i = 0; i < chosen_.size(); ++i)
            chosen_[i] = (first + static_cast<uint32_t>(i % k)) % experts;
        weights_.assign(chosen_.size(), 1.0f / static_cast<float>(k));
        if (!executor_->failed()) executor_->route(chosen_, weights_);
        next_ = 0;
    }
    // The next `count` of those that were chosen, computed together.
    double experts(uint32_t count) {
        for (uint32_t i = 0; i < count; ++i) executor_->expert_on_device(next_work());
        return wait_for(event_kind::device_expert, count);
    }
    double experts_on_cpu(uint32_t count) {
        for (uint32_t i = 0; i < count; ++i) executor_->expert_on_cpu(next_work());
        return wait_for(event_kind::cpu_expert, count);
    }
    double head() {
        executor_->head(1);
        return wait_for(event_kind::head, 1);
    }

private:
    expert_work next_work() {
        expert_work work;
        work.page = chosen_[next_++];
        work.tokens = static_cast<uint32_t>(pass_.tokens.size());
        return work;
    }
    double wait_for(event_kind kind, uint32_t count) {
        double seconds = 0;
        while (count != 0 && !executor_->failed()) {
            const completion done = executor_->wait();
            if (done.kind != kind) continue;
            --count;
            seconds += static_cast<double>(done.duration_ns) / 1e9;
        }
        return std::max(seconds, 1e-9);
    }

    std::unique_ptr<model> model_;
    std::unique_ptr<arena> places_;
    std::unique_ptr<executor> executor_;
    pass pass_;
    std::vector<uint32_t> chosen_;
    std::vector<float> weights_;
    uint32_t next_ = 0;
};

// Samples of one size of model, for a line of each constant.
struct constant_samples {
    std::vector<double> attention, pass, by_count[3];
};
constexpr uint32_t counts[] = {1, 2, 4};

status time_constants(layer_probe &probe, double budget_s, constant_samples &samples) {
    constexpr uint32_t positions_max = 32, passes_min = 12;
    const uint32_t experts = probe.source_model().config().experts;
    const double begun = host_now();
    for (uint32_t count = 0; count < passes_min || host_now() - begun < budget_s; ++count) {
        const double attention = probe.attention(1, count % positions_max);
        probe.choose(count * probe.source_model().config().top_k % experts);
        double taken[std::size(counts)];
        for (size_t i = 0; i < std::size(counts); ++i) taken[i] = probe.experts(counts[i]);
        probe.experts(1);  // the last of the token's
        const double head = probe.head();
        if (const status good = probe.check(); !good) return good;
        // The first passes record launches and load kernels. They do not count.
        if (count < 3) continue;
        samples.attention.push_back(attention);
        for (size_t i = 0; i < std::size(counts); ++i) samples.by_count[i].push_back(taken[i]);
        samples.pass.push_back(head);
        if (samples.pass.size() >= 2000) break;
    }
    return success();
}

}  // namespace

status measure_constants(const cuda_measure_options &options, double budget_s,
                         measured_machine &machine) {
    std::vector<timed_sample> attention, pass, expert;
    std::vector<double> loops;
    for (const uint32_t hidden : {128u, 256u, 512u, 1024u}) {
        layer_probe probe;
        const probe_shape shape{1, hidden, hidden, 16, 8, 8 * hidden};
        if (const status done = probe.make(options, shape, 1, 32); !done) return done;
        constant_samples samples;
        const status done = time_constants(probe, 4 * budget_s, samples);
        if (!done) return done;
        const model_shape sizes = shape_of(probe.source_model(), "");
        const double head = 2.0 * sizes.vocabulary * sizes.hidden;
        const auto expert_bytes = static_cast<double>(probe.expert_bytes());
        attention.push_back(
            {static_cast<double>(sizes.dense_bytes) - head, lower_quartile(samples.attention)});
        pass.push_back({head, lower_quartile(samples.pass)});
        std::vector<timed_sample> by_count;
        for (size_t i = 0; i < std::size(counts); ++i)
            by_count.push_back(
                {static_cast<double>(counts[i]), lower_quartile(samples.by_count[i])});
        const line_fit line = fit_line(by_count);
        loops.push_back(line.constant);
        expert.push_back({expert_bytes, std::max(line.slope, 1e-9)});
    }
    machine.layer_seconds = fit_line(attention).constant;
    machine.pass_seconds = fit_line(pass).constant;
    machine.experts_seconds = median(loops);
    machine.expert_seconds = fit_line(expert).constant;
    return success();
}

// As in real runs: the experts of a token at once, behind the layer's attention, whose end wakes
// the threads. The hand-over both ways counts. The weights come from memory: so many experts take
// turns that no cache holds them.
status measure_cpu_experts(const cuda_measure_options &options, double budget_s,
                           measured_machine &machine) {
    constexpr uint32_t hidden = 2048, at_once = 4, experts_max = 256;
    machine.cpu_experts.clear();
    for (const uint32_t inner : {176u, 352u, 704u, 1408u}) {
        const uint64_t expert_bytes = uint64_t{6} * hidden * inner;
        const auto wanted = static_cast<uint32_t>(options.block_bytes / 2 / expert_bytes);
        const uint32_t experts = std::clamp(wanted, 2 * at_once, experts_max) / at_once * at_once;
        layer_probe probe;
        const status prepared = probe.make(options, {1, hidden, inner, experts, at_once, 64}, 1, 2);
        if (!prepared) return prepared;
        uint32_t first = 0;
        const double seconds = typical_sample(4 * budget_s, host_now, [&] {
            probe.attention(1, 0);
            probe.choose(first);
            first = (first + at_once) % experts;
            const double begun = host_now();
            probe.experts_on_cpu(at_once);
            const double taken = host_now() - begun;
            probe.head();
            return taken;
        });
        if (const status good = probe.check(); !good) return good;
        machine.cpu_experts.push_back(
            {static_cast<double>(probe.expert_bytes()), seconds / at_once});
    }
    const line_fit line = fit_line(machine.cpu_experts);
    machine.cpu_expert_seconds = line.constant;
    if (line.slope > 0) machine.cpu_expert_bytes_per_s = 1 / line.slope;
    return success();
}

status measure_expert_tokens(const cuda_measure_options &options, double budget_s,
                             measured_machine &machine) {
    constexpr uint32_t tokens_max = 512;
    layer_probe probe;
    const status prepared = probe.make(options, {1, 2048, 1408, 8, 1, 64}, tokens_max, tokens_max);
    if (!prepared) return prepared;
    machine.expert_bytes = machine.expert_operations = static_cast<double>(probe.expert_bytes());
    uint32_t expert = 0;
    const auto time = [&](uint32_t tokens, bool on_cpu) {
        return typical_sample(budget_s, host_now, [&] {
            probe.attention(tokens, 0);
            probe.choose(expert++ % 8);
            const double seconds = on_cpu ? probe.experts_on_cpu(1) : probe.experts(1);
            probe.head();
            return seconds;
        });
    };
    for (const uint32_t tokens : {1u, 8u, 64u, 128u, 256u, 512u})
        machine.expert_tokens.push_back({static_cast<double>(tokens), time(tokens, false)});
    std::vector<timed_sample> by_cpu;
    for (const uint32_t tokens : {32u, 64u, 128u})
        by_cpu.push_back({static_cast<double>(tokens), time(tokens, true)});
    if (const status good = probe.check(); !good) return good;
    const line_fit line = fit_line(by_cpu);
    machine.cpu_operations_per_s =
        line.slope > 0 ? machine.expert_operations / line.slope
                       : machine.expert_operations * by_cpu.back().amount / by_cpu.back().seconds;
    return success();
}

status measure_contexts(const cuda_measure_options &options, double budget_s,
                        measured_machine &machine) {
    layer_probe probe;
    const status prepared = probe.make(options, {1, 1024, 64, 4, 1, 64}, 1, options.context_max);
    if (!prepared) return prepared;
    const attention_config &heads = probe.source_model().config().attention;
    // Keys and values in half precision.
    machine.context_bytes = 2.0 * heads.kv_heads * (heads.head_dim + heads.value_dim);
    for (uint32_t positions = 256; positions <= options.context_max; positions *= 2) {
        const double seconds = typical_sample(budget_s, host_now, [&] {
            const double taken = probe.attention(1, positions - 1);
            probe.choose(0);
            probe.experts(1);
            probe.head();
            return taken;
        });
        machine.contexts.push_back({static_cast<double>(positions), seconds});
    }
    return probe.check();
}

status measure_large_experts(const cuda_measure_options &options, double budget_s,
                             measured_machine &machine) {
    constexpr uint32_t experts = 4, hidden = 2048;
    const uint64_t rows = std::max<uint64_t>(options.common.expert_bytes / (6 * hidden) / 32, 1);
    layer_probe probe;
    const status prepared = probe.make(
        options, {1, hidden, static_cast<uint32_t>(rows * 32), experts, experts, 64}, 1, 2);
    if (!prepared) return prepared;
    const auto bytes = static_cast<double>(probe.expert_bytes());
    const double experts_seconds = typical_sample(budget_s, host_now, [&] {
        probe.attention(1, 0);
        probe.choose(0);
        const double seconds = probe.experts(experts);
        probe.head();
        return seconds;
    });
    probe.attention(1, 0);
    probe.choose(0);
    if (const status good = probe.check(); !good) return good;
    const status done = measure_beside(probe.device_executor(), {experts, probe.expert_bytes()},
                                       4 * budget_s, machine);
    if (!done) return done;
    machine.cpu_expert_bytes_per_s = machine.expert_memory_bytes_per_s;
    machine.expert_memory_bytes_per_s = bytes * experts / experts_seconds;
    return success();
}

}  // namespace moorage::core::gpu

#endif
