// router_repeats.cpp - breaks a rule: chooses one expert for all places of a token.
#include <moorage/moorage.hpp>

#include <cstdint>

namespace {

class router_repeats {
public:
    static constexpr moorage::about about{.name = "router_repeats", .summary = "breaks a rule"};
    explicit router_repeats(const moorage::setup &) {}
    void reset() {}
    void activate(const moorage::limits &) {}
    uint32_t select(const moorage::step &step, moorage::route &route) {
        for (uint32_t i = 0; i < step.token_count * step.top_k; ++i) route.host_experts[i] = 0;
        return step.token_count;
    }
};

}  // namespace

MOORAGE_POLICIES("org.moorage.bad.router_repeats", "1.0.0", router_repeats)
