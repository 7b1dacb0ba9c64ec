// device_rates.h - the two ceilings of a machine, measured: what a copy within the GPU's memory
// reads and writes a second, and what a pinned copy to the GPU moves.
#pragma once

#include <string>

#include "core/base/result.h"

namespace moorage::core {

struct device_rates {
    std::string name;
    double memory = 0, h2d = 0;  // bytes a second; memory: read and written together
};
result<device_rates> measure_device_rates();

}  // namespace moorage::core
