// uniform.cpp - gives every layer the same number of slots; the first (slots mod layers) get one
// more.
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
        // If experts are split, a slot holds a top segment, so there are more slots.
        const auto slots =
            static_cast<uint32_t>(request.slots / double{request.host_split[0]} + 1e-4);
        for (uint32_t layer = 0; layer < request.layers; ++layer) {
            const uint32_t extra = layer < slots % request.layers ? 1 : 0;
            plan.host_slots[layer] = std::min(slots / request.layers + extra, request.experts);
        }
        return true;
    }
};

}  // namespace

MOORAGE_POLICIES("org.moorage.uniform", "1.0.0", uniform)
