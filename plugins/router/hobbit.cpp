// hobbit.cpp - HOBBIT's rule: loads absent experts of little weight in a smaller version. Lossy.
//
// Source: HOBBIT (arXiv 2411.01433), token-level dynamic expert loading. Take each token's experts,
// best first. The unimportance of an expert is the share of the row's weight that the experts
// before it hold; it is 0 for the first. Up to t1, an absent expert is loaded in the model's own
// version. Up to t2, it is loaded in the second, smaller one. Beyond t2, it is left out. Experts
// that are here need no load, so the policy uses them as they are. It uses the first version
// whatever the share. It uses the second version if that would do, or instead of leaving the expert
// out. An expert on its way counts as here.
//
// If experts have only one version, t1 changes nothing: experts up to t2 are loaded in that
// version. The report gives the cost in likelihood (`moorage eval`). Cost per call: O(tokens * k).
#define MOORAGE_MINOR_NEEDED 1
#include <moorage/moorage.hpp>

#include <algorithm>
#include <numeric>

namespace {

class hobbit {
public:
    static constexpr moorage::about about{
        .name = "hobbit",
        .summary = "takes absent experts of little weight in a second, smaller version",
        .source = "HOBBIT (arXiv 2411.01433), token-level dynamic expert loading",
        .flags = MOORAGE_POLICY_LOSSY,
        .needs = MOORAGE_NEEDS_WEIGHTS,
        .method_params = "t1|t2",
    };
    static constexpr moorage::param params[] = {
        moorage::real("t1", 0.6, -1, 1,
                      "share of a token's weight that better experts may hold for an absent one to "
                      "come in the first version; 1: always; below 0: never"),
        moorage::real("t2", 0.9, -1, 1,
                      "and in the second version; beyond it is left out; 1: none is. The first "
                      "expert of a token always stays"),
        moorage::flag("prefill", true, "in prefill steps, too"),
        moorage::flag("renormalise", false, "the others take over the weight of what is left out"),
    };

    explicit hobbit(const moorage::setup &setup)
        : host_(setup.host),
          t1_(setup.real("t1")),
          t2_(setup.real("t2")),
          prefill_(setup.flag("prefill")),
          renormalise_(setup.flag("renormalise")) {}

    void activate(const moorage::limits &limits) {
        state_ = host_.residency()->host_state;
        const uint32_t versions = limits.stores == 0 ? 1 : limits.host_stores[0].versions;
        several_ = (versions & 2) != 0;
    }
    void reset() {}

    uint32_t select(const moorage::step &step, moorage::route &route) {
        if (!step.host_weights) return 0;
        if (step.phase == MOORAGE_PREFILL && !prefill_) return 0;
        if (renormalise_) route.flags |= MOORAGE_ROUTE_RENORMALISE;
        std::copy_n(step.host_chosen, size_t{step.token_count} * step.top_k, route.host_experts);
        for (uint32_t token = 0; token < step.token_count; ++token) choose(step, token, route);
        return step.token_count;
    }

private:
    void choose(const moorage::step &step, uint32_t token, moorage::route &route) const {
        const size_t row = size_t{token} * step.top_k;
        const float *const weights = step.host_weights + row;
        const double total = std::accumulate(weights, weights + step.top_k, 0.0);
        double better_weight = 0;
        for (uint32_t rank = 0; rank < step.top_k; ++rank) {
            const uint32_t state = state_[step.page(step.chosen(token)[rank])];
            const bool first = better_weight <= t1_ * total,
                       second = rank == 0 || better_weight <= t2_ * total;
            route.host_classes[row + rank] = class_of(state, first, second);
            better_weight += weights[rank];
        }
    }

    uint8_t class_of(uint32_t state, bool first, bool second) const {
        const uint32_t known = state | state >> MOORAGE_STATE_IN_FLIGHT_SHIFT;
        const bool is_present = (known & MOORAGE_WHOLE) == MOORAGE_WHOLE;
        const bool small = (state & MOORAGE_STATE_VERSION) != 0;
        if (first || (is_present && !small)) return MOORAGE_CLASS_TOP;
        if (!second && !is_present) return MOORAGE_CLASS_DROPPED;
        return several_ ? MOORAGE_CLASS_SMALL : MOORAGE_CLASS_TOP;
    }

    moorage::host host_;
    const double t1_, t2_;
    const bool prefill_, renormalise_;
    bool several_ = false;
    const uint32_t *state_ = nullptr;
};

}  // namespace

MOORAGE_POLICIES("org.moorage.hobbit", "1.0.0", hobbit)
