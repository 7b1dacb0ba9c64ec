// ema.cpp - evicts the expert whose next use is furthest by a value learned from its use rates.
//
// The lightest form of echo (echo.cpp). Its inputs are rates of use, decayed over 2, 8, 32 and 128
// visits, over all visits and in the running request. A regression that learns online weighs them
// (use_values.hpp). The place of the expert's layer in the round counts too (value_order.hpp).
// Cost: 0.6 us a step of 60 experts with AVX2 or AVX-512; a victim O(layers + experts of a layer).
// Memory: 56 bytes an expert, and 4 more for each stream.

#include "learned_cache.hpp"

namespace {

class ema : public learning::learned_cache {
public:
    static constexpr moorage::about about{
        .name = "ema",
        .summary = "evicts by a value learned online from decayed use rates",
        .source = "this project's study, its lightest form",
    };
    static constexpr moorage::param params[] = {
        learning::learning_rate_param,
        learning::discount_param,
        learning::position_param,
        learning::simd_param,
    };

    explicit ema(const moorage::setup &setup) : learned_cache(setup, 1) {}
    void activate(const moorage::limits &limits) {
        activate_common(limits);
        reset();
    }
    void reset() { reset_common(); }
    void observe(const moorage::step &step) {
        begin_step(step);
        values_.learn();
    }
};

}  // namespace

MOORAGE_POLICIES("org.moorage.ema", "1.0.0", ema)
