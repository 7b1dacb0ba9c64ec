// statistics.cpp - weights double every half-life, and counts are divided by them when they are
// read.
#include "tools/placement/statistics.h"

#include <cassert>
#include <cmath>

#include "core/base/portable_math.h"

namespace moorage::core {

namespace {

constexpr double half_lives_max = 64, ln_2 = 0.69314718055994530942;

}  // namespace

activation_window::activation_window(const demand_arrays &demand, double half_life_s,
                                     uint64_t start_ns)
    : homes_(demand.homes),
      experts_(demand.experts()),
      half_life_ns_(half_life_s * 1e9),
      start_ns_(start_ns),
      origin_ns_(static_cast<double>(start_ns)),
      weight_ns_(start_ns),
      counts_(uint64_t{demand.homes} * demand.experts(), 0.0) {
    assert(half_life_s > 0);
}

double activation_window::weight_at(uint64_t now_ns) const {
    const double half_lives = (static_cast<double>(now_ns) - origin_ns_) / half_life_ns_;
    const double whole = std::floor(half_lives);
    // Events more than a thousand half-lives away exceed the range of a double.
    if (std::fabs(whole) > 1000) return whole < 0 ? 0 : std::ldexp(1.0, 1000);
    return std::ldexp(portable_exp((half_lives - whole) * ln_2), static_cast<int>(whole));
}

void activation_window::set_weight(uint64_t now_ns) {
    const double half_lives = (static_cast<double>(now_ns) - origin_ns_) / half_life_ns_;
    if (half_lives > half_lives_max) {
        const double whole = std::floor(half_lives);
        const double scale = whole > 1000 ? 0 : std::ldexp(1.0, -static_cast<int>(whole));
        for (double &count : counts_) count *= scale;
        origin_ns_ += whole * half_life_ns_;
    }
    weight_ns_ = now_ns;
    weight_ = weight_at(now_ns);
}

void activation_window::fill(demand_arrays &demand, uint64_t now_ns) const {
    assert(demand.homes == homes_ && demand.experts() == experts_);
    const double weight = weight_at(now_ns);
    const double elapsed =
        now_ns > start_ns_ ? static_cast<double>(now_ns - start_ns_) / half_life_ns_ : 0;
    const double span_s = half_life_ns_ * 1e-9 / ln_2 * (1 - portable_exp(-elapsed * ln_2));
    demand.window_s = span_s;
    for (uint32_t home = 0; home < homes_; ++home) {
        const double *counts = &counts_[uint64_t{home} * experts_];
        std::vector<double> tokens(demand.models, 0.0);
        double token_sum = 0;
        for (uint32_t model = 0; model < demand.models; ++model) {
            for (uint32_t n = demand.model_first[model]; n < demand.model_first[model + 1]; ++n)
                tokens[model] += counts[n];
            tokens[model] /= double{1} * demand.model_layers[model] * demand.model_top_k[model];
            token_sum += tokens[model];
        }
        for (uint32_t model = 0; model < demand.models; ++model)
            demand.home_model[uint64_t{home} * demand.models + model] =
                token_sum > 0 ? tokens[model] / token_sum : 0;
        for (uint32_t n = 0; n < experts_; ++n)
            demand.frequency[uint64_t{home} * experts_ + n] =
                token_sum > 0 ? counts[n] / token_sum : 0;
        demand.home_tokens_per_s[home] = span_s > 0 ? token_sum / weight / span_s : 0;
    }
    demand.home_first_call.clear();
    demand.call_group.clear();
    demand.call_share.clear();
    demand.group_first.clear();
    demand.group_experts.clear();
}

}  // namespace moorage::core
