// version_supplier.h - the version of the experts that a step computes (decision 0039).
//
// A page is in fast memory in one version, which its state word names. A step asks for the best
// version that any token asks for. It accepts a better one as it is. Only a step brings experts in
// the second version. So between steps none of these is on its way or in the buffer.
#pragma once

#include <cstdint>

#include "core/cache/caches.h"
#include "core/pipeline/step_supplier.h"
#include "core/source/layer_step.h"
#include "core/store/memories.h"
#include "core/transport/transport_stage.h"

namespace moorage::core {

class version_supplier final : public step_supplier {
public:
    // All borrowed.
    version_supplier(const layer_step &step, const memories &memories, caches &cache,
                     const transport_stage &transport)
        : step_(step), memories_(memories), cache_(cache), transport_(transport) {}

    // Evicts pages that are here in a worse version than the step asks for, so that they count as
    // absent everywhere.
    void before_look_up() override;
    // Sets for each item the version in which the device computes it.
    void looked_up(std::span<const uint32_t> places, std::span<step_item> items) override;
    // Adds the computed experts of the step and the loads that it waited for.
    void count(const step_item &item, layer_report &report) override;

private:
    const layer_step &step_;
    const memories &memories_;
    caches &cache_;
    const transport_stage &transport_;
};

}  // namespace moorage::core
