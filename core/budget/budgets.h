// budgets.h - the budget stages of all devices. Each device has its own instance of the policy,
// which divides that device's slots only.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/budget/budget_stage.h"
#include "core/store/memories.h"

namespace moorage::core {

class caches;

// As budget_stage, for all of them together.
class budgets {
public:
    // For each device, a policy and the whole experts that fit. If layers share their slots, there
    // is nothing to divide, and plan() is never due.
    budgets(std::span<instance *const> policies, fault_log &faults, const memories &memories,
            caches &caches, std::span<const uint32_t> slots, uint32_t part_rows, bool per_layer);

    // Asks all of them when the first is due.
    bool plan(uint64_t tokens_done, bool idle);
    bool apply();
    bool is_overfull() const;
    bool shrink();
    uint64_t due_tokens() const { return due_tokens_; }  // in tokens done
    bool is_per_layer() const { return per_layer_; }
    const std::vector<uint32_t> &evicted() const { return evicted_; }
    bool must_divide() const;
    // Divides the arenas of the devices whose plan divides theirs.
    void divide();

private:
    template <class Change>
    bool change_each(Change &&change);

    const memories &memories_;
    std::vector<budget_stage> stages_;
    std::vector<uint32_t> evicted_;
    const bool per_layer_;
    uint64_t due_tokens_;
};

}  // namespace moorage::core
