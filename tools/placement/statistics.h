// statistics.h - how often homes chose experts recently, with counts that decay.
//
//   activation_window window(scene.demand, /*half_life_s=*/600);
//   window.add(home, expert, tokens, now_ns);   // at every layer
//   window.fill(demand, now_ns);                // before a decision
//
// An event of t seconds ago counts 2^(-t / half_life). New counts get a higher weight, so that old
// ones need not be reduced. An addition costs one multiplication. Once in 64 half-lives all counts
// are scaled by a power of two, which is exact.
#pragma once

#include <cstdint>
#include <vector>

#include "tools/placement/scene.h"

namespace moorage::core {

class activation_window {
public:
    // `demand` gives the numbers of homes, models and experts. No event is before `start_ns`.
    // Requires: half_life_s > 0.
    activation_window(const demand_arrays &demand, double half_life_s, uint64_t start_ns = 0);

    // Adds tokens of a home that chose an expert, given by its number. Times may be out of order.
    // Requires: home and expert in range.
    void add(uint32_t home, uint32_t expert, double tokens, uint64_t now_ns) {
        if (now_ns != weight_ns_) set_weight(now_ns);
        counts_[uint64_t{home} * experts_ + expert] += tokens * weight_;
    }
    // Sets frequencies, shares of models, tokens_per_s and window_s. Drops the calls, because sets
    // of experts are not counted. A home without activations gets zeros. The tokens of a model are
    // its activations / (layers * top_k). Rates are per time that the weights sum up to: half_life
    // / ln 2 in the long run, and the time since the start at first.
    void fill(demand_arrays &demand, uint64_t now_ns) const;

private:
    void set_weight(uint64_t now_ns);
    double weight_at(uint64_t now_ns) const;  // relative to origin_ns_

    uint32_t homes_, experts_;
    double half_life_ns_;
    uint64_t start_ns_;
    double origin_ns_;  // when the weight is 1
    uint64_t weight_ns_;
    double weight_ = 1;
    std::vector<double> counts_;  // [homes, experts] weighted tokens
};

}  // namespace moorage::core
