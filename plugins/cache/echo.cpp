// echo.cpp - routing repeats: evicts and prefetches by what followed the most similar history.
//
// The policy learns online how soon each expert will be used again. It learns this from the
// expert's rates of use, and from what came after tokens with routing like the running one's
// (echo_values.hpp). It evicts the expert with the longest wait over all layers (value_order.hpp).
//
// The same matches predict the coming layers without a gate. As a prefetch policy it orders experts
// that are wanted `ahead` layers from here with a probability of at least `threshold`: nearest
// layer first, most probable first. It is one instance if both stages name it. If the host has the
// gate's prediction for the next layer, the policy mixes both (gate_mix.hpp).
//
// Our reading of the study of routing history where it leaves room: matches are complete tokens of
// the last `history`; among equal ones the newest counts. Chances are kept in [1e-4, 1 - 1e-4].
// Adam corrects its bias. The value in a target comes from the weights before the step. Rates are
// telescoped: r2 - r8, r8 - r32, r32 - r128, r128 - cumulative, cumulative - base. Transitions are
// averaged over the experts used now.
//
// Cost: that of echo_values.hpp, and for a prediction O(experts of a layer * matches).
//
// Misses / misses of the optimum, shared cache, token order, all tokens. The first four columns are
// means over 12.5, 25, 37.5, 50 and 75 % of the experts, the last five are echo at these shares.
// Repeat with: moorage replay TRACE --policies lfu,ema,lin,echo --slots 12.5%,25%,37.5%,50%,75%
//
//   trace                         lfu    ema    lin    echo   12.5   25     37.5   50     75 %
//   gpt-oss-20b.a                 2.051  1.882  1.772  1.646  1.244  1.442  1.603  1.779  2.160
//   deepseek-v2-lite.intent-law   2.179  1.930  1.813  1.486  1.190  1.316  1.429  1.570  1.924
//   llamamoe-shape.long           1.729  1.638  1.614  1.527  1.126  1.301  1.445  1.630  2.133
//   mixtral-shape.long            1.677  1.579  1.561  1.475  1.100  1.259  1.426  1.597  1.991
//   mixtral-shape.prose           1.585  1.442  1.438  1.423  1.116  1.244  1.429  1.553  1.774
//   qwen15moe-shape.long          2.092  1.797  1.748  1.686  1.374  1.591  1.790  1.925  1.749
//   qwen15moe-shape.code          1.830  1.704  1.668  1.601  1.402  1.640  1.834  1.868  1.260
//   qwen15moe-shape.arith         1.642  1.445  1.519  1.354  1.264  1.435  1.531  1.539  1.000
//   demo.long                     1.916  1.761  1.697  1.546  1.201  1.360  1.509  1.656  2.003
//   mean of 45                    1.855  1.686  1.648  1.527  1.224  1.399  1.555  1.680  1.777
//   worst of 45                   2.88   2.43   2.43   2.16
//
// lfu has a half-life of 16. Other half-lives of lfu: 24 gives 1.856, 32 1.874, none 2.644. Other
// parameters of echo, mean of 25 cells of five of these traces: defaults 1.534, `discount` .85
// 1.537, `position` 5 1.534. So the study's values stay.
//
// Microseconds a layer step above those of lru: one core with AVX-512, in brackets AVX2; 5,000
// tokens at 25 %; processor time on a shared machine, least of three. bin/learned_cache_perf
// measures the same on made-up traces. Without vector instructions (`simd` = portable: SSE2) echo
// takes about 8 at 60 experts.
//
//          gpt-oss (32)  deepseek (64, k 6)  qwen.long (60)  mixtral.long (8)  llamamoe.long (16)
//   ema    0.5           0.9                 0.6             0.3               0.4
//   lin    0.6           1.0                 0.8             0.3               0.5
//   echo   1.2 (1.8)     2.0 (3.0)           1.7 (2.8)       0.9 (1.4)         1.1 (1.6)

#include <algorithm>

#include "echo_values.hpp"

namespace {

class echo : public learning::echo_values {
public:
    static constexpr moorage::about about{
        .name = "echo",
        .summary = "evicts and prefetches by what followed similar routing before",
        .source = "this project's study: routing history repeats",
    };
    static constexpr moorage::param params[] = {
        learning::history_param,
        learning::matches_param,
        learning::carry_param,
        learning::sharpness_param,
        learning::learning_rate_param,
        learning::discount_param,
        learning::position_param,
        moorage::integer("ahead", 1, 1, 4096, "prefetch: layers ahead that are predicted"),
        moorage::real("threshold", 0.5, 0, 1, "prefetch: least probability that is fetched"),
        moorage::flag("gate", true, "prefetch: mix in the gate's prediction where there is one"),
        learning::simd_param,
    };

    explicit echo(const moorage::setup &setup)
        : echo_values(setup),
          layers_ahead_(static_cast<uint32_t>(setup.integer("ahead"))),
          threshold_(static_cast<float>(setup.real("threshold"))),
          gate_(setup.flag("gate")) {}

    void activate(const moorage::limits &limits) {
        echo_values::activate(limits);
        ranked_.resize(limits.experts);
        ranked_max_ = std::min(limits.experts, std::max(4 * limits.top_k, 16u));
    }

    uint32_t horizon() { return layers_ahead_; }

    // Leaves the next layer to the gate; plan mixes with it.
    uint32_t predict(const moorage::step &step, uint32_t layer, uint32_t distance,
                     std::span<uint32_t> experts, std::span<float> scores) {
        if (gate_ && distance == 1) return 0;
        compute_chances(layer, distance);
        const uint32_t count =
            std::min(rank(step.experts, 0), static_cast<uint32_t>(experts.size()));
        for (uint32_t i = 0; i < count; ++i) {
            experts[i] = ranked_[i];
            scores[i] = chances_[ranked_[i]];
        }
        return count;
    }

    void plan(const moorage::step &step, const moorage::forecast &forecast,
              moorage::orders &orders) {
        for (uint32_t target = 0; target < forecast.target_count; ++target) {
            const uint32_t layer = forecast.host_layers[target];
            const std::span<const uint32_t> predicted = forecast.experts(target);
            if (gate_ && target == 0) {
                compute_chances(layer, 1);
                if (!predicted.empty()) mix_.mix(layer, predicted, chances_.data());
                const uint32_t count = rank(step.experts, threshold_);
                for (uint32_t i = 0; i < count; ++i)
                    order(layer, ranked_[i], chances_[ranked_[i]], step, orders);
            } else {
                const std::span<const float> scores = forecast.scores(target);
                for (uint32_t i = 0; i < predicted.size() && i < scores.size(); ++i)
                    order(layer, predicted[i], scores[i], step, orders);
            }
        }
    }

private:
    // Puts the most probable experts first, ties by number, and leaves out those below `least`.
    // Returns their number in ranked_.
    uint32_t rank(uint32_t experts, float least) {
        uint32_t probable = 0;
        for (uint32_t first = 0; first < experts; first += 16) {  // in most blocks few are probable
                                                                  // enough
            const float *const chances = chances_.data() + first;
            uint32_t found = 0;
            for (uint32_t i = 0; i < 16; ++i) found |= chances[i] >= least;
            for (uint32_t i = 0; found && i < 16 && first + i < experts; ++i) {
                ranked_[probable] = first + i;
                probable += chances[i] >= least;
            }
        }
        const uint32_t count = std::min(ranked_max_, probable);
        std::partial_sort(ranked_.begin(), ranked_.begin() + count, ranked_.begin() + probable,
                          [this](uint32_t a, uint32_t b) {
                              return chances_[a] != chances_[b] ? chances_[a] > chances_[b] : a < b;
                          });
        return count;
    }

    void order(uint32_t layer, uint32_t expert, float chance, const moorage::step &step,
               moorage::orders &orders) const {
        const uint32_t page = layer * step.experts + expert;
        if (chance < threshold_) return;
        const uint32_t present = state_[page] | state_[page] >> MOORAGE_STATE_IN_FLIGHT_SHIFT;
        if ((present & MOORAGE_WHOLE) == MOORAGE_WHOLE) return;
        orders.push(page);
    }

    const uint32_t layers_ahead_;
    const float threshold_;
    const bool gate_;
    std::vector<uint32_t> ranked_;
    uint32_t ranked_max_ = 0;
};

}  // namespace

MOORAGE_POLICIES("org.moorage.echo", "1.0.0", echo)
