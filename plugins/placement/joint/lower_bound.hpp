// lower_bound.hpp - a Lagrangian lower bound of the cost of any placement, for the joint policy.
//
// It relaxes the two things that couple experts: sets and memory.
//
// Sets. Let S be the experts of a layer that a token misses, t(x) >= 0 weights that sum to 1 over
// S, and n(x) the server that serves x. If calls are serial, the layer takes at least
//     sum over servers n used of fix(n) + sum over x of back(n(x))
//         >= sum over x of t(x) fix(n(x)) + back(n(x)),
// because the weights of the experts at one server sum to at most 1. The home's own server is such
// a server, with fix = its computation and no way back. So is the cloud. If calls are parallel, the
// layer takes at least the time of each expert alone, so at least the weighted mean of these times.
// Either way the bound is a sum over experts of A fix + R back. A sums t and R sums 1 over the
// sets. Each term is least over the expert's holders by itself; it uses the own server if that is a
// holder. For top-1, t = 1 and nothing is lost. Remote calls and coverage are sums over experts
// already.
//
// Memory. With a price p(n) >= 0 for a byte of server n, every placement that fits costs at least
//     sum over x of min over sets H of servers (cost(x, H) + bytes(x) p(H))
//         - sum over n p(n) room(n)
// where room(n) is the room of its devices in whole multiples of the sizes' common divisor. The
// minimum is found by trying all H. For many servers it is itself bounded from below, by a feasible
// dual solution v of the expert's location problem: sum over e of v(e), where for every n the sum
// over e of max(0, v(e) - cost(e, n)) is at most bytes(x) p(n).
//
// Subgradient steps improve prices and weights t. Each pair gives a valid bound. Names: fix is the
// time that is paid once, back the time of a reply, t a share.
#pragma once

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <vector>

#include "relaxation.hpp"

namespace moorage::joint {

class lower_bound {
public:
    // Model and times are borrowed. With `stride` above 1, one set in `stride` stands for all, and
    // value() is an estimate.
    lower_bound(const latency_model &latency, const call_times &times, const cost_weights &weights,
                bool cover, uint32_t stride = 1)
        : servers_(latency.cluster().servers),
          evaluation_work_(uint64_t{latency.experts()} * servers_ * times.entries()),
          enumerates_(servers_ <= 10 && (uint64_t{latency.experts()} << servers_) <= uint64_t{1}
                                                                                         << 22),
          price_(servers_, 0) {
        if (!is_too_large())
            relaxation_.emplace(latency, times, weights, cover, enumerates_, stride);
    }

    // Starts again for another cost.
    void set_weights(const cost_weights &weights) {
        if (relaxation_) relaxation_->set_weights(weights);
        best_ = -infinity, scale_ = 0;
        best_price_.clear();
    }
    // Improves the bound; `target` is the cost of some placement (placement_state::total()).
    void ascend(double target, uint32_t steps) {
        if (is_too_large()) return;
        scale_ = std::max(scale_, std::abs(target));
        const bool first = best_price_.empty();
        if (first)
            find_scale();
        else
            return_to_best();
        if (enumerates_) run_ellipsoid(first ? 2 : 0.1, 60 * servers_);
        if (enumerates_ && relaxation_->has_sets()) move_shares(steps);
        price_ = best_price_;
        follow_subgradient(target, enumerates_ ? 20 : steps);
        if (enumerates_) run_ellipsoid(0.1, 30 * servers_);
    }
    // A number of steps that takes at most seconds.
    uint32_t affordable_steps() const {
        if (enumerates_)
            return static_cast<uint32_t>(
                std::clamp<size_t>(100'000'000 / (relaxation_->members() + 1), 12, 40));
        return static_cast<uint32_t>(
            std::clamp(1e9 / static_cast<double>(evaluation_work_), 6.0, 40.0));
    }
    // Whether a bound, some thirty tries of prices, would take minutes. Then there is none, and
    // value() stays below everything.
    bool is_too_large() const { return !enumerates_ && evaluation_work_ > work_most; }
    // Bound of the cost without load and moves, rounded down.
    double value() const { return best_ - 1e-11 * (std::abs(best_) + scale_); }
    // Whether all sets of holders are tried.
    bool enumerates() const { return enumerates_; }
    // Holders of the expert in the relaxed solution, as bits. Requires: enumerates().
    uint32_t chosen(uint32_t expert) const { return best_chosen_[expert]; }

private:
    static constexpr uint64_t work_most = 200'000'000;

    // Every result is a bound; the best one is kept.
    double try_prices() {
        const double value = relaxation_->evaluate(price_);
        if (value > best_) {
            best_ = value, best_price_ = price_;
            best_shares_ = relaxation_->shares(), best_chosen_ = relaxation_->chosen();
        }
        return value;
    }
    void return_to_best() {
        price_ = best_price_;
        relaxation_->set_shares(best_shares_);
    }
    void find_scale();
    void run_ellipsoid(double radius, uint32_t steps);
    double find_slope(std::vector<double> &slope);
    void follow_subgradient(double target, uint32_t steps);
    void move_shares(uint32_t rounds);

    const uint32_t servers_;
    const uint64_t evaluation_work_;
    const bool enumerates_;
    std::optional<relaxation> relaxation_;  // empty: too large
    std::vector<double> price_;             // [servers] of a byte
    double best_ = -infinity, scale_ = 0;
    std::vector<double> best_price_, best_shares_;
    std::vector<uint32_t> best_chosen_;
};

// First no price, which gives a bound too, then one price for all servers. The bound is concave in
// that price, so it rises and falls once.
inline void lower_bound::find_scale() {
    const double room =
        std::accumulate(relaxation_->room().begin(), relaxation_->room().end(), 0.0);
    const auto value = [&](double price) {
        std::fill(price_.begin(), price_.end(), price);
        return try_prices();
    };
    double most = value(0), best = 0;
    const auto is_better = [&](double price) {
        const double reached = value(price);
        if (reached <= most) return false;
        most = reached, best = price;
        return true;
    };
    double price = room > 0 ? scale_ / room : 0;
    for (uint32_t trial = 0; trial < 12; ++trial, price /= 4)
        if (!is_better(price) && best > 0) break;
    for (double step = 2; step > 1.05 && best > 0; step = std::sqrt(step))
        if (!is_better(best * step)) is_better(best / step);
    price_ = best_price_;
}

// The slope of a cut through the prices, and its depth: the bound falls on its other side.
inline double lower_bound::find_slope(std::vector<double> &slope) {
    const auto lowest = std::min_element(price_.begin(), price_.end());
    std::fill(slope.begin(), slope.end(), 0.0);
    if (*lowest < 0) {
        slope[static_cast<size_t>(lowest - price_.begin())] = 1;
        return -*lowest;
    }
    const double value = try_prices();
    for (uint32_t server = 0; server < servers_; ++server)
        slope[server] = relaxation_->used()[server] - relaxation_->room()[server];
    return best_ - value;
}

// The ellipsoid method with deep cuts, around the best prices; for few servers. Prices cannot be
// adjusted one by one: if servers are alike, a small change moves many experts to another server.
inline void lower_bound::run_ellipsoid(double radius, uint32_t steps) {
    const uint32_t dimensions = servers_;
    price_ = best_price_;
    const double unit = *std::max_element(price_.begin(), price_.end());
    if (dimensions < 2 || unit <= 0) return;
    std::vector<double> shape(size_t{dimensions} * dimensions, 0), slope(dimensions),
        towards(dimensions);
    for (uint32_t row = 0; row < dimensions; ++row)
        shape[row * dimensions + row] = radius * radius * unit * unit;
    for (uint32_t step = 0; step < steps; ++step) {
        const double depth = find_slope(slope);
        double norm = 0;
        for (uint32_t row = 0; row < dimensions; ++row) {
            towards[row] = 0;
            for (uint32_t column = 0; column < dimensions; ++column)
                towards[row] += shape[row * dimensions + column] * slope[column];
            norm += slope[row] * towards[row];
        }
        norm = std::sqrt(norm);
        if (!(norm > 0) || depth >= norm) return;
        const double alpha = depth / norm, count = dimensions;
        const double stride = (1 + count * alpha) / (count + 1) / norm;
        const double grow = count * count / (count * count - 1) * (1 - alpha * alpha);
        const double flat = 2 * (1 + count * alpha) / ((count + 1) * (1 + alpha)) / (norm * norm);
        for (uint32_t row = 0; row < dimensions; ++row) price_[row] += stride * towards[row];
        for (uint32_t row = 0; row < dimensions; ++row)
            for (uint32_t column = 0; column < dimensions; ++column)
                shape[row * dimensions + column] = grow * (shape[row * dimensions + column] -
                                                           flat * towards[row] * towards[column]);
    }
}

// Subgradient steps for prices; `target` is not below the maximum.
inline void lower_bound::follow_subgradient(double target, uint32_t steps) {
    const std::vector<double> &room = relaxation_->room(), &used = relaxation_->used();
    double length = 1;
    uint32_t since = 0;  // the last gain
    for (uint32_t step = 0; step < steps && length > 1e-4; ++step) {
        const double old_best = best_, value = try_prices();
        if (best_ > old_best + 1e-4 * std::abs(target - old_best)) since = 0;
        if (++since > 6) {
            length /= 2, since = 0;
            return_to_best();
            continue;
        }
        // In shares of a server's room, so all prices have one unit.
        double norm = 0;
        for (uint32_t server = 0; server < servers_; ++server) {
            const double excess = room[server] > 0 ? used[server] / room[server] - 1 : 0;
            if (excess > 0 || price_[server] > 0) norm += excess * excess;
        }
        const double stride =
            norm > 0 ? length * std::max(target - value, 1e-9 * scale_) / norm : 0;
        for (uint32_t server = 0; server < servers_; ++server)
            if (room[server] > 0)
                price_[server] =
                    std::max(0.0, price_[server] +
                                      stride * (used[server] / room[server] - 1) / room[server]);
    }
}

inline void lower_bound::move_shares(uint32_t rounds) {
    double rate = 0.5;
    relaxation_->forget_payments();
    for (uint32_t round = 0; round < rounds && rate > 1e-3; ++round) {
        const double old_best = best_;
        run_ellipsoid(0.05, 8 * servers_);
        relaxation_->shift_shares(rate);
        price_ = best_price_;
        try_prices();
        if (best_ - old_best < 1e-4 * scale_) rate *= 0.8;
    }
    relaxation_->set_shares(best_shares_);
}

}  // namespace moorage::joint
