// entry_demand.hpp - the demand of all homes, by expert and entry, for the joint policy.
#pragma once

#include <vector>

#include "call_times.hpp"

namespace moorage::joint {

// Whether some home sends tokens through the model.
inline bool is_wanted(const moorage_demand &demand, uint32_t model) {
    for (uint32_t home = 0; home < demand.homes; ++home)
        if (demand.host_home_model[size_t{home} * demand.models + model] > 0) return true;
    return false;
}

// 0: no home states its rate, and all homes count equally.
inline double sum_rates(const moorage_demand &demand) {
    double sum = 0;
    for (uint32_t home = 0; home < demand.homes; ++home) sum += demand.host_home_tokens_per_s[home];
    return sum;
}

// Without rates, each home counts as one token per second.
inline double tokens_per_s(const moorage_demand &demand) {
    const double sum = sum_rates(demand);
    return sum > 0 ? sum : demand.homes;
}

// Calls of experts that the home itself does not hold: [experts, entries].
inline std::vector<double> read_calls(const latency_model &latency, const call_times &times) {
    const moorage_demand &demand = latency.demand();
    const uint32_t experts = latency.experts(), entries = times.entries();
    const double all_rates = sum_rates(demand);
    std::vector<double> calls(size_t{experts} * entries, 0);
    for (uint32_t home = 0; home < demand.homes; ++home) {
        const double weight =
            all_rates > 0 ? demand.host_home_tokens_per_s[home] / all_rates : 1.0 / demand.homes;
        const size_t row = size_t{home} * experts;
        const uint32_t entry = times.server_entry(latency.cluster().host_home_server[home]);
        for (uint32_t expert = 0; expert < experts; ++expert)
            if (!demand.host_home_holds || demand.host_home_holds[row + expert] == 0)
                calls[size_t{expert} * entries + entry] +=
                    weight * demand.host_frequency[row + expert];
    }
    return calls;
}

class entry_demand {
public:
    entry_demand(const latency_model &latency, const call_times &times)
        : entries_(times.entries()),
          tokens_per_s_(moorage::joint::tokens_per_s(latency.demand())),
          batches_(latency.cluster(), latency.demand()),
          calls_(read_calls(latency, times)),
          single_(calls_.size(), 0) {
        for (uint32_t expert = 0; expert < latency.experts(); ++expert)
            for (uint32_t entry = 0; entry < entries_; ++entry)
                single_[pair_index(expert, entry)] =
                    latency.single_weight(expert, times.entry_server(entry)) / batch(entry);
    }

    size_t pair_index(uint32_t expert, uint32_t entry) const {
        return size_t{expert} * entries_ + entry;
    }
    double tokens_per_s() const { return tokens_per_s_; }
    // Layers that miss the expert alone.
    double single(size_t pair) const { return single_[pair]; }
    double calls(size_t pair) const { return calls_[pair]; }
    bool is_asked(size_t pair) const { return single_[pair] > 0 || calls_[pair] > 0; }

    bool has_batches() const { return batches_.any(); }
    const batch_model &batches() const { return batches_; }
    // Mean number of tokens that pass together.
    double batch(uint32_t entry) const { return batches_.any() ? batches_.batch(entry) : 1; }

private:
    const uint32_t entries_;
    const double tokens_per_s_;
    const batch_model batches_;
    std::vector<double> calls_;   // [experts, entries]
    std::vector<double> single_;  // [experts, entries]
};

}  // namespace moorage::joint
