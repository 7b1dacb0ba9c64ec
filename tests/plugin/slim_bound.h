// slim_bound.h - the largest saving of any placement if every token chooses one expert.
//
// Bound by Lagrangian duality: memory of the servers is not a limit but has a price for each byte.
// Experts are then independent. For each expert the best set of servers is found among all of them.
// The sum is an upper bound of F for any prices. Subgradient steps lower it. It is at least as low
// as the linear-programming bound of the facility-location form, which it prices by expert instead
// of by half experts.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "slim_reference.h"

namespace moorage::test {

class slim_bound {
public:
    // Requires: K = 1 throughout, at most 6 servers of one device.
    explicit slim_bound(const placement_scene &scene)
        : scene_(scene), sets_(1u << scene.servers), saved_(size_t{scene.expert_count()} * sets_) {
        const slim_reference reference(scene);
        double total = 0;
        for (const double tokens : scene.home_tokens_per_s) total += tokens;
        for (uint32_t set = 0; set < sets_; ++set) {
            slim_placement placed = reference.empty();
            for (uint32_t n = 0; n < scene.servers; ++n)
                if ((set >> n & 1) != 0) placed[n].assign(scene.expert_count(), n);
            for (uint32_t h = 0; h < scene.homes; ++h) {
                for (uint64_t c = scene.home_first_call[h]; c < scene.home_first_call[h + 1]; ++c) {
                    const uint32_t x = scene.group_experts[scene.group_first[scene.call_group[c]]];
                    saved_[size_t{x} * sets_ + set] -= scene.home_tokens_per_s[h] / total *
                                                       scene.call_share[c] *
                                                       reference.layer_s(h, {x}, placed);
                }
            }
        }
        for (uint32_t x = 0; x < scene.expert_count(); ++x) {
            bytes_.push_back(static_cast<double>(scene.expert_bytes[reference.model_of(x)]));
            for (uint32_t set = sets_; set-- > 0;)
                saved_[size_t{x} * sets_ + set] -= saved_[size_t{x} * sets_];
        }
    }

    // After that many steps. `reached`: the saving of some placement; it sets the step's length.
    double saved_s(double reached, int steps) const {
        std::vector<double> price(scene_.servers, 0), used(scene_.servers);
        double best = std::numeric_limits<double>::infinity(), pace = 1;
        int since = 0;
        for (int step = 0; step < steps; ++step) {
            const double bound = value(price, used);
            if (bound < best) {
                best = bound, since = 0;
            } else if (++since == 20) {
                pace /= 2, since = 0;
            }
            double norm = 0;
            for (uint32_t n = 0; n < scene_.servers; ++n) norm += slack(used, n) * slack(used, n);
            if (norm == 0 || best - reached < 1e-9 * best) break;
            for (uint32_t n = 0; n < scene_.servers; ++n)
                price[n] =
                    std::max(0.0, price[n] - pace * (bound - reached) * slack(used, n) / norm);
        }
        return best;
    }

private:
    double slack(const std::vector<double> &used, uint32_t n) const {
        return static_cast<double>(scene_.device_bytes[n]) - used[n];
    }
    double value(const std::vector<double> &price, std::vector<double> &used) const {
        double bound = 0;
        for (uint32_t n = 0; n < scene_.servers; ++n)
            bound += price[n] * static_cast<double>(scene_.device_bytes[n]);
        std::vector<double> cost(sets_, 0);
        for (uint32_t set = 1; set < sets_; ++set)
            for (uint32_t n = 0; n < scene_.servers; ++n)
                if ((set >> n & 1) != 0) cost[set] += price[n];
        std::fill(used.begin(), used.end(), 0.0);
        for (uint32_t x = 0; x < scene_.expert_count(); ++x) {
            uint32_t chosen = 0;
            double most = 0;
            for (uint32_t set = 1; set < sets_; ++set) {
                const double worth = saved_[size_t{x} * sets_ + set] - cost[set] * bytes_[x];
                if (worth > most) most = worth, chosen = set;
            }
            bound += most;
            for (uint32_t n = 0; n < scene_.servers; ++n)
                if ((chosen >> n & 1) != 0) used[n] += bytes_[x];
        }
        return bound;
    }

    const placement_scene &scene_;
    const uint32_t sets_;
    std::vector<double> saved_;  // [X, sets of servers]
    std::vector<double> bytes_;
};

}  // namespace moorage::test
