// versions.h - the second version of the experts (decision 0039): where it comes from, and which
// one a step computes.
//
// A page lies in fast memory in one version, the one that its state word has. A step asks for the
// best version that any token asks for, and takes what is better as it is. Only what a step has
// brought is in the second version, so nothing of it is on its way or in the buffer between steps.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "core/cache/caches.h"
#include "core/config/run_config.h"
#include "core/dispatch/dispatch_stage.h"
#include "core/model/model.h"
#include "core/pipeline/run.h"
#include "core/source/layer_step.h"
#include "core/store/memories.h"
#include "core/transport/transport_stage.h"

namespace moorage::core {

// The model that [source] small names, which stays the resources'; null: it names none. An error
// where that is no smaller version of `first`.
result<const model *> open_small(const run_config &config, const model &first,
                                 run_resources &shared);
// Bytes and bits of the second version into `shape`, which is the first's: of `small`, or where
// that is null of [source] small_shape.
status add_small(const run_config &config, const model *small, model_shape &shape);

// For the report; none where there is one version.
std::vector<std::string> names_of_versions(const run_config &config, const model_shape &first);

// Evicts what lies here in a worse version than the step asks for, so that it is absent for
// everybody who looks. Requires: the step is grouped, none of its pages is pinned. [step]
void give_way(const layer_step &step, const memories &truth, caches &cache);
// Says of each item in which version the device computes it. `places`: of the step's distinct
// experts in `items`. [step]
void choose_versions(const layer_step &step, const memories &truth,
                     std::span<const uint32_t> places, std::span<step_item> items);
// Adds what the step computed and waited for. Requires: its transfers are not released. [step]
void count_versions(std::span<const step_item> items, const transport_stage &transport,
                    layer_report &account);

}  // namespace moorage::core
