// score.cpp - evicts the expert of the lowest mean gate score over the last steps of its layer.
//
// Source: SMoE, Equation 3, Section IV-B. The score S_ij of expert i counts whether i was chosen or
// not. So experts that were nearly chosen stay as substitutes. The mean is over steps max(1, j - n)
// .. j of the layer, the running one included: up to n + 1 values. Pinned experts are never taken
// (the paper's shield). Equal means: the smaller page. An expert of a layer without a step yet has
// mean 0.
//
// The paper leaves these points open. We chose: n is 32, where six traces of three models miss
// least on average, at 25, 50 and 75 % of experts, shared and per layer (24 to 64 differ by 1 %).
// The candidates are those of the pool that needs room, one layer or all. The tokens of a step
// count as one value, their mean, or with `batch` the largest. Prefill steps count like others
// (`prefill`). Texts are not separated.
//
// `score_chosen` is the same if only the weights of the chosen experts are known. The weights are
// their scores, and all other experts have 0.
//
// Scores are whole multiples of 2^-50 and sums are exact: nothing drifts, and equal histories tie.
// Cost: a step O(tokens * experts); a victim O(experts) for layers that changed since the last
// look, and one comparison for each other layer of the pool.

#include <moorage/moorage.hpp>

#include <algorithm>
#include <vector>

namespace {

__extension__ typedef unsigned __int128 wide;

// Scores of the last `steps` steps of every layer, and their sums.
class score_window {
public:
    void assign(uint32_t layers, uint32_t experts, uint32_t steps) {
        experts_ = experts;
        steps_ = steps;
        scores_.resize(size_t{layers} * steps * experts);
        sums_.resize(size_t{layers} * experts);
        layers_.resize(layers);
        clear();
    }
    void clear() {
        std::fill(scores_.begin(), scores_.end(), 0);
        std::fill(sums_.begin(), sums_.end(), 0);
        std::fill(layers_.begin(), layers_.end(), place{0, 0});
    }
    // Adds the `scores` [experts] of one more step.
    void add(uint32_t layer, const std::vector<uint64_t> &scores) {
        place &place = layers_[layer];
        uint64_t *row = scores_.data() + (size_t{layer} * steps_ + place.next) * experts_;
        uint64_t *sums = sums_.data() + size_t{layer} * experts_;
        for (uint32_t expert = 0; expert < experts_; ++expert) {
            sums[expert] += scores[expert] - row[expert];  // 0 until the row is used again
            row[expert] = scores[expert];
        }
        place.next = place.next + 1 == steps_ ? 0 : place.next + 1;
        place.count = std::min(place.count + 1, steps_);
    }
    uint64_t sum(uint32_t page) const { return sums_[page]; }
    // Whether the mean of `a` is below that of `b`.
    bool below(uint32_t a, uint32_t b) const {
        const uint32_t count_a = layers_[a / experts_].count, count_b = layers_[b / experts_].count;
        if (count_a == count_b) return sums_[a] < sums_[b];
        // The sum of no steps is 0, whatever it is divided by.
        return wide{sums_[a]} * std::max(count_b, 1u) < wide{sums_[b]} * std::max(count_a, 1u);
    }

private:
    struct place {
        uint32_t next, count;
    };
    uint32_t experts_ = 0, steps_ = 0;
    std::vector<uint64_t> scores_;  // [layer, step modulo steps_, expert]
    std::vector<uint64_t> sums_;    // [page]
    std::vector<place> layers_;
};

constexpr moorage::param score_params[] = {
    moorage::integer("window", 32, 0, 4095,
                     "steps before the running one whose scores count (the paper's n)"),
    moorage::text("batch", "mean", "mean|max", "how the tokens of a step give one score"),
    moorage::flag("prefill", true, "prefill steps count, too"),
};

class mean_score_cache {
public:
    explicit mean_score_cache(const moorage::setup &setup)
        : host_(setup.host),
          window_(static_cast<uint32_t>(setup.integer("window"))),
          mean_(setup.text("batch") == "mean"),
          prefill_(setup.flag("prefill")) {}

    void activate(const moorage::limits &limits) {
        experts_ = limits.experts;
        pools_ = limits.pools;
        state_ = host_.residency()->host_state;
        past_.assign(limits.layers, limits.experts, window_ + 1);
        step_scores_.resize(limits.experts);
        least_.resize(limits.layers);
        taken_.resize(size_t{limits.layers} * limits.experts);
        named_.reserve(taken_.size());
        reset();
    }

    void reset() {
        past_.clear();
        std::fill(least_.begin(), least_.end(), unknown);
        std::fill(taken_.begin(), taken_.end(), uint8_t{0});
    }

    void on_load(uint32_t page, uint32_t, int32_t) { least_[page / experts_] = unknown; }
    void on_evict(uint32_t page, int32_t) { least_[page / experts_] = unknown; }

    void victims(const moorage::room &room, moorage::pages &victims) {
        const uint32_t first = pools_ == 1 ? 0 : room.pool;
        const uint32_t last = pools_ == 1 ? static_cast<uint32_t>(least_.size()) : first + 1;
        while (!victims.full()) {
            const uint32_t page = least_of(first, last);
            if (page == moorage::none) break;
            victims.push(page);
            named_.push_back(page);
            taken_[page] = 1;
            least_[page / experts_] = unknown;
        }
        for (const uint32_t page : named_) {
            taken_[page] = 0;
            least_[page / experts_] = unknown;  // the layer was searched without this page
        }
        named_.clear();
    }

protected:
    bool counts(const moorage::step &step) const {
        return prefill_ || step.phase != MOORAGE_PREFILL;
    }
    static uint64_t to_fixed_point(float score) {
        const double bounded = score > 0 ? std::min(static_cast<double>(score), 2.0) : 0;
        return static_cast<uint64_t>(static_cast<int64_t>(bounded * score_unit));
    }
    void begin_step() { std::fill(step_scores_.begin(), step_scores_.end(), 0); }
    void add(uint32_t expert, float score) {
        step_scores_[expert] = mean_ ? step_scores_[expert] + to_fixed_point(score)
                                     : std::max(step_scores_[expert], to_fixed_point(score));
    }
    void end_step(const moorage::step &step) {
        if (mean_ && step.token_count > 1)
            for (uint64_t &score : step_scores_) score /= step.token_count;
        past_.add(step.layer, step_scores_);
        least_[step.layer] = unknown;
    }

private:
    // A sum of 4096 scores, each at most 2, stays below 2^63.
    static constexpr double score_unit = 1125899906842624;  // 2^50
    static constexpr uint32_t unknown = moorage::none - 1;

    // The layer's page that is evicted first, or none. Remembered until the layer changes, but not
    // if pinned pages had to be skipped.
    uint32_t least_in(uint32_t layer) {
        uint32_t &known = least_[layer];
        if (known == moorage::none || (known != unknown && moorage::evictable(state_[known])))
            return known;
        uint32_t least = moorage::none;
        bool passed = false;
        for (uint32_t page = layer * experts_; page < (layer + 1) * experts_; ++page) {
            passed |= (state_[page] & MOORAGE_STATE_PINNED) != 0;
            if (!moorage::evictable(state_[page]) || taken_[page]) continue;
            if (least == moorage::none || past_.sum(page) < past_.sum(least)) least = page;
        }
        known = passed ? unknown : least;
        return least;
    }
    uint32_t least_of(uint32_t first, uint32_t last) {
        uint32_t least = moorage::none;
        for (uint32_t layer = first; layer < last; ++layer) {
            const uint32_t page = least_in(layer);
            if (page != moorage::none && (least == moorage::none || past_.below(page, least)))
                least = page;
        }
        return least;
    }

    moorage::host host_;
    const uint32_t window_;
    const bool mean_, prefill_;
    const uint32_t *state_ = nullptr;
    uint32_t experts_ = 0, pools_ = 1;
    score_window past_;
    std::vector<uint64_t> step_scores_;  // [expert] scores of the running step
    std::vector<uint32_t> least_;        // [layer] page that is evicted first, none, or unknown
    std::vector<uint8_t> taken_;         // [page] whether it is among named_
    std::vector<uint32_t> named_;        // in the running call
};

class score : public mean_score_cache {
public:
    static constexpr moorage::about about{
        .name = "score",
        .summary = "evicts the expert of the lowest mean gate score in the last steps",
        .source = "SMoE, Equation 3, Section IV-B",
        .needs = MOORAGE_NEEDS_GATE_SCORES,
    };
    static constexpr std::span<const moorage::param> params = score_params;

    using mean_score_cache::mean_score_cache;

    void observe(const moorage::step &step) {
        if (!step.host_gate_scores || !counts(step)) return;
        begin_step();
        for (uint32_t token = 0; token < step.token_count; ++token) {
            const std::span<const float> scores = step.gate_scores(token);
            for (uint32_t expert = 0; expert < step.experts; ++expert) add(expert, scores[expert]);
        }
        end_step(step);
    }
};

class score_chosen : public mean_score_cache {
public:
    static constexpr moorage::about about{
        .name = "score_chosen",
        .summary = "as score, where only the weights of the chosen experts are known",
        .source = "SMoE, Equation 3, with 0 for experts that were not chosen",
        .needs = MOORAGE_NEEDS_WEIGHTS,
    };
    static constexpr std::span<const moorage::param> params = score_params;

    using mean_score_cache::mean_score_cache;

    void observe(const moorage::step &step) {
        if (!step.host_weights || !counts(step)) return;
        begin_step();
        for (uint32_t i = 0; i < step.token_count * step.top_k; ++i)
            add(step.host_chosen[i], step.host_weights[i]);
        end_step(step);
    }
};

}  // namespace

MOORAGE_POLICIES("org.moorage.score", "1.0.0", score, score_chosen)
