// device_memory.h - the ledgers of a run's devices, made from its memory plan.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "core/pipeline/memory_plan.h"
#include "core/store/memories.h"

namespace moorage::core {

class device_memory {
public:
    device_memory(uint32_t layers, uint32_t experts, bool per_layer, bool whole_layers,
                  const memory_plan &plan);
    const memories &all_devices() const { return memories_; }
    // Loads come from `below`. [control]
    void lie_above(ledger &below);

private:
    static memories combine(const std::vector<std::unique_ptr<ledger>> &ledgers,
                            std::vector<uint8_t> spread);
    std::vector<std::unique_ptr<ledger>> ledgers_;  // one for each device; the last one is for all
    memories memories_;
};

}  // namespace moorage::core
