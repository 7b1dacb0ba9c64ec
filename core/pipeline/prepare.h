// prepare.h - opens what several runs have in common, before they are forked off.
#pragma once

#include "core/pipeline/run.h"

namespace moorage::core {

// Opens the files of a run that `shared` keeps: traces and their futures, models, random weights.
// The run itself reports what cannot be opened. Requires: as run().
void prepare(const run_config &config, run_resources &shared);

}  // namespace moorage::core
