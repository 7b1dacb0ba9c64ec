// prepare.h - what runs have in common, opened before they are forked off.
#pragma once

#include "core/pipeline/run.h"

namespace moorage::core {

// Opens what a run of the configuration opens and `shared` keeps: traces and their futures, models,
// random weights. What cannot be opened is left for the run to say. Requires: as run().
void prepare(const run_config &config, run_resources &shared);

}  // namespace moorage::core
