// values.cpp - checks a row's values against what is possible for its model and machine.
#include <cmath>

#include "core/base/text.h"
#include "tools/validate/lookup.h"

namespace moorage::core {

namespace {

struct value_limits {
    const char *column;
    double value, low, high;
    bool whole = true;
};

// Limits of residency_value for each residency_kind; none if the row does not give it.
value_limits residency_limits(const measurement &figure, const model_shape &shape) {
    const std::string &kind = figure.residency;
    const double total_experts = double(shape.experts) * shape.moe_layers;
    value_limits limits{"residency_value", figure.residency_value, 0, -1};
    if (kind == "slots_per_layer")
        limits.high = shape.experts, limits.whole = false;  // a mean over layers
    if (kind == "slots_total") limits.high = total_experts;
    if (kind == "experts_share") limits.high = 1, limits.whole = false;
    if (kind == "cpu_layers") limits.high = shape.layers;
    if (limits.high < 0) limits.value = unknown;
    return limits;
}

}  // namespace

status check_values(const measurement &figure, const model_shape &shape) {
    constexpr double tokens_max = 1 << 20, bits_min = 0.1, bits_max = 64;
    const double gpus_min = figure.gpu == "none" ? 0 : 1;
    const value_limits checks[] = {
        {"gpu_count", figure.gpu_count, gpus_min, 1024},
        {"threads", figure.threads, 1, 1024},
        {"bits_experts", figure.expert_bits, bits_min, bits_max, false},
        {"bits_dense", figure.dense_bits, bits_min, bits_max, false},
        {"bits_head", figure.head_bits, bits_min, bits_max, false},
        {"top_k", figure.top_k, 1, double(shape.experts)},
        {"batch", figure.batch, 1, tokens_max},
        {"microbatch", figure.microbatch, 1, tokens_max},
        {"prompt_tokens", figure.prompt_tokens, 1, tokens_max},
        {"host_layers", figure.host_layers, 0, double(shape.layers)},
        residency_limits(figure, shape),
    };
    for (const value_limits &limit : checks) {
        if (limit.value == unknown) continue;
        const bool fits = limit.value >= limit.low && limit.value <= limit.high &&
                          (!limit.whole || limit.value == std::floor(limit.value));
        if (!fits)
            return error{format("{}: {} {}: a {}number from {} to {} is needed", figure.place,
                                limit.column, limit.value, limit.whole ? "whole " : "", limit.low,
                                limit.high)};
    }
    return success();
}

}  // namespace moorage::core
