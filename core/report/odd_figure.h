// odd_figure.h - the last look at figures before they go out: every number has to be finite.
#pragma once

#include <string>

#include "core/base/json_fwd.h"

namespace moorage::core {

// The name of the first that is not, "tpot_ms.mean" or "layers.3.stall_ms"; empty: all are finite.
// What has no value is null.
std::string odd_figure(const json &figures);

}  // namespace moorage::core
