// budget_stage.cpp - one call between tokens, its check, and the eviction that follows from it.
#include "core/budget/budget_stage.h"

#include <algorithm>
#include <cmath>

#include "core/base/text.h"

namespace moorage::core {

budget_stage::budget_stage(instance &policy, fault_log &faults, residency &truth,
                           cache_stage &cache, uint32_t slots)
    : policy_(policy), faults_(faults), truth_(truth), cache_(cache), slots_(slots) {}

bool budget_stage::valid(std::string &why) const {
    double sum = 0;
    for (uint32_t layer = 0; layer < truth_.layers(); ++layer) {
        if (planned_[layer] > truth_.experts()) {
            why = format("layer {}: {} slots are more than its {} experts", layer, planned_[layer],
                         truth_.experts());
            return false;
        }
        if (split_[layer] != truth_.splits()[layer]) {
            why = format("layer {}: split {} where it is {} for the whole run", layer,
                         split_[layer], truth_.splits()[layer]);
            return false;
        }
        sum += static_cast<double>(planned_[layer]) * split_[layer];
    }
    if (sum <= slots_ + 1e-4) return true;
    why = format("{} slots are more than the {} there are", sum, slots_);
    return false;
}

bool budget_stage::plan(uint64_t tokens_done) {
    evicted_.clear();
    const uint64_t interval =
        policy_.budget->interval ? policy_.budget->interval(policy_.plugin()) : 0;
    due_ = interval == 0 ? MOORAGE_NEVER : tokens_done + interval;
    planned_.assign(truth_.slots_all().begin(), truth_.slots_all().end());
    split_.assign(truth_.splits().begin(), truth_.splits().end());
    const moorage_budget_request request{sizeof(request),
                                         0,
                                         truth_.layers(),
                                         truth_.experts(),
                                         slots_,
                                         1,
                                         tokens_done,
                                         truth_.slots_all().data(),
                                         truth_.splits().data(),
                                         0,
                                         0};
    moorage_budget_plan plan{sizeof(plan), 0, planned_.data(), split_.data(), 0};
    if (!policy_.budget->plan(policy_.plugin(), &request, &plan)) return true;
    std::string why;
    if (!valid(why)) return faults_.report(policy_.name(), why);
    std::copy(planned_.begin(), planned_.end(), truth_.slots_all().begin());
    for (uint32_t layer = 0; layer < truth_.layers(); ++layer)
        if (!cache_.shrink(layer, evicted_)) return false;
    return true;
}

}  // namespace moorage::core
