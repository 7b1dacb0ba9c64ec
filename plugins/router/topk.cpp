// topk.cpp - the model's own choice: the k experts of highest gate score, untouched. Lossless.
//
// The rule for the top-k (groups, biases, thresholds) belongs to the model. The step brings the
// result, and this policy repeats it. Cost per call: O(tokens * k).

#include <moorage/moorage.hpp>

#include <algorithm>

namespace {

class topk {
public:
    static constexpr moorage::about about{
        .name = "topk",
        .summary = "keeps the model's own top-k choice",
    };

    explicit topk(const moorage::setup &) {}
    void activate(const moorage::limits &) {}
    void reset() {}

    uint32_t select(const moorage::step &step, moorage::route &route) {
        std::copy_n(step.host_chosen, size_t{step.token_count} * step.top_k, route.host_experts);
        return step.token_count;
    }
};

}  // namespace

MOORAGE_POLICIES("org.moorage.topk", "1.0.0", topk)
