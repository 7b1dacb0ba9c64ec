// relaxation.hpp - the value of joint's bound for given prices of memory and shares in sets.
//
// lower_bound.hpp explains prices and shares and looks for good ones.
#pragma once

#include <algorithm>
#include <array>
#include <vector>

#include "relaxed_costs.hpp"

namespace moorage::joint {

class relaxation {
public:
    // Model and times are borrowed. `by_subsets`: tries all sets of holders.
    relaxation(const latency_model &latency, const call_times &times, const cost_weights &weights,
               bool cover, bool by_subsets, uint32_t stride)
        : problem_(latency, times, cover, /*with_sets=*/weights.latency > 0, stride),
          options_(times, problem_.models, problem_.servers, by_subsets),
          by_subsets_(by_subsets),
          subsets_(problem_, options_),
          dual_(problem_, options_, weights_) {
        weights_.cost = weights;
        solution_.used.assign(problem_.servers, 0);
        solution_.chosen.assign(problem_.experts, 0);
        solution_.paid.assign(problem_.calls.size(), 0);
        for (const bound_problem::set &set : problem_.sets)
            shares_.insert(shares_.end(), set.count, 1.0 / static_cast<double>(set.count));
    }
    relaxation(const relaxation &) = delete;  // its parts refer to each other

    size_t members() const { return problem_.members.size(); }
    bool has_sets() const { return !problem_.sets.empty(); }
    // Bytes of each server.
    const std::vector<double> &room() const { return problem_.room; }

    void set_weights(const cost_weights &weights) { weights_.cost = weights, stale_ = true; }
    // [members]; those of a set sum to 1.
    const std::vector<double> &shares() const { return shares_; }
    void set_shares(const std::vector<double> &shares) { shares_ = shares, stale_ = true; }

    // A bound of the cost of every placement if a byte of a server costs price[server].
    double evaluate(const std::vector<double> &price) {
        if (stale_) compute_weights();
        std::fill(solution_.used.begin(), solution_.used.end(), 0.0);
        double sum = 0;
        if (by_subsets_)
            sum = subsets_.choose(price, solution_);
        else
            for (uint32_t expert = 0; expert < problem_.experts; ++expert)
                if (problem_.wanted[expert] != 0) sum += dual_.ascend(expert, price, solution_);
        for (uint32_t server = 0; server < problem_.servers; ++server)
            sum -= price[server] * problem_.room[server];
        return sum;
    }
    // Bytes of each server that the last solution uses.
    const std::vector<double> &used() const { return solution_.used; }
    // Holders of each expert in the last solution, as bits. Requires: by subsets.
    const std::vector<uint32_t> &chosen() const { return solution_.chosen; }

    // Moves shares to the experts that are paid above the mean of their set. Payments are means
    // over the prices tried since the last call.
    void shift_shares(double rate) {
        for (const bound_problem::set &set : problem_.sets) {
            std::array<double, 16> paid;
            double mean = 0, sum = 0;
            for (uint32_t member = 0; member < set.count; ++member) {
                paid[member] = solution_.paid[pair_of(set, member)];
                mean += shares_[set.first + member] * paid[member];
            }
            if (!(mean > 0)) continue;
            for (uint32_t member = 0; member < set.count; ++member) {
                double &share = shares_[set.first + member];
                share *= std::clamp(1 + rate * (paid[member] / mean - 1), 0.25, 4.0);
                sum += share = std::max(share, 1e-4);
            }
            for (uint32_t member = 0; member < set.count; ++member)
                shares_[set.first + member] /= sum;
        }
        stale_ = true;
        forget_payments();
    }
    void forget_payments() { std::fill(solution_.paid.begin(), solution_.paid.end(), 0.0); }

private:
    size_t pair_of(const bound_problem::set &set, uint32_t member) const {
        return problem_.pair_index(problem_.members[set.first + member], set.entry);
    }
    void compute_weights() {
        weights_.once_weight = weights_.each_weight = problem_.single;
        for (const bound_problem::set &set : problem_.sets)
            for (uint32_t member = 0; member < set.count; ++member) {
                const size_t pair = pair_of(set, member);
                weights_.once_weight[pair] += set.weight * shares_[set.first + member];
                weights_.each_weight[pair] += set.weight;
            }
        stale_ = false;
        if (by_subsets_) subsets_.compute(weights_);
    }

    const bound_problem problem_;
    const holder_options options_;
    const bool by_subsets_;
    relaxed_weights weights_;
    bool stale_ = true;  // weights_ do not follow from shares_ yet
    subset_costs subsets_;
    location_dual dual_;
    std::vector<double> shares_;
    relaxed_solution solution_;
};

}  // namespace moorage::joint
