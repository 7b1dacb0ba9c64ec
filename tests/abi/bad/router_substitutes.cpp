// router_substitutes.cpp - breaks a rule: changes the model's choice without declaring itself
// lossy.
#include <moorage/moorage.hpp>

#include <algorithm>
#include <cstdint>

namespace {

class router_substitutes {
public:
    static constexpr moorage::about about{.name = "router_substitutes", .summary = "breaks a rule"};
    explicit router_substitutes(const moorage::setup &) {}
    void reset() {}
    void activate(const moorage::limits &) {}
    // Replaces the last expert of each token by the first that the model did not choose.
    uint32_t select(const moorage::step &step, moorage::route &route) {
        std::copy_n(step.host_chosen, step.token_count * step.top_k, route.host_experts);
        for (uint32_t token = 0; token < step.token_count; ++token) {
            uint32_t *token_experts = route.host_experts + token * step.top_k;
            uint32_t substitute = 0;
            for (uint32_t i = 0; i < step.top_k; ++i)
                if (token_experts[i] == substitute) ++substitute, i = UINT32_MAX;
            if (substitute < step.experts) token_experts[step.top_k - 1] = substitute;
        }
        return step.token_count;
    }
};

}  // namespace

MOORAGE_POLICIES("org.moorage.bad.router_substitutes", "1.0.0", router_substitutes)
