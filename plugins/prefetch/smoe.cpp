// smoe.cpp - fetches only those experts of the next layer that are predicted to be top-score.
//
// Source: SMoE, Sections IV-A (C4: top-score experts first) and IV-C. For each token, it takes the
// experts that are predicted to be chosen and whose score is at least (1 + alpha) times the
// (k+1)-th predicted score. The router's substitution handles the rest, so use the router's alpha.
// All tokens together: best score of any token first, equal ones by the smaller expert, as many as
// the buffer has room for. Experts that are resident or on their way are skipped.
//
// If the source predicts token by token, the policy uses that. If it only has lists merged over a
// batch, the merged list is read as one token's. Without scores, or without a (k+1)-th prediction,
// all predicted top-k count as top-score. The source decides what it predicts from. `from_resident`
// asks for the paper's input: the shared and the resident experts of this layer, the next layer's
// attention, its gate. Cost per call: O(tokens * k), plus sorting the result.

#include <moorage/moorage.hpp>

#include <algorithm>
#include <vector>

namespace {

class smoe {
public:
    static constexpr moorage::about about{
        .name = "smoe",
        .summary = "fetches what is predicted to be top-score in the next layer",
        .source = "SMoE, Section IV-C",
        .flags = MOORAGE_POLICY_SEGMENTS,
        .needs = MOORAGE_NEEDS_PREDICTIONS,
        .method_params = "alpha",
    };
    static constexpr moorage::param params[] = {
        moorage::real(
            "alpha", 0.3, 0, 1,
            "how far above the (k+1)-th predicted score a top-score expert is, a share of "
            "it; 0: the whole predicted top-k. Give it the router's"),
        moorage::flag("from_resident", true,
                      "predict from shared and resident experts (Section IV-C), else from the "
                      "activation before them; a trace has what was recorded"),
    };

    explicit smoe(const moorage::setup &setup)
        : host_(setup.host),
          alpha_(setup.real("alpha")),
          from_resident_(setup.flag("from_resident")) {}

    void activate(const moorage::limits &limits) {
        state_ = host_.residency()->host_state;
        best_.resize(limits.experts);
        top_.reserve(limits.experts);
    }
    void reset() {}
    uint32_t horizon() { return 1; }
    uint32_t prediction() {
        return from_resident_ ? MOORAGE_FROM_RESIDENT : MOORAGE_FROM_ACTIVATION;
    }

    void plan(const moorage::step &step, const moorage::forecast &forecast,
              moorage::orders &orders) {
        top_.clear();
        std::fill(best_.begin(), best_.end(), not_top);
        if (forecast.host_token_experts && forecast.token_count > 0)
            for (uint32_t token = 0; token < forecast.token_count; ++token)
                add(step, forecast.token_experts(token), forecast.token_scores(token));
        else
            add(step, forecast.experts(0), forecast.scores(0));
        std::sort(top_.begin(), top_.end(), [&](uint32_t a, uint32_t b) {
            return best_[a] != best_[b] ? best_[a] > best_[b] : a < b;
        });
        uint32_t room = forecast.buffer_free;
        for (const uint32_t expert : top_) {
            if (room == 0) return;
            const uint32_t page = forecast.host_layers[0] * step.experts + expert;
            const uint8_t missing = moorage::missing(state_[page]);
            if (missing == 0) continue;
            orders.push(page, missing);
            --room;
        }
    }

private:
    static constexpr float not_top = -1;

    // The top-score experts of one list, best first.
    void add(const moorage::step &step, std::span<const uint32_t> experts,
             std::span<const float> scores) {
        const size_t k = std::min<size_t>(step.top_k, experts.size());
        const bool known = !scores.empty() && experts.size() > k;
        const double least = known ? (1 + alpha_) * static_cast<double>(scores[k]) : 0;
        for (size_t rank = 0; rank < k; ++rank) {
            if (known && scores[rank] < least) break;
            // Without scores the rank replaces the score.
            float score = 1 / static_cast<float>(rank + 1);
            if (!scores.empty()) score = scores[rank] > 0 ? scores[rank] : 0;
            float &best = best_[experts[rank]];
            if (best == not_top) top_.push_back(experts[rank]);
            best = std::max(best, score);
        }
    }

    moorage::host host_;
    const double alpha_;
    const bool from_resident_;
    const uint32_t *state_ = nullptr;
    std::vector<float> best_;    // [expert] best score among tokens for which it is top-score
    std::vector<uint32_t> top_;  // experts with a best score
};

}  // namespace

MOORAGE_POLICIES("org.moorage.smoe_prefetch", "1.0.0", smoe)
