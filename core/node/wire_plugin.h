// wire_plugin.h - a plugin of kind wire as nodes use it.
#pragma once

#include <memory>

#include "core/base/result.h"
#include "core/config/run_config.h"
#include "core/host/registry.h"
#include "core/node/node_plan.h"
#include "core/node/wire.h"

namespace moorage::core {

// The wire that [wire] names, open, with limits for the messages of the plan.
result<std::unique_ptr<wire>> open_wire(const run_config &config, const registry &policies,
                                        const node_plan &of);

}  // namespace moorage::core
