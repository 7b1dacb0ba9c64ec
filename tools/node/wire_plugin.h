// wire_plugin.h - a plugin of kind wire as nodes use it.
#pragma once

#include <cstdint>
#include <memory>

#include "core/base/result.h"
#include "core/config/run_config.h"
#include "core/host/registry.h"
#include "tools/node/node_plan.h"
#include "tools/node/wire.h"

namespace moorage::core {

// Whether calls are noted as those of a run's policies are, so that a report of a death names the
// code at work. A process has one such note (core/host/call.h). A wire that another thread drives
// beside the run is not noted.
enum class wire_calls : uint8_t { noted, beside };

// Opens the wire that [wire] names, with limits for the messages of the plan.
result<std::unique_ptr<wire>> open_wire(const run_config &config, const registry &policies,
                                        const node_plan &plan, wire_calls calls);

}  // namespace moorage::core
