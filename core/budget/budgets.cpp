// budgets.cpp - one device after the other.
#include "core/budget/budgets.h"

#include <algorithm>

#include "core/cache/caches.h"

namespace moorage::core {

budgets::budgets(std::span<instance *const> policies, fault_log &faults, const memories &truth,
                 caches &of, std::span<const uint32_t> slots, uint32_t part_rows, bool per_layer)
    : truth_(truth), per_layer_(per_layer), due_(per_layer ? 0 : MOORAGE_NEVER) {
    each_.reserve(policies.size());
    for (uint32_t device = 0; device < policies.size(); ++device)
        each_.emplace_back(*policies[device], faults, truth.at(device), of.of_device(device),
                           slots[device], part_rows);
}

bool budgets::plan(uint64_t tokens_done, bool idle) {
    due_ = MOORAGE_NEVER;
    for (budget_stage &one : each_) {
        if (!one.plan(tokens_done, idle)) return false;
        due_ = std::min(due_, one.due());
    }
    return true;
}

template <class Change>
bool budgets::change_each(Change &&change) {
    evicted_.clear();
    for (budget_stage &one : each_) {
        if (!change(one)) return false;
        evicted_.insert(evicted_.end(), one.evicted().begin(), one.evicted().end());
    }
    return true;
}

bool budgets::apply() {
    return change_each([](budget_stage &one) { return one.apply(); });
}

bool budgets::shrink() {
    return change_each([](budget_stage &one) { return one.shrink(); });
}

bool budgets::overfull() const {
    return std::ranges::any_of(each_, [](const budget_stage &one) { return one.overfull(); });
}

bool budgets::divides() const {
    return std::ranges::any_of(each_, [](const budget_stage &one) { return one.divides(); });
}

void budgets::divide() {
    for (uint32_t device = 0; device < each_.size(); ++device)
        if (each_[device].divides()) truth_.at(device).divide(each_[device].top_rows());
}

}  // namespace moorage::core
