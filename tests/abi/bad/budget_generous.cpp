// budget_generous.cpp - breaks a rule: gives every layer room for all its experts, even if they do
// not fit.
#include <moorage/moorage.hpp>

#include <cstdint>

namespace {

class budget_generous {
public:
    static constexpr moorage::about about{.name = "budget_generous", .summary = "breaks a rule"};
    explicit budget_generous(const moorage::setup &) {}
    void reset() {}
    void activate(const moorage::limits &) {}
    bool plan(const moorage::budget_request &request, moorage::budget_plan &plan) {
        for (uint32_t layer = 0; layer < request.layers; ++layer)
            plan.host_slots[layer] = request.experts;
        return true;
    }
};

}  // namespace

MOORAGE_POLICIES("org.moorage.bad.budget_generous", "1.0.0", budget_generous)
