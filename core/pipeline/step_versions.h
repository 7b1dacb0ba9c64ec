// step_versions.h - the version of the experts that a step computes (decision 0039).
//
// A page is in fast memory in one version, which its state word names. A step asks for the best
// version that any token asks for. It accepts a better one as it is. Only a step brings experts in
// the second version. So between steps none of these is on its way or in the buffer.
#pragma once

#include <cstdint>
#include <span>

#include "core/cache/caches.h"
#include "core/dispatch/dispatch_stage.h"
#include "core/report/report.h"
#include "core/source/layer_step.h"
#include "core/store/memories.h"
#include "core/transport/transport_stage.h"

namespace moorage::core {

// Evicts pages that are here in a worse version than the step asks for, so that they count as
// absent everywhere. Requires: the step is grouped, none of its pages is pinned. [step]
void give_way(const layer_step &step, const memories &memories, caches &cache);
// Sets for each item the version in which the device computes it. `places`: of the step's distinct
// experts in `items`. [step]
void choose_versions(const layer_step &step, const memories &memories,
                     std::span<const uint32_t> places, std::span<step_item> items);
// Adds the computed experts of the step and the loads that it waited for. Requires: its transfers
// are not released. [step]
void count_versions(std::span<const step_item> items, const transport_stage &transport,
                    layer_report &report);

}  // namespace moorage::core
