// emulated_figure.cpp - gives the emulator the operations of each layer in the engine's order.
#include "tools/validate/emulated_figure.h"

#include <algorithm>
#include <cmath>
#include <deque>

#include "core/base/portable_math.h"
#include "core/base/random.h"
#include "core/execute/cost_model.h"
#include "core/execute/emulator.h"

namespace moorage::core {

namespace {

constexpr uint32_t steps = 16;  // of decode

// Draws the misses among a number of requests: exactly as many as given, each request with equal
// probability.
class drawn_misses {
public:
    drawn_misses(uint64_t requests, double share)
        : left_(requests), misses_(static_cast<uint64_t>(std::llround(double(requests) * share))) {}
    bool next() {
        const bool missed = left_ != 0 && random_.below(left_) < misses_;
        left_ -= left_ != 0;
        misses_ -= missed;
        return missed;
    }

private:
    random_stream random_{0, 0};
    uint64_t left_, misses_;
};

// Whole numbers whose sums stay within one of the sums of the given numbers.
class rounded_sums {
public:
    uint32_t next(double count) {
        exact_ += count;
        const auto now = static_cast<uint64_t>(std::floor(exact_ + 0.5));
        const auto step = static_cast<uint32_t>(now - returned_);
        returned_ = now;
        return step;
    }

private:
    double exact_ = 0;
    uint64_t returned_ = 0;
};

class figure_emulation {
public:
    explicit figure_emulation(const figure_setting &setting)
        : setting_(setting),
          costs_(setting.hardware, setting.shape),
          machine_(costs_, transfers_max(), nullptr),
          misses_(requests(), 1 - setting.hit_share) {}

    double run() { return setting_.prompt ? prompt_ms() : decode_ms(); }

private:
    struct load {
        uint32_t layer, transfer;
    };

    const model_shape &shape() const { return setting_.shape; }
    uint32_t transfers_max() const { return 2 * setting_.shape.experts; }
    uint64_t requests() const {
        return uint64_t{setting_.shape.top_k} * setting_.host_layers * steps;
    }
    // Mean number of experts requested in a layer.
    double mean_requested_experts(uint32_t tokens) {
        if (tokens != requested_tokens_)
            requested_ = distinct_experts(shape().experts, shape().top_k, tokens,
                                          setting_.hardware.engine.prompt_experts_share);
        requested_tokens_ = tokens;
        return requested_;
    }

    double decode_ms() {
        for (uint32_t step = 0; step < steps; ++step) run_pass(setting_.tokens, setting_.context);
        return double(*machine_.clock()) / 1e6 / steps;
    }
    double prompt_ms() {
        for (uint32_t first_token = 0; first_token < setting_.tokens;
             first_token += setting_.pass_tokens)
            run_pass(std::min(setting_.pass_tokens, setting_.tokens - first_token),
                     setting_.context + first_token);
        return double(*machine_.clock() + setting_.hardware.engine.prompt_ns) / 1e6 /
               setting_.tokens;
    }

    void run_pass(uint32_t tokens, uint64_t context);
    void run_layer(uint32_t layer, uint32_t tokens);
    void plan_layer(uint32_t layer, uint32_t tokens);
    void queue_experts(uint32_t layer, uint32_t tokens);
    uint32_t next_misses(uint32_t requested);
    void send_next();
    void wait_for(const auto &done);

    const figure_setting &setting_;
    cost_model costs_;
    emulator machine_;
    drawn_misses misses_;
    rounded_sums asked_sums_, absent_sums_;
    uint32_t requested_tokens_ = 0;
    double requested_ = 0;
    pass pass_;
    // For each layer of the pass: requested experts, absent ones among them, loads.
    struct plan {
        uint32_t requested = 0, absent = 0, loads = 0;
        bool sent = false;
    };
    std::vector<plan> plans_;
    std::deque<load> to_send_;
    std::deque<load> under_way_;
    std::vector<uint32_t> loads_left_;  // by layer
    uint32_t open_experts_ = 0;
    bool gate_done_ = false, head_done_ = false;
};

void figure_emulation::wait_for(const auto &done) {
    while (!done()) {
        const completion event = machine_.wait();
        if (event.kind == event_kind::piece) {
            const load arrived = under_way_.front();
            under_way_.pop_front();
            machine_.arrived(arrived.transfer);
            --loads_left_[arrived.layer];
            send_next();
        } else if (event.kind == event_kind::gate) {
            gate_done_ = true;
        } else if (event.kind == event_kind::head) {
            head_done_ = true;
        } else {
            --open_experts_;
        }
    }
}

void figure_emulation::send_next() {
    if (to_send_.empty() || !under_way_.empty()) return;
    const load next = to_send_.front();
    to_send_.pop_front();
    under_way_.push_back(next);
    machine_.send({link_h2d, next.layer * shape().experts, MOORAGE_WHOLE, 0, shape().expert_bytes});
}

uint32_t figure_emulation::next_misses(uint32_t requested) {
    if (setting_.prompt || setting_.tokens > 1)
        return std::min(requested, absent_sums_.next(requested * (1 - setting_.hit_share)));
    uint32_t missed = 0;
    for (uint32_t i = 0; i < requested; ++i) missed += misses_.next();
    return missed;
}

void figure_emulation::plan_layer(uint32_t layer, uint32_t tokens) {
    plan &layer_plan = plans_[layer];
    layer_plan = {};
    layer_plan.requested = asked_sums_.next(mean_requested_experts(tokens));
    layer_plan.requested = std::clamp(layer_plan.requested, shape().top_k, shape().experts);
    if (layer >= setting_.host_layers) return;
    layer_plan.absent = next_misses(layer_plan.requested);
    layer_plan.loads = setting_.on_cpu ? 0 : layer_plan.absent;
    if (setting_.loads_all && !setting_.on_cpu) {
        const double absent = shape().experts * (1 - setting_.hit_share);
        layer_plan.loads = std::max(layer_plan.loads, static_cast<uint32_t>(std::llround(absent)));
    }
}

void figure_emulation::run_pass(uint32_t tokens, uint64_t context) {
    pass_.phase = setting_.prompt ? MOORAGE_PREFILL : MOORAGE_DECODE;
    pass_.tokens.resize(tokens);
    for (uint32_t t = 0; t < tokens; ++t)
        pass_.tokens[t].position = static_cast<uint32_t>(context + (setting_.prompt ? t : 0));
    plans_.resize(shape().moe_layers);
    loads_left_.assign(shape().moe_layers, 0);
    for (uint32_t layer = 0; layer < shape().moe_layers; ++layer) plan_layer(layer, tokens);
    machine_.begin(pass_);
    for (uint32_t layer = 0; layer < shape().moe_layers; ++layer) run_layer(layer, tokens);
    head_done_ = false;
    machine_.head(setting_.prompt ? 1 : tokens);
    wait_for([&] { return head_done_; });
}

void figure_emulation::run_layer(uint32_t layer, uint32_t tokens) {
    const auto send = [&](uint32_t sent_layer) {
        plan &planned = plans_[sent_layer];
        if (planned.sent) return;
        planned.sent = true;
        loads_left_[sent_layer] = planned.loads;
        const uint32_t first = sent_layer % 2 * shape().experts;
        for (uint32_t i = 0; i < planned.loads; ++i) {
            machine_.expect(first + i);
            to_send_.push_back({sent_layer, first + i});
        }
        send_next();
    };
    gate_done_ = false;
    if (setting_.overlap == load_overlap::ahead) {
        send(layer);
        if (layer + 1 < shape().moe_layers) send(layer + 1);
    }
    machine_.attention(layer, pass_);
    wait_for([&] { return gate_done_; });
    send(layer);
    const auto loaded = [&] { return loads_left_[layer] == 0; };
    if (setting_.overlap < load_overlap::layer) wait_for(loaded);  // there are no predictions here
    queue_experts(layer, tokens);
    wait_for([&] { return open_experts_ == 0 && loaded(); });
}

void figure_emulation::queue_experts(uint32_t layer, uint32_t tokens) {
    const plan &layer_plan = plans_[layer];
    const uint32_t uses = tokens * shape().top_k, hits = layer_plan.requested - layer_plan.absent;
    const uint32_t first = layer % 2 * shape().experts;
    for (uint32_t i = 0; i < layer_plan.requested; ++i) {
        const uint32_t of_expert = uses / layer_plan.requested + (i < uses % layer_plan.requested);
        const bool absent = i >= hits;
        const bool loaded = absent && !setting_.on_cpu && setting_.overlap >= load_overlap::layer;
        const expert_work work{layer * shape().experts + i, of_expert, 1,
                               loaded ? first + (i - hits) : MOORAGE_NONE, i};
        ++open_experts_;
        if (absent && setting_.on_cpu)
            machine_.expert_on_cpu(work);
        else
            machine_.expert_on_device(work);
    }
}

}  // namespace

double distinct_experts(uint32_t experts, uint32_t top_k, uint32_t tokens, double share) {
    if (tokens <= 1) return top_k;
    const double used = std::max<double>(top_k, share * experts);
    const double missed = 1 - top_k / used;  // probability that one token does not use a given used
                                             // expert
    return missed <= 0 ? used : used * (1 - portable_exp(tokens * portable_log(missed)));
}

double emulate(const figure_setting &setting) { return figure_emulation(setting).run(); }

}  // namespace moorage::core
