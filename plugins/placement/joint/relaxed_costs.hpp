// relaxed_costs.hpp - the cost of each expert by itself, as joint's bound relaxes it.
//
// A set's time is divided among its experts by their shares. Then each expert has weights for the
// time that is paid once (A in lower_bound.hpp) and for that of each expert (R).
#pragma once

#include <algorithm>
#include <bit>
#include <initializer_list>
#include <vector>

#include "bound_problem.hpp"
#include "holder_options.hpp"

namespace moorage::joint {

struct relaxed_weights {
    cost_weights cost;
    std::vector<double> once_weight, each_weight;  // [experts, entries] A and R
};

// The memory that a relaxed solution uses, and what it pays.
struct relaxed_solution {
    std::vector<double> used;      // [servers] bytes
    std::vector<uint32_t> chosen;  // [experts] holders as bits; only for few servers
    std::vector<double> paid;      // [experts, entries] seconds paid once, summed over solutions
};

// For few servers: tries all sets of holders.
class subset_costs {
public:
    // Both are borrowed.
    subset_costs(const bound_problem &problem, const holder_options &options)
        : problem_(problem), options_(options), subsets_(options.count()) {}

    void compute(const relaxed_weights &weights) {
        cost_.assign(problem_.experts * subsets_, 0);
        for (uint32_t expert = 0; expert < problem_.experts; ++expert) {
            if (problem_.wanted[expert] == 0) continue;
            double *cost = cost_.data() + expert * subsets_;
            for (uint32_t entry = 0; entry < problem_.entries; ++entry)
                add_entry(weights, expert, entry, cost);
            for (size_t subset = 0; subset < subsets_; ++subset)
                for (uint32_t server = 0; server < problem_.servers; ++server)
                    if ((subset >> server & 1) != 0 &&
                        !problem_.can_hold(server, problem_.model_of(expert)))
                        cost[subset] = infinity;
            if (problem_.cover) cost[0] = infinity;
        }
    }

    // The least cost of all experts if a byte of a server costs its price.
    double choose(const std::vector<double> &price, relaxed_solution &solution) const {
        const std::vector<double> room_price = subset_prices(price);
        double sum = 0;
        for (uint32_t expert = 0; expert < problem_.experts; ++expert) {
            if (problem_.wanted[expert] == 0) continue;
            const uint32_t model = problem_.model_of(expert);
            const double *cost = cost_.data() + expert * subsets_;
            const double *room_cost = room_price.data() + model * subsets_;
            double least = infinity;
            uint32_t best = 0;
            for (size_t subset = 0; subset < subsets_; ++subset)
                if (cost[subset] + room_cost[subset] < least)
                    least = cost[subset] + room_cost[subset], best = static_cast<uint32_t>(subset);
            sum += least;
            solution.chosen[expert] = best;
            for (uint32_t left = best; left != 0; left &= left - 1)
                solution.used[static_cast<size_t>(std::countr_zero(left))] += problem_.bytes[model];
            for (uint32_t entry = 0; entry < problem_.entries; ++entry)
                solution.paid[problem_.pair_index(expert, entry)] +=
                    options_.once_s(model, entry)[best];
        }
        return sum;
    }

private:
    void add_entry(const relaxed_weights &weights, uint32_t expert, uint32_t entry, double *cost) {
        const size_t pair = problem_.pair_index(expert, entry);
        const double once_weight = weights.cost.latency * weights.once_weight[pair];
        const double each_weight = weights.cost.latency * weights.each_weight[pair];
        const double remote = weights.cost.remote_s * problem_.calls[pair];
        if (once_weight + each_weight + remote <= 0) return;
        const double *once_s = options_.once_s(problem_.model_of(expert), entry);
        const double *each_s = options_.each_s(problem_.model_of(expert), entry);
        const size_t own_bit = size_t{1} << problem_.times.entry_server(entry);
        for (size_t subset = 0; subset < subsets_; ++subset)
            cost[subset] += once_weight * once_s[subset] + each_weight * each_s[subset] +
                            ((subset & own_bit) != 0 ? 0 : remote);
    }
    std::vector<double> subset_prices(const std::vector<double> &price) const {
        std::vector<double> room_price(problem_.models * subsets_, 0);
        for (uint32_t model = 0; model < problem_.models; ++model)
            for (size_t subset = 0; subset < subsets_; ++subset)
                for (uint32_t server = 0; server < problem_.servers; ++server)
                    if ((subset >> server & 1) != 0)
                        room_price[model * subsets_ + subset] +=
                            problem_.bytes[model] * price[server];
        return room_price;
    }

    const bound_problem &problem_;
    const holder_options &options_;
    const size_t subsets_;
    std::vector<double> cost_;  // [experts, subsets]
};

// For many servers: a feasible dual solution of the expert's location problem. Each entry has a
// level, a lower bound of its cost; the sum of the levels is a bound of the expert's cost.
class location_dual {
public:
    // All are borrowed.
    location_dual(const bound_problem &problem, const holder_options &options,
                  const relaxed_weights &weights)
        : problem_(problem), options_(options), weights_(weights) {}

    // The bound if a byte of a server costs its price. First every entry's level rises to the
    // second cheapest way to serve it, then as far as the servers' prices allow.
    double ascend(uint32_t expert, const std::vector<double> &price, relaxed_solution &solution) {
        const uint32_t model = problem_.model_of(expert);
        slack_.resize(problem_.servers), level_.assign(problem_.entries, 0);
        for (uint32_t server = 0; server < problem_.servers; ++server)
            slack_[server] =
                problem_.can_hold(server, model) ? problem_.bytes[model] * price[server] : infinity;
        for (const bool to_second : {true, false})
            for (uint32_t entry = 0; entry < problem_.entries; ++entry)
                raise(expert, entry, to_second);
        double sum = 0;
        for (const double level : level_) sum += level;
        // Some server must have it, whichever entry requests it.
        uint32_t cheapest = 0;
        for (uint32_t server = 1; server < problem_.servers; ++server)
            if (slack_[server] < slack_[cheapest]) cheapest = server;
        if (problem_.cover) sum += std::max(0.0, slack_[cheapest]);
        bool opened = false;
        for (uint32_t server = 0; server < problem_.servers; ++server)
            if (slack_[server] <= 1e-9 * problem_.bytes[model] * price[server])
                solution.used[server] += problem_.bytes[model], opened = true;
        if (problem_.cover && !opened) solution.used[cheapest] += problem_.bytes[model];
        return sum;
    }

private:
    // `server`: or the number of servers for none.
    double cost(uint32_t expert, uint32_t entry, uint32_t server) const {
        const uint32_t model = problem_.model_of(expert);
        const size_t pair = problem_.pair_index(expert, entry);
        return weights_.cost.latency *
                   (weights_.once_weight[pair] * options_.once_s(model, entry)[server] +
                    weights_.each_weight[pair] * options_.each_s(model, entry)[server]) +
               (server == problem_.times.entry_server(entry)
                    ? 0
                    : weights_.cost.remote_s * problem_.calls[pair]);
    }
    void raise(uint32_t expert, uint32_t entry, bool to_second) {
        const size_t pair = problem_.pair_index(expert, entry);
        if (weights_.once_weight[pair] + weights_.each_weight[pair] + problem_.calls[pair] <= 0)
            return;
        const double old_level = level_[entry];
        double first = infinity, second = infinity, most = cost(expert, entry, problem_.servers);
        for (uint32_t server = 0; server < problem_.servers; ++server) {
            const double served_cost = cost(expert, entry, server);
            if (slack_[server] == infinity || served_cost == infinity) continue;
            second = served_cost < first ? first : std::min(second, served_cost);
            first = std::min(first, served_cost);
            most = std::min(most, std::max(served_cost, old_level) + std::max(0.0, slack_[server]));
        }
        if (to_second) most = std::min(most, second);
        if (!(most > old_level)) return;
        for (uint32_t server = 0; server < problem_.servers; ++server)
            if (const double served_cost = cost(expert, entry, server); served_cost < most)
                slack_[server] -= most - std::max(served_cost, old_level);
        level_[entry] = most;
    }

    const bound_problem &problem_;
    const holder_options &options_;
    const relaxed_weights &weights_;
    std::vector<double> slack_;  // [servers] what is left of the price of a copy
    std::vector<double> level_;  // [entries]
};

}  // namespace moorage::joint
