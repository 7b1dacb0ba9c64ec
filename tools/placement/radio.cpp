// radio.cpp - Eq. (3) with arithmetic that rounds alike everywhere, because placements depend on
// it.
#include "tools/placement/radio.h"

#include <algorithm>
#include <cmath>

#include "core/base/portable_math.h"

namespace moorage::core {

double distance_m(const position &first, const position &second) {
    const double x = first.x - second.x, y = first.y - second.y;
    return std::sqrt(x * x + y * y);
}

double bits_per_s(const cluster_radio &radio, const transmission &transmission) {
    const double distance = std::max(transmission.distance_m, radio.distance_min_m);
    const double received =
        transmission.power_w * radio.gain * portable_pow(distance, -radio.path_loss);
    const double noise = radio.noise_w_per_hz * transmission.bandwidth_hz;
    const double ratio = received / noise;
    // For a very weak signal 1 + ratio would lose its digits.
    const double nats = ratio < 1e-8 ? ratio : portable_log(1 + ratio);
    return transmission.bandwidth_hz * nats / 0.69314718055994530942;
}

}  // namespace moorage::core
