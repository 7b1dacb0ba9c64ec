// budget_stage.cpp - one call between tokens, its check, and the eviction that follows from it.
#include "core/budget/budget_stage.h"

#include <algorithm>
#include <cmath>

#include "core/base/text.h"
#include "core/cache/cache_stage.h"

namespace moorage::core {

budget_stage::budget_stage(instance &policy, fault_log &faults, ledger &ledger, cache_stage &cache,
                           uint32_t slots, uint32_t part_rows)
    : policy_(policy),
      faults_(faults),
      ledger_(ledger),
      cache_(cache),
      slots_(slots),
      part_rows_(part_rows),
      top_rows_(ledger.layers()) {}

// Rounded down, so that the planned experts still fit.
uint32_t budget_stage::rows_of(float split) const {
    const uint32_t rows = ledger_.rows().rows();
    if (split >= 1) return rows;
    // A split that was computed as a multiple of a part must not lose one to its rounding.
    const auto wanted = static_cast<uint32_t>(std::floor(static_cast<double>(split) * rows + 0.01));
    return std::clamp(wanted / part_rows_ * part_rows_, part_rows_, rows);
}

// Fills top_rows_ too.
bool budget_stage::check_plan(std::string &error) {
    double sum = 0;
    for (uint32_t layer = 0; layer < ledger_.layers(); ++layer) {
        const float split = planned_splits_[layer];
        if (planned_slots_[layer] > ledger_.experts()) {
            error = format("layer {}: {} slots are more than its {} experts", layer,
                           planned_slots_[layer], ledger_.experts());
            return false;
        }
        if (!(split > 0 && split <= 1)) {
            error = format("layer {}: split {} is not above 0 and up to 1", layer, split);
            return false;
        }
        if (split == ledger_.split_shares()[layer]) {
            top_rows_[layer] = ledger_.rows().top_rows(layer);
        } else if (part_rows_ == 0) {
            error = format("layer {}: split {} where it is {} for the whole run", layer, split,
                           ledger_.split_shares()[layer]);
            return false;
        } else {
            top_rows_[layer] = rows_of(split);
        }
        sum +=
            static_cast<double>(planned_slots_[layer]) * top_rows_[layer] / ledger_.rows().rows();
    }
    if (sum <= slots_ + 1e-4) return true;
    error = format("slots for {} experts are more than the {} there are", sum, slots_);
    return false;
}

bool budget_stage::plan(uint64_t tokens_done, bool idle) {
    must_divide_ = false;
    planned_slots_.assign(ledger_.slots().begin(), ledger_.slots().end());
    planned_splits_.assign(ledger_.split_shares().begin(), ledger_.split_shares().end());
    const float step = part_rows_ == 0 ? 0 : static_cast<float>(part_rows_) / ledger_.rows().rows();
    const moorage_budget_request request{sizeof(request),
                                         0,
                                         ledger_.layers(),
                                         ledger_.experts(),
                                         slots_,
                                         part_rows_ == 0 ? 1u : 2u,
                                         tokens_done,
                                         ledger_.view()->host_slots,
                                         ledger_.view()->host_split,
                                         idle ? 1u : 0u,
                                         step};
    moorage_budget_plan plan{sizeof(plan), 0, planned_slots_.data(), planned_splits_.data(), 0};
    const bool has_plan =
        policy_.call(entry_point::budget_plan, policy_.budget->plan, &request, &plan) != 0;
    const uint64_t interval = policy_.budget->interval ? policy_.call(entry_point::budget_interval,
                                                                      policy_.budget->interval)
                                                       : 0;
    due_tokens_ = interval == 0 || interval > MOORAGE_NEVER - tokens_done ? MOORAGE_NEVER
                                                                          : tokens_done + interval;
    std::string error;
    plan_pending_ = has_plan && check_plan(error);
    if (!error.empty()) return faults_.report(policy_.name(), error);
    must_divide_ = plan_pending_ && !ledger_.rows().keeps_places(top_rows_, planned_slots_);
    return true;
}

bool budget_stage::apply() {
    evicted_.clear();
    if (!plan_pending_) return true;
    plan_pending_ = false;
    if (must_divide_) cache_.evict_all(evicted_);
    ledger_.set_slots(planned_slots_);
    for (uint32_t layer = 0; layer < ledger_.layers(); ++layer)
        if (top_rows_[layer] != ledger_.rows().top_rows(layer))
            ledger_.set_split(layer, static_cast<float>(top_rows_[layer]) / ledger_.rows().rows());
    return evict_surplus();
}

bool budget_stage::shrink() {
    evicted_.clear();
    return evict_surplus();
}

bool budget_stage::evict_surplus() {
    for (uint32_t layer = 0; layer < ledger_.layers(); ++layer)
        if (!cache_.shrink(layer, evicted_)) return false;
    return true;
}

bool budget_stage::is_overfull() const {
    for (uint32_t pool = 0; pool < ledger_.pools(); ++pool)
        if (ledger_.used_slots(pool) > ledger_.slots(pool)) return true;
    return false;
}

}  // namespace moorage::core
