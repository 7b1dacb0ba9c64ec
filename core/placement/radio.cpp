// radio.cpp - Eq. (3) with arithmetic that rounds alike everywhere, because placements depend on
// it.
#include "core/placement/radio.h"

#include <algorithm>
#include <cmath>

#include "core/base/portable_math.h"

namespace moorage::core {

double distance_m(const position &one, const position &other) {
    const double x = one.x - other.x, y = one.y - other.y;
    return std::sqrt(x * x + y * y);
}

double bits_per_s(const cluster_radio &radio, const transmission &over) {
    const double distance = std::max(over.distance_m, radio.distance_min_m);
    const double received = over.power_w * radio.gain * portable_pow(distance, -radio.path_loss);
    const double noise = radio.noise_w_per_hz * over.bandwidth_hz;
    const double ratio = received / noise;
    // For a very weak signal 1 + ratio would lose its digits.
    const double nats = ratio < 1e-8 ? ratio : portable_log(1 + ratio);
    return over.bandwidth_hz * nats / 0.69314718055994530942;
}

}  // namespace moorage::core
