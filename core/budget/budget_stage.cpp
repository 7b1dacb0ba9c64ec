// budget_stage.cpp - one call between tokens, its check, and the eviction that follows from it.
#include "core/budget/budget_stage.h"

#include <algorithm>
#include <cmath>

#include "core/base/text.h"
#include "core/cache/cache_stage.h"

namespace moorage::core {

budget_stage::budget_stage(instance &policy, fault_log &faults, ledger &truth, cache_stage &cache,
                           uint32_t slots, uint32_t part_rows)
    : policy_(policy),
      faults_(faults),
      truth_(truth),
      cache_(cache),
      slots_(slots),
      part_rows_(part_rows),
      top_rows_(truth.layers()) {}

// Rounded down, so that the planned experts still fit.
uint32_t budget_stage::rows_of(float split) const {
    const uint32_t rows = truth_.rows().rows();
    if (split >= 1) return rows;
    // A split that was computed as a multiple of a part must not lose one to its rounding.
    const auto wanted = static_cast<uint32_t>(std::floor(static_cast<double>(split) * rows + 0.01));
    return std::clamp(wanted / part_rows_ * part_rows_, part_rows_, rows);
}

// Fills top_rows_ too.
bool budget_stage::valid(std::string &why) {
    double sum = 0;
    for (uint32_t layer = 0; layer < truth_.layers(); ++layer) {
        const float split = split_[layer];
        if (planned_[layer] > truth_.experts()) {
            why = format("layer {}: {} slots are more than its {} experts", layer, planned_[layer],
                         truth_.experts());
            return false;
        }
        if (!(split > 0 && split <= 1)) {
            why = format("layer {}: split {} is not above 0 and up to 1", layer, split);
            return false;
        }
        if (split == truth_.splits()[layer]) {
            top_rows_[layer] = truth_.rows().top_rows(layer);
        } else if (part_rows_ == 0) {
            why = format("layer {}: split {} where it is {} for the whole run", layer, split,
                         truth_.splits()[layer]);
            return false;
        } else {
            top_rows_[layer] = rows_of(split);
        }
        sum += static_cast<double>(planned_[layer]) * top_rows_[layer] / truth_.rows().rows();
    }
    if (sum <= slots_ + 1e-4) return true;
    why = format("slots for {} experts are more than the {} there are", sum, slots_);
    return false;
}

bool budget_stage::plan(uint64_t tokens_done, bool idle) {
    divides_ = false;
    planned_.assign(truth_.slots().begin(), truth_.slots().end());
    split_.assign(truth_.splits().begin(), truth_.splits().end());
    const float step = part_rows_ == 0 ? 0 : static_cast<float>(part_rows_) / truth_.rows().rows();
    const moorage_budget_request request{sizeof(request),
                                         0,
                                         truth_.layers(),
                                         truth_.experts(),
                                         slots_,
                                         part_rows_ == 0 ? 1u : 2u,
                                         tokens_done,
                                         truth_.view()->host_slots,
                                         truth_.view()->host_split,
                                         idle ? 1u : 0u,
                                         step};
    moorage_budget_plan plan{sizeof(plan), 0, planned_.data(), split_.data(), 0};
    const bool apply =
        policy_.call(entry_point::budget_plan, policy_.budget->plan, &request, &plan) != 0;
    const uint64_t interval = policy_.budget->interval ? policy_.call(entry_point::budget_interval,
                                                                      policy_.budget->interval)
                                                       : 0;
    due_ = interval == 0 || interval > MOORAGE_NEVER - tokens_done ? MOORAGE_NEVER
                                                                   : tokens_done + interval;
    std::string why;
    changes_ = apply && valid(why);
    if (!why.empty()) return faults_.report(policy_.name(), why);
    divides_ = changes_ && !truth_.rows().keeps_places(top_rows_, planned_);
    return true;
}

bool budget_stage::apply() {
    evicted_.clear();
    if (!changes_) return true;
    changes_ = false;
    if (divides_) cache_.empty(evicted_);
    truth_.set_slots(planned_);
    for (uint32_t layer = 0; layer < truth_.layers(); ++layer)
        if (top_rows_[layer] != truth_.rows().top_rows(layer))
            truth_.set_split(layer, static_cast<float>(top_rows_[layer]) / truth_.rows().rows());
    return evict_surplus();
}

bool budget_stage::shrink() {
    evicted_.clear();
    return evict_surplus();
}

bool budget_stage::evict_surplus() {
    for (uint32_t layer = 0; layer < truth_.layers(); ++layer)
        if (!cache_.shrink(layer, evicted_)) return false;
    return true;
}

bool budget_stage::overfull() const {
    for (uint32_t pool = 0; pool < truth_.pools(); ++pool)
        if (truth_.used(pool) > truth_.slots(pool)) return true;
    return false;
}

}  // namespace moorage::core
