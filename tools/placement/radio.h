// radio.h - radio rates, SlimCaching Eq. (3) and (4).
#pragma once

#include "core/config/cluster_config.h"

namespace moorage::core {

double distance_m(const position &first, const position &second);

struct transmission {
    double bandwidth_hz = 0, power_w = 0, distance_m = 0;
};
// B log2(1 + P G d^-alpha / (N0 B)). Distances are at least radio.distance_min_m.
double bits_per_s(const cluster_radio &radio, const transmission &transmission);

}  // namespace moorage::core
