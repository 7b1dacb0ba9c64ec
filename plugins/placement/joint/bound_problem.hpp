// bound_problem.hpp - demand, sets and memory in the form that the joint policy's bound needs.
#pragma once

#include <algorithm>
#include <numeric>
#include <vector>

#include "entry_demand.hpp"

namespace moorage::joint {

struct bound_problem {
    // A set of experts that tokens of the entry miss together.
    struct set {
        uint32_t first, count;  // in members
        uint32_t entry;
        double weight;
    };

    // Model and times are borrowed. `cover`: every expert of a wanted model needs a copy. With
    // `stride` above 1, one set in `stride` stands for all.
    bound_problem(const latency_model &latency, const call_times &times, bool cover, bool with_sets,
                  uint32_t stride)
        : latency(latency),
          times(times),
          servers(latency.cluster().servers),
          experts(latency.experts()),
          entries(times.entries()),
          models(latency.cluster().models),
          cover(cover),
          calls(read_calls(latency, times)),
          single(calls.size(), 0) {
        read_memory(read_experts());
        for (uint32_t expert = 0; expert < experts; ++expert)
            for (uint32_t entry = 0; entry < entries; ++entry)
                single[pair_index(expert, entry)] =
                    latency.single_weight(expert, times.entry_server(entry));
        if (with_sets) read_sets(stride);
    }

    size_t pair_index(uint32_t expert, uint32_t entry) const {
        return size_t{expert} * entries + entry;
    }
    uint32_t model_of(uint32_t expert) const { return latency.model_of(expert); }
    bool can_hold(uint32_t server, uint32_t model) const {
        return fits[model * servers + server] != 0;
    }

    const latency_model &latency;
    const call_times &times;
    const uint32_t servers, experts, entries, models;
    const bool cover;
    std::vector<double> bytes;    // [models] of an expert
    std::vector<double> room;     // [servers] bytes, in whole multiples of the common divisor
    std::vector<uint8_t> fits;    // [models, servers] whether a device can hold an expert
    std::vector<uint8_t> wanted;  // [experts]
    std::vector<double> calls;    // [experts, entries]
    std::vector<double> single;   // [experts, entries] layers that miss the expert alone
    std::vector<set> sets;
    std::vector<uint32_t> members;  // experts of all sets

private:
    // Returns the common divisor of the sizes of wanted experts.
    uint64_t read_experts() {
        const moorage_demand &demand = latency.demand();
        uint64_t unit = 0;
        for (uint32_t model = 0; model < models; ++model) {
            bytes.push_back(static_cast<double>(demand.host_expert_bytes[model]));
            const bool is_model_wanted = is_wanted(demand, model);
            for (uint32_t expert = demand.host_model_first[model];
                 expert < demand.host_model_first[model + 1]; ++expert)
                wanted.push_back(is_model_wanted || latency.asked(expert) ? 1 : 0);
            if (is_model_wanted) unit = std::gcd(unit, demand.host_expert_bytes[model]);
        }
        return std::max<uint64_t>(unit, 1);
    }
    void read_memory(uint64_t unit) {
        const moorage_cluster &cluster = latency.cluster();
        room.assign(servers, 0);
        fits.assign(size_t{models} * servers, 0);
        for (uint32_t device = 0; device < cluster.devices; ++device) {
            const uint64_t device_bytes = cluster.host_device_bytes[device];
            room[times.server_of(device)] += static_cast<double>(device_bytes / unit * unit);
            for (uint32_t model = 0; model < models; ++model)
                if (latency.demand().host_expert_bytes[model] <= device_bytes)
                    fits[model * servers + times.server_of(device)] = 1;
        }
    }
    void read_sets(uint32_t stride) {
        uint64_t number = 0;
        latency.for_sets([&](uint32_t server, double weight, std::span<const uint32_t> experts_of) {
            if (number++ % stride != 0) return;
            sets.push_back({static_cast<uint32_t>(members.size()),
                            static_cast<uint32_t>(experts_of.size()), times.server_entry(server),
                            weight * stride});
            members.insert(members.end(), experts_of.begin(), experts_of.end());
        });
    }
};

}  // namespace moorage::joint
