// composition.h - checks whether the parts of a run go together: what its policies need of each
// other, of the memory and of the cluster. Also finds settings that would do nothing.
//
// A policy declares its needs (moorage_descriptor, module.h). This code knows no policy by name.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/base/result.h"
#include "core/pipeline/policy_set.h"

namespace moorage::core {

// Needs that a source can meet, and needs that the rest of the run has to meet.
inline constexpr uint32_t source_needs = MOORAGE_NEEDS_GATE_SCORES | MOORAGE_NEEDS_WEIGHTS |
                                         MOORAGE_NEEDS_PREDICTIONS | MOORAGE_NEEDS_FUTURE;
inline constexpr uint32_t composition_needs =
    MOORAGE_NEEDS_PER_LAYER | MOORAGE_NEEDS_LAYER_BUFFER | MOORAGE_NEEDS_SERVERS;

// Borrowed for the check.
struct composition {
    const run_config &config;
    const policy_set &policies;  // active
    uint32_t experts = 0;        // experts of a layer
    uint32_t buffer_slots = 0;
    uint32_t servers = 0;  // servers that can be called
    bool split = false;    // slots hold less than whole experts
};

// An error if a policy lacks something that it cannot work without. A text in `warnings` if a
// setting has no effect, or not the one that it seems to have, but may be intended. Each names the
// place. [control]
status check_composition(const composition &composition, std::vector<std::string> &warnings);

}  // namespace moorage::core
