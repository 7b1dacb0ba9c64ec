// step_supplier.h - what a run may have beside the memory of one device: experts in two versions,
// host memory that is read from a disk, further devices, other servers.
//
// A step asks its suppliers in turn, in the order of suppliers.h. A run has only those that it
// needs, so most runs ask nobody. The functions are listed in the order of a step. [step]
#pragma once

#include <cstdint>
#include <span>

#include "core/dispatch/dispatch_stage.h"
#include "core/execute/executor.h"
#include "core/source/step_counts.h"

namespace moorage::core {

class step_work;

class step_supplier {
public:
    virtual ~step_supplier() = default;

    // The step is grouped, and none of its pages is pinned.
    virtual void before_look_up() {}
    // All pages are pinned. `places`: [distinct experts of the step] their place in `items`.
    virtual void looked_up(std::span<const uint32_t> /*places*/, std::span<step_item> /*items*/) {}
    // Adds what the load of a missing item waits for to its figures.
    virtual void estimate(step_item & /*item*/) {}
    // The step begins to queue its work. Returns how many operations this starts.
    virtual uint32_t begin(std::span<const step_item> /*items*/) { return 0; }
    // Whether the supplier computes the item. It starts with start_taken().
    virtual bool take(uint32_t /*index*/, const step_item & /*item*/) { return false; }
    virtual uint32_t start_taken(std::span<step_item> /*items*/) { return 0; }
    // Whether the CPU has to wait for the item's page. The supplier starts the item then.
    virtual bool delay_cpu(uint32_t /*index*/, const step_item & /*item*/) { return false; }
    // The first waiting segment has no room. Returns how many operations this starts.
    virtual uint32_t go_past_waiting(step_work & /*work*/) { return 0; }
    // A later step wants the page in host memory.
    virtual void bring(uint32_t /*page*/) {}
    virtual void page_read(uint32_t /*page*/, std::span<const step_item> /*items*/) {}
    virtual void computed(const step_item & /*item*/, const completion & /*completion*/) {}
    // The step is over. Its transfers are not released yet.
    virtual void count(const step_item & /*item*/, layer_report & /*report*/) {}
    virtual void end(uint32_t /*layer*/) {}

    // Whether absent experts can be loaded. Otherwise the placement decides what is here.
    virtual bool can_load() const { return true; }
};

}  // namespace moorage::core
