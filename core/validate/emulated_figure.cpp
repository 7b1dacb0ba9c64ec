// emulated_figure.cpp - gives the emulator the operations of each layer in the engine's order.
#include "core/validate/emulated_figure.h"

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
        const auto step = static_cast<uint32_t>(now - given_);
        given_ = now;
        return step;
    }

private:
    double exact_ = 0;
    uint64_t given_ = 0;
};

class figure_run {
public:
    explicit figure_run(const figure_setting &of)
        : of_(of),
          costs_(of.hardware, of.shape),
          machine_(costs_, transfers_max(), nullptr),
          misses_(requests(), 1 - of.hit_share) {}

    double run() { return of_.prompt ? prompt_ms() : decode_ms(); }

private:
    struct load {
        uint32_t layer, transfer;
    };

    const model_shape &shape() const { return of_.shape; }
    uint32_t transfers_max() const { return 2 * of_.shape.experts; }
    uint64_t requests() const { return uint64_t{of_.shape.top_k} * of_.host_layers * steps; }
    // Mean number of experts requested in a layer.
    double asked_by(uint32_t tokens) {
        if (tokens != asked_tokens_)
            asked_ = distinct_experts(shape().experts, shape().top_k, tokens,
                                      of_.hardware.engine.prompt_experts_share);
        asked_tokens_ = tokens;
        return asked_;
    }

    double decode_ms() {
        for (uint32_t step = 0; step < steps; ++step) run_pass(of_.tokens, of_.context);
        return double(*machine_.clock()) / 1e6 / steps;
    }
    double prompt_ms() {
        for (uint32_t at = 0; at < of_.tokens; at += of_.pass_tokens)
            run_pass(std::min(of_.pass_tokens, of_.tokens - at), of_.context + at);
        return double(*machine_.clock() + of_.hardware.engine.prompt_ns) / 1e6 / of_.tokens;
    }

    void run_pass(uint32_t tokens, uint64_t context);
    void run_layer(uint32_t layer, uint32_t tokens);
    void plan_layer(uint32_t layer, uint32_t tokens);
    void queue_experts(uint32_t layer, uint32_t tokens);
    uint32_t next_misses(uint32_t asked);
    void send_next();
    void wait_for(const auto &done);

    const figure_setting &of_;
    cost_model costs_;
    emulator machine_;
    drawn_misses misses_;
    rounded_sums asked_sums_, absent_sums_;
    uint32_t asked_tokens_ = 0;
    double asked_ = 0;
    pass pass_;
    // For each layer of the pass: requested experts, absent ones among them, loads.
    struct plan {
        uint32_t asked = 0, absent = 0, loads = 0;
        bool sent = false;
    };
    std::vector<plan> plans_;
    std::deque<load> to_send_;
    std::deque<load> under_way_;
    std::vector<uint32_t> loads_left_;  // by layer
    uint32_t open_ = 0;
    bool gate_ = false, head_ = false;
};

void figure_run::wait_for(const auto &done) {
    while (!done()) {
        const completion what = machine_.wait();
        if (what.kind == event_kind::piece) {
            const load arrived = under_way_.front();
            under_way_.pop_front();
            machine_.arrived(arrived.transfer);
            --loads_left_[arrived.layer];
            send_next();
        } else if (what.kind == event_kind::gate) {
            gate_ = true;
        } else if (what.kind == event_kind::head) {
            head_ = true;
        } else {
            --open_;
        }
    }
}

void figure_run::send_next() {
    if (to_send_.empty() || !under_way_.empty()) return;
    const load next = to_send_.front();
    to_send_.pop_front();
    under_way_.push_back(next);
    machine_.send({link_h2d, next.layer * shape().experts, MOORAGE_WHOLE, 0, shape().expert_bytes});
}

uint32_t figure_run::next_misses(uint32_t asked) {
    if (of_.prompt || of_.tokens > 1)
        return std::min(asked, absent_sums_.next(asked * (1 - of_.hit_share)));
    uint32_t missed = 0;
    for (uint32_t i = 0; i < asked; ++i) missed += misses_.next();
    return missed;
}

void figure_run::plan_layer(uint32_t layer, uint32_t tokens) {
    plan &now = plans_[layer];
    now = {};
    now.asked = asked_sums_.next(asked_by(tokens));
    now.asked = std::clamp(now.asked, shape().top_k, shape().experts);
    if (layer >= of_.host_layers) return;
    now.absent = next_misses(now.asked);
    now.loads = of_.on_cpu ? 0 : now.absent;
    if (of_.loads_all && !of_.on_cpu) {
        const double absent = shape().experts * (1 - of_.hit_share);
        now.loads = std::max(now.loads, static_cast<uint32_t>(std::llround(absent)));
    }
}

void figure_run::run_pass(uint32_t tokens, uint64_t context) {
    pass_.phase = of_.prompt ? MOORAGE_PREFILL : MOORAGE_DECODE;
    pass_.tokens.resize(tokens);
    for (uint32_t t = 0; t < tokens; ++t)
        pass_.tokens[t].position = static_cast<uint32_t>(context + (of_.prompt ? t : 0));
    plans_.resize(shape().moe_layers);
    loads_left_.assign(shape().moe_layers, 0);
    for (uint32_t layer = 0; layer < shape().moe_layers; ++layer) plan_layer(layer, tokens);
    machine_.begin(pass_);
    for (uint32_t layer = 0; layer < shape().moe_layers; ++layer) run_layer(layer, tokens);
    head_ = false;
    machine_.head(of_.prompt ? 1 : tokens);
    wait_for([&] { return head_; });
}

void figure_run::run_layer(uint32_t layer, uint32_t tokens) {
    const auto send = [&](uint32_t which) {
        plan &of = plans_[which];
        if (of.sent) return;
        of.sent = true;
        loads_left_[which] = of.loads;
        const uint32_t first = which % 2 * shape().experts;
        for (uint32_t i = 0; i < of.loads; ++i) {
            machine_.expect(first + i);
            to_send_.push_back({which, first + i});
        }
        send_next();
    };
    gate_ = false;
    if (of_.overlap == load_overlap::ahead) {
        send(layer);
        if (layer + 1 < shape().moe_layers) send(layer + 1);
    }
    machine_.attention(layer, pass_);
    wait_for([&] { return gate_; });
    send(layer);
    const auto loaded = [&] { return loads_left_[layer] == 0; };
    if (of_.overlap < load_overlap::layer) wait_for(loaded);  // there are no predictions here
    queue_experts(layer, tokens);
    wait_for([&] { return open_ == 0 && loaded(); });
}

void figure_run::queue_experts(uint32_t layer, uint32_t tokens) {
    const plan &now = plans_[layer];
    const uint32_t uses = tokens * shape().top_k, hits = now.asked - now.absent;
    const uint32_t first = layer % 2 * shape().experts;
    for (uint32_t i = 0; i < now.asked; ++i) {
        const uint32_t of_expert = uses / now.asked + (i < uses % now.asked);
        const bool absent = i >= hits;
        const bool loaded = absent && !of_.on_cpu && of_.overlap >= load_overlap::layer;
        const expert_work work{layer * shape().experts + i, of_expert, 1,
                               loaded ? first + (i - hits) : MOORAGE_NONE, i};
        ++open_;
        if (absent && of_.on_cpu)
            machine_.expert_on_cpu(work);
        else
            machine_.expert_on_gpu(work);
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

double emulate(const figure_setting &of) { return figure_run(of).run(); }

}  // namespace moorage::core
