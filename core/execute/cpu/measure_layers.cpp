// measure_layers.cpp - what a layer and a pass cost beside their bytes: small models, extrapolated.
#include <numeric>
#include <vector>

#include "core/execute/cpu/cpu_model.h"
#include "core/execute/cpu/forward.h"
#include "core/execute/cpu/measure_models.h"
#include "core/execute/cpu/measure_parts.h"
#include "core/execute/cpu/measure_timing.h"

namespace moorage::core {

namespace {

constexpr uint32_t positions_max = 32, layers = 4;

struct layer_time {
    double layer_seconds = 0, pass_seconds = 0;  // of attention(); of begin() and head()
};

// One token after the other through a model, its operations timed apart. Experts run untimed.
result<layer_time> time_layers(const model &of, thread_pool &pool, double budget_s) {
    auto made = cpu_model::create(of, pool, {.context_max = positions_max});
    if (!made) return made.failure();
    cpu_model &compute = **made;
    const uint32_t top_k = of.config().top_k;
    std::vector<uint32_t> chosen(top_k);
    const std::vector<float> weights(top_k, 1.0f / static_cast<float>(top_k));
    std::vector<double> of_layer, of_pass;
    const auto begun = std::chrono::steady_clock::now();
    for (uint32_t count = 0; count < 2 * positions_max || seconds_since(begun) < budget_s;
         ++count) {
        const int32_t id = static_cast<int32_t>(count % of.config().vocabulary);
        const pass token = prompt_pass({&id, 1}, 0, count % positions_max, true);
        auto from = std::chrono::steady_clock::now();
        compute.begin(token);
        double pass_seconds = seconds_since(from);
        for (uint32_t layer = 0; layer < layers; ++layer) {
            from = std::chrono::steady_clock::now();
            compute.attention(layer);
            of_layer.push_back(seconds_since(from));
            std::iota(chosen.begin(), chosen.end(), count * top_k);
            for (uint32_t &expert : chosen) expert %= of.config().experts;
            compute.route(chosen, weights);
            compute.experts(layer, chosen);
        }
        from = std::chrono::steady_clock::now();
        compute.head();
        of_pass.push_back(pass_seconds + seconds_since(from));
    }
    return layer_time{lower_quartile(of_layer), lower_quartile(of_pass)};
}

}  // namespace

status measure_layers(thread_pool &pool, double budget_s, measured_machine &into) {
    std::vector<timed> of_layer, of_pass;
    for (const uint32_t hidden : {64u, 128u, 192u, 256u, 512u}) {
        const auto made = probe_model({layers, hidden, hidden / 2, 16, 2, 8 * hidden});
        if (!made) return made.failure();
        const auto taken = time_layers(**made, pool, budget_s);
        if (!taken) return taken.failure();
        const model_shape shape = shape_of(**made, "");
        const double head = 2.0 * shape.vocabulary * shape.hidden;
        of_layer.push_back({(static_cast<double>(shape.dense_bytes) - head) / layers,
                            taken.value().layer_seconds});
        of_pass.push_back({head, taken.value().pass_seconds});
    }
    into.layer_seconds = fit_line(of_layer).constant;
    into.pass_seconds = fit_line(of_pass).constant;
    return success();
}

}  // namespace moorage::core
