// budget_stage.h - the budget stage: how many slots each layer has and how its experts are split,
// at the start and while the run goes on.
//
// Only per-layer caches have a budget. A shared pool is one budget by itself.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/host/faults.h"
#include "core/host/fenced_memory.h"
#include "core/host/instance.h"
#include "core/store/ledger.h"

namespace moorage::core {

class cache_stage;

class budget_stage {
public:
    // All borrowed. `slots`: whole experts that fit in all layers together. `part_rows`: splits are
    // rounded down to a multiple of so many rows; 0: they stay as they are.
    budget_stage(instance &policy, fault_log &faults, ledger &ledger, cache_stage &cache,
                 uint32_t slots, uint32_t part_rows);

    // Asks for a plan. Wrong advice is reported, and the plan in force stays. `idle`: no request is
    // under way. False: the run has to end. [control]
    bool plan(uint64_t tokens_done, bool idle);
    // Applies the plan to the counts of the residency view. Layers that shrink evict through the
    // cache policy. If the plan must_divide(), all caches are emptied; then nothing may be buffered
    // or in flight. False: the run has to end. [control]
    bool apply();
    // Whether layers still use more slots than apply() gave them. The reason: apply() cannot evict
    // an expert of which a segment lies in the transfer buffer. Once the buffer is empty, shrink()
    // evicts the rest. [control]
    bool is_overfull() const;
    bool shrink();
    // Tokens after which plan() is due again; MOORAGE_NEVER: not again.
    uint64_t due_tokens() const { return due_tokens_; }
    // Pages that the last apply() or shrink() took out of the cache.
    const std::vector<uint32_t> &evicted() const { return evicted_; }
    // Whether the plan needs an arena divided by these rows of the top segment of each layer.
    bool must_divide() const { return must_divide_; }
    const std::vector<uint32_t> &top_rows() const { return top_rows_; }

private:
    bool check_plan(std::string &error);
    bool evict_surplus();
    uint32_t rows_of(float split) const;

    instance &policy_;
    fault_log &faults_;
    ledger &ledger_;
    cache_stage &cache_;
    uint32_t slots_, part_rows_;
    uint64_t due_tokens_ = 0;
    bool plan_pending_ = false, must_divide_ = false;
    fenced_vector<uint32_t> planned_slots_;
    fenced_vector<float> planned_splits_;
    std::vector<uint32_t> evicted_, top_rows_;
};

}  // namespace moorage::core
