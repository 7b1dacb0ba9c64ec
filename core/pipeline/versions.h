// versions.h - where a run takes the second version of the experts from (decision 0039).
// version_supplier.h chooses the version that a step computes.
#pragma once

#include <string>
#include <vector>

#include "core/config/run_config.h"
#include "core/model/model.h"
#include "core/pipeline/run.h"

namespace moorage::core {

// The model that [source] small names. It stays the resources'. null: none is named. An error if it
// is not a smaller version of `first`.
result<const model *> open_small(const run_config &config, const model &first,
                                 run_resources &shared);
// Writes bytes and bits of the second version into `shape`, which is the first's. They come from
// `small`, or from [source] small_shape if that is null.
status add_small(const run_config &config, const model *small, model_shape &shape);

// For the report. Empty if there is one version.
std::vector<std::string> names_of_versions(const run_config &config, const model_shape &first);

}  // namespace moorage::core
