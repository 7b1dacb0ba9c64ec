// budgets.cpp - one device after the other.
#include "core/budget/budgets.h"

#include <algorithm>

#include "core/cache/caches.h"

namespace moorage::core {

budgets::budgets(std::span<instance *const> policies, fault_log &faults, const memories &memories,
                 caches &caches, std::span<const uint32_t> slots, uint32_t part_rows,
                 bool per_layer)
    : memories_(memories), per_layer_(per_layer), due_tokens_(per_layer ? 0 : MOORAGE_NEVER) {
    stages_.reserve(policies.size());
    for (uint32_t device = 0; device < policies.size(); ++device)
        stages_.emplace_back(*policies[device], faults, memories.ledger_of_device(device),
                             caches.of_device(device), slots[device], part_rows);
}

bool budgets::plan(uint64_t tokens_done, bool idle) {
    due_tokens_ = MOORAGE_NEVER;
    for (budget_stage &stage : stages_) {
        if (!stage.plan(tokens_done, idle)) return false;
        due_tokens_ = std::min(due_tokens_, stage.due_tokens());
    }
    return true;
}

template <class Change>
bool budgets::change_each(Change &&change) {
    evicted_.clear();
    for (budget_stage &stage : stages_) {
        if (!change(stage)) return false;
        evicted_.insert(evicted_.end(), stage.evicted().begin(), stage.evicted().end());
    }
    return true;
}

bool budgets::apply() {
    return change_each([](budget_stage &stage) { return stage.apply(); });
}

bool budgets::shrink() {
    return change_each([](budget_stage &stage) { return stage.shrink(); });
}

bool budgets::is_overfull() const {
    return std::ranges::any_of(stages_,
                               [](const budget_stage &stage) { return stage.is_overfull(); });
}

bool budgets::must_divide() const {
    return std::ranges::any_of(stages_,
                               [](const budget_stage &stage) { return stage.must_divide(); });
}

void budgets::divide() {
    for (uint32_t device = 0; device < stages_.size(); ++device)
        if (stages_[device].must_divide())
            memories_.ledger_of_device(device).divide(stages_[device].top_rows());
}

}  // namespace moorage::core
