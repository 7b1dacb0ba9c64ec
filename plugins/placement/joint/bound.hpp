// bound.hpp - a Lagrangian lower bound of the cost of any placement, for the joint policy.
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
// Subgradient steps improve prices and weights t. Each pair gives a valid bound.
#pragma once

#include <cmath>
#include <numeric>

#include "state.hpp"

namespace moorage::joint {

class lower_bound {
public:
    // With `stride` above 1, one set in `stride` stands for all, and value() is an estimate.
    lower_bound(const latency_model &latency, const layer_time &time, const cost_weights &weights,
                bool cover, uint32_t stride = 1);

    // Starts again for another cost.
    void set_weights(const cost_weights &weights);
    // Improves the bound; `target` is the cost of some placement (state::total()).
    void ascend(double target, uint32_t steps);
    // A number of steps that takes at most seconds.
    uint32_t steps() const {
        if (enumerated())
            return static_cast<uint32_t>(
                std::clamp<size_t>(100'000'000 / (members_.size() + 1), 12, 40));
        const double step_work = static_cast<double>(experts_) * servers_ * entries_;
        return static_cast<uint32_t>(std::clamp(1e9 / step_work, 6.0, 40.0));
    }
    // Whether a bound, some thirty tries of prices, would take minutes. Then there is none, and
    // value() stays below everything.
    bool too_large() const {
        return !enumerated() && uint64_t{experts_} * servers_ * entries_ > work_most;
    }
    // Bound of the cost without load and moves, rounded down.
    double value() const { return best_ - 1e-11 * (std::abs(best_) + scale_); }
    // Holders of the expert in the relaxed solution, as bits. Requires: enumerated().
    uint32_t chosen(uint32_t expert) const { return best_chosen_[expert]; }
    bool enumerated() const { return subsets_ != 0; }

private:
    static constexpr uint64_t work_most = 200'000'000;

    struct set {
        uint32_t first, count;  // in members_, share_
        uint32_t entry, model;
        double weight;
    };

    void read(const latency_model &latency, uint32_t stride);
    void read_options();
    void sum_shares();
    void price_subsets();
    double evaluate();
    double enumerate_all();
    double ascend_one(uint32_t expert);
    void read_option(uint32_t model, uint32_t entry);
    void shift_shares(double rate);
    double try_prices();
    void find_scale();
    void run_ellipsoid(double radius, uint32_t steps);
    void follow_subgradient(double target, uint32_t steps);
    void move_shares(uint32_t rounds);
    size_t pair_index(uint32_t expert, uint32_t entry) const {
        return size_t{expert} * entries_ + entry;
    }
    size_t option_index(uint32_t model, uint32_t entry) const {
        return (size_t{model} * entries_ + entry) * options_;
    }

    const layer_time &time_;
    cost_weights weights_;
    const uint32_t servers_, experts_, entries_, models_;
    const bool cover_;
    std::vector<uint32_t> model_of_;
    std::vector<double> bytes_, room_;   // [M], [N]
    std::vector<uint32_t> fits_;         // [M * N]
    std::vector<uint8_t> wanted_;        // [X]
    std::vector<double> calls_, fixed_;  // (expert, entry): calls; layers that miss it alone
    std::vector<double> once_weight_, each_weight_;  // (expert, entry): A and R
    std::vector<set> sets_;
    std::vector<uint32_t> members_;
    std::vector<double> share_;
    // For a holder set or a server, seen from an entry: paid once; paid for each expert.
    size_t subsets_ = 0, options_ = 0;
    std::vector<double> option_once_, option_each_;  // [M, entries, options]
    std::vector<double> cost_;                       // [X, subsets]
    bool stale_ = true;
    std::vector<double> price_;  // [N] price of a byte
    std::vector<double> used_;   // [N] bytes, from the last evaluate()
    std::vector<uint32_t> chosen_, best_chosen_;
    std::vector<double> best_price_, best_share_;
    std::vector<double> paid_;  // (expert, entry): option_once_ of chosen holders, summed up
    std::vector<double> slack_, level_;  // for the running ascend_one()
    double best_ = -infinity, scale_ = 0;
};

}  // namespace moorage::joint

#include "bound.inl"
