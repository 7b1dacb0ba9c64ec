// uniform.cpp - every layer gets the same number of slots; the first (slots mod layers) one more.
//
// Planned once, before the run. Cost per call: O(layers).

#include <moorage/moorage.hpp>

#include <algorithm>

namespace {

class uniform {
public:
    static constexpr moorage::about about{
        .name = "uniform",
        .summary = "divides the slots evenly over the layers",
    };

    explicit uniform(const moorage::setup &) {}
    void activate(const moorage::limits &) {}
    void reset() {}

    bool plan(const moorage::budget_request &request, moorage::budget_plan &plan) {
        for (uint32_t layer = 0; layer < request.layers; ++layer) {
            const uint32_t extra = layer < request.slots % request.layers ? 1 : 0;
            plan.host_slots[layer] =
                std::min(request.slots / request.layers + extra, request.experts);
        }
        return true;
    }
};

}  // namespace

MOORAGE_POLICIES("org.moorage.uniform", "1.0.0", uniform)
