// measure_timing.h - how long something takes when nothing disturbs it.
#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

#include "core/execute/measure.h"

namespace moorage::core {

inline double seconds_since(std::chrono::steady_clock::time_point begin) {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// The lower quartile of as many runs as fit in `budget_s`, five at least, after one that is not
// counted.
template <class Body>
double typical_seconds(double budget_s, Body &&body) {
    constexpr size_t runs_min = 5, runs_max = 2000;
    body();
    std::vector<double> taken;
    const auto begin = std::chrono::steady_clock::now();
    while (taken.size() < runs_min ||
           (taken.size() < runs_max && seconds_since(begin) < budget_s)) {
        const auto from = std::chrono::steady_clock::now();
        body();
        taken.push_back(std::max(seconds_since(from), 1e-9));
    }
    return lower_quartile(taken);
}

}  // namespace moorage::core
