// call_times.h - how long calls to a node take: the expected time of the next call, and the time
// after which it is late.
//
// The time of a call has a part that is equal for all calls, and a part for each pair of row and
// expert. Both come from weighted least squares over the latest calls (each counts 63/64 of the one
// after it). The remaining error is the spread. Until there are enough calls, only a generous
// deadline is known.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>

namespace moorage::core {

// Buckets of a histogram of times. The first ends at 32 us, each next one at twice that, and the
// last never.
constexpr size_t call_buckets = 18;
constexpr double bucket_end_us(size_t bucket) { return 32.0 * static_cast<double>(1u << bucket); }

class call_times {
public:
    static constexpr uint64_t deadline_ns_min = 50'000'000, deadline_ns_first = 2'000'000'000,
                              deadline_ns_max = 30'000'000'000;

    void add(uint32_t pairs, uint64_t ns) {
        const double n = pairs, t = static_cast<double>(ns);
        const double deviation_ns = std::abs(t - predicted(n));
        spread_ = has_estimate() ? spread_ + (deviation_ns - spread_) / 16 : 0;
        weight_ = weight_ * decay + 1;
        n_ = n_ * decay + n;
        t_ = t_ * decay + t;
        nn_ = nn_ * decay + n * n;
        nt_ = nt_ * decay + n * t;
        ++count_;
        size_t bucket = 0;
        while (bucket + 1 < call_buckets && t > 1000 * bucket_end_us(bucket)) ++bucket;
        ++histogram_[bucket];
        sum_us_ += ns / 1000;
    }
    const std::array<uint64_t, call_buckets> &histogram() const { return histogram_; }
    uint64_t sum_us() const { return sum_us_; }
    bool has_estimate() const { return count_ >= 8; }
    // The 99th percentile of call times, rounded up to the end of a bucket. 0: too few calls were
    // seen.
    uint64_t slow_ns() const {
        constexpr uint64_t least = 100;
        if (count_ < least) return 0;
        uint64_t sum = 0;
        for (size_t bucket = 0; bucket + 1 < call_buckets; ++bucket)
            if ((sum += histogram_[bucket]) * 100 >= count_ * 99)
                return static_cast<uint64_t>(1000 * bucket_end_us(bucket));
        return 0;
    }
    uint64_t count() const { return count_; }
    // The expected time of a call with so many pairs. Before any call is measured, a value for a
    // LAN.
    uint64_t expected_ns(uint32_t pairs) const {
        constexpr double first_ns = 500e3, first_pair_ns = 50e3;
        const double time_ns = count_ != 0 ? predicted(pairs) : first_ns + first_pair_ns * pairs;
        return static_cast<uint64_t>(std::llround(std::clamp(time_ns, 1e3, 1e12)));
    }
    // The time after which a call is given up: four times the expected time and eight spreads. A
    // late call is computed twice. So a deadline that is missed by chance costs more than a long
    // one.
    uint64_t deadline_ns(uint32_t pairs) const {
        if (!has_estimate()) return deadline_ns_first + uint64_t{pairs} * 10'000'000;
        const double limit_ns = 4 * predicted(pairs) + 8 * spread_;
        return static_cast<uint64_t>(std::clamp(limit_ns, static_cast<double>(deadline_ns_min),
                                                static_cast<double>(deadline_ns_max)));
    }

private:
    static constexpr double decay = 63.0 / 64;
    double predicted(double n) const {
        if (count_ == 0) return 0;
        const double mean_n = n_ / weight_, mean_t = t_ / weight_;
        const double width = nn_ / weight_ - mean_n * mean_n;
        const double slope = width > 1e-9 * (1 + mean_n * mean_n)
                                 ? std::max(0.0, (nt_ / weight_ - mean_n * mean_t) / width)
                                 : 0;
        // For more pairs than in any call so far: no call of more pairs is expected to be free.
        const double beyond = n > mean_n && slope == 0 ? mean_t * n / std::max(mean_n, 1.0) : 0;
        return std::max({0.25 * mean_t, mean_t + slope * (n - mean_n), beyond});
    }

    std::array<uint64_t, call_buckets> histogram_{};
    uint64_t count_ = 0, sum_us_ = 0;
    double weight_ = 0, n_ = 0, t_ = 0, nn_ = 0, nt_ = 0, spread_ = 0;
};

}  // namespace moorage::core
