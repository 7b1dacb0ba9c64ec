// smoe.cpp - the expert-cache router: resident experts replace absent low-score ones. Lossy.
//
// Source: SMoE, Algorithm 1, Table II, Equation 1, Sections IV-A and IV-B. For each token, let E_a
// be the model's own choice and S the score that just missed it, the (k+1)-th:
//   low          in E_a: S <= score < (1 + alpha) S; the others of E_a are top-score
//   inside       resident, or a top-score expert of any token of the batch (it will be computed)
//   substitutes  not in E_a: (1 - alpha) S < score <= S, and inside
// Low experts that are inside stay. Among the other low ones, as many as there are substitutes give
// way. The lowest score goes first, and the substitutes of highest score come in. Equal scores: the
// smaller expert counts as the higher. So alpha = 0 is the model's own choice, order included. A
// substitute never scores above the expert that it replaces.
//
// Some models choose by more than the gate score (limits on groups of experts, corrections). So S
// is the largest score outside E_a that is not above the lowest of E_a. For a plain top-k this is
// the (k+1)-th score. An expert that the model passed over despite its score is never taken.
//
// The host sets the weights: it applies the model's own rule to the chosen experts. Arrived
// prefetches count as resident, experts in flight do not. For a split expert, `resident` says which
// part must be there. Cost per call: O(tokens * experts).

#include <moorage/moorage.hpp>

#include <algorithm>
#include <vector>

namespace {

class smoe {
public:
    static constexpr moorage::about about{
        .name = "smoe",
        .summary = "replaces absent low-score experts by resident ones of nearly the same score",
        .source = "SMoE, Algorithm 1, Section IV-B",
        .flags = MOORAGE_POLICY_LOSSY,
        .needs = MOORAGE_NEEDS_GATE_SCORES,
        .method_params = "alpha",
    };
    static constexpr moorage::param params[] = {
        moorage::real(
            "alpha", 0.3, 0, 1,
            "substitution threshold, a share of the (k+1)-th gate score; 0: lossless. The "
            "paper has 0.25 to 0.35 (Section VI-B)"),
        moorage::flag("prefill", true, "substitute in prefill steps, too"),
        moorage::text("resident", "any", "any|whole",
                      "segments that make a split expert resident: any of them, or both"),
    };

    explicit smoe(const moorage::setup &setup)
        : host_(setup.host),
          alpha_(setup.real("alpha")),
          prefill_(setup.flag("prefill")),
          whole_(setup.text("resident") == "whole") {}

    void activate(const moorage::limits &limits) {
        state_ = host_.residency()->host_state;
        next_score_.resize(limits.tokens_max);
        inside_.resize(limits.experts);
        outside_.resize(limits.experts);
        absent_.reserve(limits.top_k);
        substitutes_.reserve(limits.experts);
    }
    void reset() {}

    uint32_t select(const moorage::step &step, moorage::route &route) {
        if (!step.host_gate_scores) return 0;
        if (step.phase == MOORAGE_PREFILL && !prefill_) return 0;
        for (uint32_t expert = 0; expert < step.experts; ++expert)
            inside_[expert] = is_resident(state_[step.page(expert)]);
        for (uint32_t token = 0; token < step.token_count; ++token) add_top(step, token);
        for (uint32_t token = 0; token < step.token_count; ++token) choose(step, token, route);
        return step.token_count;
    }

private:
    static constexpr float no_score = -1;  // nothing is below E_a, so nothing is low

    bool is_resident(uint32_t state) const {
        const uint32_t arrived =
            (state & MOORAGE_STATE_BUFFERED) >> MOORAGE_STATE_BUFFERED_SHIFT &
            ~((state & MOORAGE_STATE_IN_FLIGHT) >> MOORAGE_STATE_IN_FLIGHT_SHIFT);
        const uint32_t segments = (state & MOORAGE_STATE_RESIDENT) | arrived;
        return whole_ ? segments == MOORAGE_WHOLE : segments != 0;
    }

    // Returns S of the token. Leaves the scores of the experts outside the choice in outside_, and
    // for the chosen ones a value below every score.
    float score_below(const moorage::step &step, uint32_t token) {
        const std::span<const float> scores = step.gate_scores(token);
        float *outside = outside_.data();
        std::copy(scores.begin(), scores.end(), outside);
        float lowest = scores[step.chosen(token)[0]];
        for (const uint32_t expert : step.chosen(token)) {
            lowest = std::min(lowest, scores[expert]);
            outside[expert] = no_score;
        }
        float best = no_score;
        for (uint32_t expert = 0; expert < step.experts; ++expert) {
            const float score = outside[expert] <= lowest ? outside[expert] : no_score;
            best = score > best ? score : best;
        }
        return best;
    }
    bool is_low(float score, float next) const {
        return score >= next && score < (1 + alpha_) * static_cast<double>(next);
    }

    void add_top(const moorage::step &step, uint32_t token) {
        const float next = next_score_[token] = score_below(step, token);
        const std::span<const float> scores = step.gate_scores(token);
        for (const uint32_t expert : step.chosen(token))
            if (next < 0 || !is_low(scores[expert], next)) inside_[expert] |= top_bit;
    }

    void choose(const moorage::step &step, uint32_t token, moorage::route &route) {
        const std::span<const uint32_t> chosen = step.chosen(token);
        uint32_t *experts = route.host_experts + size_t{token} * step.top_k;
        uint8_t *classes = route.host_classes + size_t{token} * step.top_k;
        const std::span<const float> scores = step.gate_scores(token);
        const float next = next_score_[token];
        absent_.clear();
        for (uint32_t rank = 0; rank < chosen.size(); ++rank) {
            experts[rank] = chosen[rank];
            const bool low = next >= 0 && is_low(scores[chosen[rank]], next);
            classes[rank] = low ? MOORAGE_CLASS_LOW : MOORAGE_CLASS_TOP;
            if (low && !inside_[chosen[rank]]) absent_.push_back(chosen[rank]);
        }
        if (absent_.empty()) return;
        find_substitutes(step, token);
        const size_t count = std::min(absent_.size(), substitutes_.size());
        if (count == 0) return;
        const auto higher = [&](uint32_t a, uint32_t b) {
            return scores[a] != scores[b] ? scores[a] > scores[b] : a < b;
        };
        std::sort(absent_.begin(), absent_.end(), higher);
        std::sort(substitutes_.begin(), substitutes_.end(), higher);
        absent_.erase(absent_.begin(), absent_.end() - static_cast<std::ptrdiff_t>(count));
        // The experts that stay keep their order. The substitutes follow: none scores higher.
        uint32_t kept = 0;
        for (uint32_t rank = 0; rank < chosen.size(); ++rank) {
            if (std::find(absent_.begin(), absent_.end(), chosen[rank]) != absent_.end()) continue;
            experts[kept] = chosen[rank];
            classes[kept++] = classes[rank];
        }
        for (size_t i = 0; i < count; ++i) {
            experts[kept] = substitutes_[i];
            classes[kept++] = MOORAGE_CLASS_SUBSTITUTE;
        }
    }

    void find_substitutes(const moorage::step &step, uint32_t token) {
        const std::span<const float> scores = step.gate_scores(token);
        const std::span<const uint32_t> chosen = step.chosen(token);
        const float next = next_score_[token];
        const double above = (1 - alpha_) * static_cast<double>(next);
        substitutes_.clear();
        for (uint32_t expert = 0; expert < step.experts; ++expert)
            if (scores[expert] > above && scores[expert] <= next && inside_[expert] &&
                std::find(chosen.begin(), chosen.end(), expert) == chosen.end())
                substitutes_.push_back(expert);
    }

    static constexpr uint8_t top_bit = 2;

    moorage::host host_;
    const double alpha_;
    const bool prefill_, whole_;
    const uint32_t *state_ = nullptr;
    std::vector<float> next_score_;  // [token] S, or no_score
    std::vector<uint8_t> inside_;    // [expert] 1: resident; top_bit: in the top-score set
    std::vector<float> outside_;     // [expert]
    std::vector<uint32_t> absent_, substitutes_;
};

}  // namespace

MOORAGE_POLICIES("org.moorage.smoe_router", "1.0.0", smoe)
