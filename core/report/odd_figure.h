// odd_figure.h - the last check of figures before they are written: every number has to be finite.
#pragma once

#include <string>

#include "core/base/json_fwd.h"

namespace moorage::core {

// The name of the first figure that is not finite, "tpot_ms.mean" or "layers.3.stall_ms". Empty:
// all are finite. A figure without a value is null.
std::string odd_figure(const json &figures);

}  // namespace moorage::core
