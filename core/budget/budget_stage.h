// budget_stage.h - the budget stage: how many slots each layer has, now and as the run goes on.
//
// Only per-layer caches have a budget; a shared pool is one budget by itself.
#pragma once

#include <cstdint>
#include <vector>

#include "core/cache/cache_stage.h"
#include "core/cache/residency.h"
#include "core/host/faults.h"
#include "core/host/instance.h"

namespace moorage::core {

class budget_stage {
public:
    // All borrowed. `slots` whole experts fit in all layers together.
    budget_stage(instance &policy, fault_log &faults, residency &truth, cache_stage &cache,
                 uint32_t slots);

    // Asks for a plan and applies it; layers that shrink evict through the cache policy. Wrong
    // advice is reported and replaced by what is in force. False: the run has to end. [control]
    bool plan(uint64_t tokens_done);
    // Tokens after which plan() is due again; MOORAGE_NEVER: not again.
    uint64_t due() const { return due_; }
    // Pages that the last plan() took out of the cache.
    const std::vector<uint32_t> &evicted() const { return evicted_; }

private:
    bool valid(std::string &why) const;

    instance &policy_;
    fault_log &faults_;
    residency &truth_;
    cache_stage &cache_;
    uint32_t slots_;
    uint64_t due_ = 0;
    std::vector<uint32_t> planned_, evicted_;
    std::vector<float> split_;
};

}  // namespace moorage::core
