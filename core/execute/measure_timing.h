// measure_timing.h - the time of an operation when nothing disturbs it.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <vector>

#include "core/execute/measure.h"

namespace moorage::core {

inline double seconds_since(std::chrono::steady_clock::time_point begin) {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// The lower quartile of the results of sample(). It takes as many samples as fit in `budget_s` of
// the clock now(), five at least, after one that is not counted.
template <class Now, class Sample>
double typical_sample(double budget_s, Now &&now, Sample &&sample) {
    constexpr size_t runs_min = 5, runs_max = 2000;
    sample();
    std::vector<double> samples;
    const double begin = now();
    while (samples.size() < runs_min || (samples.size() < runs_max && now() - begin < budget_s))
        samples.push_back(std::max(sample(), 1e-9));
    return lower_quartile(samples);
}

// The same for the time that body() takes.
template <class Body>
double typical_seconds(double budget_s, Body &&body) {
    const auto begin = std::chrono::steady_clock::now();
    const auto now = [&] { return seconds_since(begin); };
    return typical_sample(budget_s, now, [&] {
        const auto start = std::chrono::steady_clock::now();
        body();
        return seconds_since(start);
    });
}

}  // namespace moorage::core
