// eplb_definition.h - the published EPLB written naively, with its authors' tables.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace moorage::test {

using float_row = std::vector<float>;
using index_row = std::vector<int>;

struct naive_packing {
    index_row pack, rank;
};

inline naive_packing naive_pack(const float_row &weight, int packs) {
    const int items = static_cast<int>(weight.size()), room = items / packs;
    naive_packing result{index_row(weight.size(), -1), index_row(weight.size(), 0)};
    if (room == 1) {
        for (int i = 0; i < items; ++i) result.pack[static_cast<size_t>(i)] = i;
        return result;
    }
    float_row load(static_cast<size_t>(packs), 0);
    index_row held(static_cast<size_t>(packs), 0);
    for (int step = 0; step < items; ++step) {
        size_t item = weight.size();  // the heaviest that is not packed
        for (size_t i = 0; i < weight.size(); ++i)
            if (result.pack[i] < 0 && (item == weight.size() || weight[i] > weight[item])) item = i;
        size_t best = load.size();
        for (size_t p = 0; p < load.size(); ++p)
            if (held[p] < room && (best == load.size() || load[p] < load[best])) best = p;
        result.pack[item] = static_cast<int>(best);
        result.rank[item] = held[best]++;
        load[best] += weight[item];
    }
    return result;
}

// The expert of each physical place of one layer.
inline index_row naive_eplb(const float_row &weight, int replicas, int groups, int nodes,
                            int gpus) {
    if (groups % nodes != 0) groups = nodes = 1;
    const int experts = static_cast<int>(weight.size());
    const int size = experts / groups, per_node = experts / nodes;
    float_row group_load(static_cast<size_t>(groups), 0);
    for (int e = 0; e < experts; ++e)
        group_load[static_cast<size_t>(e / size)] += weight[static_cast<size_t>(e)];
    const naive_packing of_groups = naive_pack(group_load, nodes);
    index_row sorted(weight.size());  // experts, node by node
    for (int e = 0; e < experts; ++e) {
        const auto group = static_cast<size_t>(e / size);
        const int slot = of_groups.pack[group] * (groups / nodes) + of_groups.rank[group];
        sorted[static_cast<size_t>(slot * size + e % size)] = e;
    }
    index_row result;
    for (int node = 0; node < nodes; ++node) {
        const index_row node_experts(sorted.begin() + node * per_node,
                                     sorted.begin() + (node + 1) * per_node);
        index_row count(node_experts.size(), 1), places;
        for (int i = 0; i < per_node; ++i) places.push_back(i);
        const auto load = [&](size_t i) {
            return weight[static_cast<size_t>(node_experts[i])] / static_cast<float>(count[i]);
        };
        while (static_cast<int>(places.size()) < replicas / nodes) {
            size_t most = 0;
            for (size_t i = 1; i < node_experts.size(); ++i)
                if (load(i) > load(most)) most = i;
            places.push_back(static_cast<int>(most));
            ++count[most];
        }
        float_row loads;
        for (const int place : places) loads.push_back(load(static_cast<size_t>(place)));
        const naive_packing packed = naive_pack(loads, gpus / nodes);
        const int room = replicas / gpus;
        index_row node_places(places.size());
        for (size_t i = 0; i < places.size(); ++i)
            node_places[static_cast<size_t>(packed.pack[i] * room + packed.rank[i])] =
                node_experts[static_cast<size_t>(places[i])];
        result.insert(result.end(), node_places.begin(), node_places.end());
    }
    return result;
}

}  // namespace moorage::test
