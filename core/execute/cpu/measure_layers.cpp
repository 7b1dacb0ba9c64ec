// measure_layers.cpp - what a layer and a pass cost beside their bytes: small models, extrapolated.
#include <numeric>
#include <vector>

#include "core/execute/cpu/cpu_model.h"
#include "core/execute/cpu/forward.h"
#include "core/execute/measure_models.h"
#include "core/execute/cpu/measure_parts.h"
#include "core/execute/measure_timing.h"

namespace moorage::core {

namespace {

constexpr uint32_t positions_max = 32, layers = 4;

struct layer_time {
    double layer_seconds = 0, pass_seconds = 0;  // of run_attention(); of begin() and run_head()
};

// One token after the other through a model, its operations timed apart. Experts run untimed.
result<layer_time> time_layers(const model &model, thread_pool &pool, double budget_s) {
    auto created = cpu_model::create(model, pool, {.context_max = positions_max});
    if (!created) return created.failure();
    cpu_model &compute = **created;
    const uint32_t top_k = model.config().top_k;
    std::vector<uint32_t> chosen(top_k);
    const std::vector<float> weights(top_k, 1.0f / static_cast<float>(top_k));
    std::vector<double> layer_samples, pass_samples;
    const auto begun = std::chrono::steady_clock::now();
    for (uint32_t count = 0; count < 2 * positions_max || seconds_since(begun) < budget_s;
         ++count) {
        const int32_t id = static_cast<int32_t>(count % model.config().vocabulary);
        const pass token = prompt_pass({&id, 1}, 0, count % positions_max, true);
        auto begin = std::chrono::steady_clock::now();
        compute.begin(token);
        double pass_seconds = seconds_since(begin);
        for (uint32_t layer = 0; layer < layers; ++layer) {
            begin = std::chrono::steady_clock::now();
            compute.run_attention(layer);
            layer_samples.push_back(seconds_since(begin));
            std::iota(chosen.begin(), chosen.end(), count * top_k);
            for (uint32_t &expert : chosen) expert %= model.config().experts;
            compute.route(chosen, weights);
            compute.run_experts(layer, chosen);
        }
        begin = std::chrono::steady_clock::now();
        compute.run_head();
        pass_samples.push_back(pass_seconds + seconds_since(begin));
    }
    return layer_time{lower_quartile(layer_samples), lower_quartile(pass_samples)};
}

}  // namespace

status measure_layers(thread_pool &pool, double budget_s, measured_machine &machine) {
    std::vector<timed_sample> layer_samples, pass_samples;
    for (const uint32_t hidden : {64u, 128u, 192u, 256u, 512u}) {
        const auto model = probe_model({layers, hidden, hidden / 2, 16, 2, 8 * hidden});
        if (!model) return model.failure();
        const auto times = time_layers(**model, pool, budget_s);
        if (!times) return times.failure();
        const model_shape shape = shape_of(**model, "");
        const double head = 2.0 * shape.vocabulary * shape.hidden;
        layer_samples.push_back({(static_cast<double>(shape.dense_bytes) - head) / layers,
                                 times.value().layer_seconds});
        pass_samples.push_back({head, times.value().pass_seconds});
    }
    machine.layer_seconds = fit_line(layer_samples).constant;
    machine.pass_seconds = fit_line(pass_samples).constant;
    return success();
}

}  // namespace moorage::core
