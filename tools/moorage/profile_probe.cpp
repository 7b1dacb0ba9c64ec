// profile_probe.cpp - makes the models and runs them like any configuration.
#include "tools/moorage/profile_probe.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "core/base/finite.h"
#include "core/base/text.h"
#include "core/execute/measure_models.h"
#include "core/execute/measure_timing.h"
#include "core/pipeline/run.h"
#include "core/report/time_parts.h"
#include "core/source/model_source.h"
#include "core/source/sampler.h"

namespace moorage::tool {

namespace {

using namespace moorage::core;

constexpr uint32_t layers = 6, top_k = 4, experts = 16, window = 96, runs_min = 20;

// A prompt of `count` ids. So many tokens are drawn after it that both fill a window.
model_request request_of(uint32_t vocabulary, uint32_t count) {
    model_request request;
    for (uint32_t i = 0; i < count; ++i)
        request.ids.push_back(static_cast<int32_t>((i * 2654435761u) % vocabulary));
    request.new_tokens = window - count + 1;
    return request;
}

// A small model and its work: tokens drawn one after the other, as in a run.
class probe {
    // The time of a token, or of a pass with all tokens.
    static double time_of(const run_report &report) {
        return report.tpot_ms.p50 > 0 ? report.tpot_ms.p50 : report.ttft_ms.p50;
    }

public:
    explicit probe(uint32_t threads) {
        config_.profile = "host";
        config_.prompts = {"a probe's, by ids"};
        config_.max_tokens = window;
        config_.temperature = 0.02;  // logits of random weights lie close together
        config_.threads = threads;
    }
    status make(uint32_t hidden, uint32_t experts_each = experts) {
        if (const status done = shared_.scan({}); !done) return done.failure();
        auto model = probe_model({layers, hidden, hidden / 2, experts_each, top_k, 4 * hidden});
        if (!model) return model.failure();
        shape_ = shape_of(**model, "");
        config_.model = "probe";
        shared_.keep(config_.model, std::move(model).value());
        prompt(1);
        return success();
    }
    // From now on the prompt has so many tokens. They enter in one pass, or some in each pass.
    void prompt(uint32_t tokens, uint32_t pass_tokens = window) {
        requests_ = {request_of(shape_.vocabulary, tokens)};
        config_.prefill = std::min(tokens, pass_tokens);
    }
    const model_shape &shape() const { return shape_; }
    // Bytes that a token reads in a layer. Weights have two bytes, so this is also the number of
    // operations.
    double layer_bytes() const {
        return static_cast<double>(shape_.dense_bytes) / layers +
               static_cast<double>(shape_.expert_bytes) * top_k;
    }
    run_config &config() { return config_; }

    // The fastest of the runs that fit in `seconds`, by the median of its tokens. Other work on the
    // machine only slows runs.
    result<run_report> quickest(double seconds) {
        run_options options;
        options.requests = &requests_;
        auto best = run(config_, shared_, options);
        const auto begun = std::chrono::steady_clock::now();
        for (uint32_t runs = 1; best && (runs < runs_min || seconds_since(begun) < seconds);
             ++runs) {
            auto next = run(config_, shared_, options);
            if (!next || time_of(*next) < time_of(*best)) best = std::move(next);
        }
        return best;
    }

private:
    run_resources shared_;
    std::vector<model_request> requests_;
    run_config config_;
    model_shape shape_;
};

}  // namespace

// Draws from logits of several lengths. The chance of a token falls with the power 1.5 of its rank,
// so few tokens are ever drawn, as in a text.
static void measure_draws(double budget_s, measured_machine &machine) {
    for (const uint32_t count : {1024u, 4096u, 16384u, 65536u}) {
        std::vector<float> logits(count);
        for (uint32_t rank = 0; rank < count; ++rank)
            logits[rank * 40503u % count] = -1.5f * std::log(1.0f + static_cast<float>(rank));
        sampler draw({.temperature = 1, .seed = 1});
        random_stream draws = draw.draws_of(0);
        int64_t sum = 0;  // so that nothing is left out
        const double seconds = typical_seconds(budget_s, [&] {
            if (first_non_finite(logits) == logits.size()) sum += draw(logits, draws);
        });
        const double picked = typical_seconds(budget_s, [&] {
            if (first_non_finite(logits) == logits.size()) sum += most_probable(logits);
        });
        if (sum < 0) continue;
        machine.draws.push_back({static_cast<double>(count), seconds});
        machine.picks.push_back({static_cast<double>(count), picked});
    }
}

// Compares passes of four tokens with passes of one, all through the same experts. This gives the
// time that a further token adds to a layer, by its operations.
static status measure_few(uint32_t hidden, double seconds, uint32_t threads,
                          measured_machine &machine) {
    constexpr uint32_t few = 4;
    static_assert(window % few == 0);
    if (machine.few_tokens < few) return success();
    probe small(threads);
    if (const status done = small.make(hidden, top_k); !done) return done.failure();
    small.config().executor = machine.executor;
    double took_seconds[2];
    for (const uint32_t pass_tokens : {1u, few}) {
        small.prompt(window, pass_tokens);
        const auto report = small.quickest(seconds);
        if (!report) return report.failure();
        took_seconds[pass_tokens != 1] = report.value().ttft_ms.p50 / 1000 * pass_tokens / window;
    }
    const double further = (took_seconds[1] - took_seconds[0]) / layers / (few - 1);
    machine.few_layers.push_back({small.layer_bytes(), std::max(further, 1e-9)});
    return success();
}

static double drawing(const measured_machine &machine, uint32_t logits) {
    return machine.draws.size() < 2 ? 0 : logits * fit_line(machine.draws).slope;
}

// Time of the software for a decoded token, without computing, waiting and drawing the token. It
// uses the median token, because other work on the machine can make some tokens far longer.
static double software_seconds(const run_report &report, double drawing_seconds) {
    const time_causes decode = causes_of(report)[1];
    const double share = static_cast<double>(decode[cause::policy] + decode[cause::host]) /
                         static_cast<double>(std::max<uint64_t>(decode.sum(), 1));
    return std::max(share * report.tpot_ms.p50 / 1000 - drawing_seconds, 0.0);
}

status measure_tokens(double seconds, uint32_t threads, measured_machine &machine) {
    // A GPU reads small models in no time. Its constants also show in larger ones.
    const uint32_t scale = machine.is_host ? 64 : 192;
    std::vector<double> steps;
    measure_draws(seconds / 50, machine);
    for (const uint32_t hidden : {scale, 2 * scale, 3 * scale, 4 * scale}) {
        probe small(threads);
        if (const status done = small.make(hidden); !done) return done.failure();
        small.config().executor = machine.executor;
        const auto report = small.quickest(seconds / 5);
        if (!report) return report.failure();
        const double bytes = small.layer_bytes();
        // A GPU's layer includes the software, but not drawing tokens.
        const double drawn = drawing(machine, small.shape().vocabulary);
        const double software = machine.is_host ? software_seconds(report.value(), drawn) : drawn;
        const double token = report.value().tpot_ms.p50 / 1000;
        machine.token_layers.push_back({bytes, (token - software) / layers});
        steps.push_back(machine.is_host ? software / layers : 0);
        // There is too little work to measure a GPU's matrix units. Single experts have measured
        // them.
        if (!machine.is_host) continue;
        small.prompt(window);
        const auto at_once = small.quickest(seconds / 20);
        if (!at_once) return at_once.failure();
        machine.prefill_layers.push_back(
            {bytes, at_once.value().ttft_ms.p50 / 1000 / layers / window});
        if (const status done = measure_few(hidden, seconds / 40, threads, machine); !done)
            return done.failure();
    }
    machine.step_seconds = median(steps);
    machine.token_experts = top_k;
    machine.token_layer_count = layers;
    return success();
}

status measure_loads(double seconds, uint32_t threads, measured_machine &machine) {
    probe small(threads);
    if (const status done = small.make(/*hidden=*/192); !done) return done.failure();
    small.config().experts = layers * experts / 3;
    small.config().per_layer = true;
    small.config().executor = machine.executor;
    const auto real = small.quickest(seconds);
    if (!real) return real.failure();
    const run_report &report = real.value();
    const double loads = static_cast<double>(report.bytes.h2d) /
                         static_cast<double>(small.shape().expert_bytes) /
                         static_cast<double>(report.tokens);
    const double steps_seconds = machine.step_seconds * layers;
    if (loads > 0)
        machine.load_seconds =
            std::max(software_seconds(report, drawing(machine, small.shape().vocabulary)) -
                         steps_seconds,
                     0.0) /
            loads;
    return success();
}

}  // namespace moorage::tool
