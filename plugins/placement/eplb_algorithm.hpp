// eplb_algorithm.hpp - DeepSeek's expert parallelism load balancer as published, one layer at a
// time: packing of equal counts, replication of the most loaded, both policies.
//
// Source: the published EPLB and DeepSeek-V3, Section 3.4.1. Sums and quotients are in single
// precision and in the published order, so that the results are equal; of equal items the smallest
// index comes first, of equal packs the first is taken. Two copies of one expert may land on one
// GPU, as published.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

namespace moorage::eplb {

struct shape {
    uint32_t experts, replicas;
    uint32_t groups;  // of experts that tokens are limited to
    uint32_t nodes, gpus;

    // Groups that do not divide by the nodes are packed without regard to them.
    bool hierarchical() const { return groups % nodes == 0; }
    // Requires: what the published algorithm asserts.
    bool valid() const {
        if (experts == 0 || nodes == 0 || gpus == 0 || groups == 0) return false;
        if (replicas < experts || replicas % gpus != 0) return false;
        return !hierarchical() || (experts % groups == 0 && gpus % nodes == 0);
    }
};

// Arrays that calls share, so that a layer costs no allocation after the first.
struct workspace {
    std::vector<uint64_t> keys;
    std::vector<uint32_t> pack, rank, used, expert_of, place, count;
    std::vector<float> load, each, group_load, expert_load, place_load;
};

// Items by weight, heaviest first, of equal ones the smallest first. Weights are 0 or more, and
// bits of such floats are ordered as they are.
inline void sort_heaviest(std::span<const float> weight, workspace &work) {
    work.keys.resize(weight.size());
    for (uint32_t i = 0; i < weight.size(); ++i)
        work.keys[i] = uint64_t{~std::bit_cast<uint32_t>(weight[i] + 0.0f)} << 32 | i;
    std::sort(work.keys.begin(), work.keys.end());
}

// Puts items into packs of equally many, heaviest first, each into the lightest that has room:
// pack and place in it of every item, in work.pack and work.rank.
inline void balanced_packing(std::span<const float> weight, uint32_t packs, workspace &work) {
    const auto items = static_cast<uint32_t>(weight.size());
    const uint32_t room = items / packs;
    work.pack.resize(items);
    work.rank.assign(items, 0);
    if (room == 1) {
        std::iota(work.pack.begin(), work.pack.end(), 0u);
        return;
    }
    sort_heaviest(weight, work);
    work.load.assign(packs, 0);
    work.used.assign(packs, 0);  // items in each
    for (const uint64_t key : work.keys) {
        const auto item = static_cast<uint32_t>(key);
        uint32_t best = packs;
        for (uint32_t pack = 0; pack < packs; ++pack)
            if (work.used[pack] < room && (best == packs || work.load[pack] < work.load[best]))
                best = pack;
        work.pack[item] = best;
        work.rank[item] = work.used[best]++;
        work.load[best] += weight[item];
    }
}

// Copies for `replicas` places so that the largest load of a copy is least: one each, then always
// one more for the largest. Writes the expert of each place: first all experts, then the copies.
inline void replicate(std::span<const float> weight, std::span<uint32_t> place_expert,
                      std::span<uint32_t> copies, std::vector<float> &each) {
    const auto experts = static_cast<uint32_t>(weight.size());
    each.assign(weight.begin(), weight.end());
    std::fill(copies.begin(), copies.end(), 1u);
    std::iota(place_expert.begin(), place_expert.begin() + experts, 0u);
    for (size_t place = experts; place < place_expert.size(); ++place) {
        const auto most =
            static_cast<uint32_t>(std::max_element(each.begin(), each.end()) - each.begin());
        place_expert[place] = most;
        each[most] = weight[most] / static_cast<float>(++copies[most]);
    }
}

// Beyond the published algorithm: while an exchange of two items between the heaviest pack and
// another makes the heavier of both lighter, does the one that leaves the least. `expert` says
// which expert an item is a copy of; no exchange puts two copies of one expert together.
class refinement {
public:
    refinement(std::span<const float> weight, std::span<const uint32_t> expert, uint32_t packs,
               std::span<uint32_t> pack)
        : weight_(weight), expert_(expert), pack_(pack), load_(packs, 0) {
        for (size_t i = 0; i < weight.size(); ++i) load_[pack[i]] += weight[i];
    }
    // At most `rounds` exchanges.
    void run(uint32_t rounds) {
        for (; rounds > 0 && exchange(); --rounds) continue;
    }

private:
    bool exchange() {
        const auto heavy =
            static_cast<uint32_t>(std::max_element(load_.begin(), load_.end()) - load_.begin());
        double least = load_[heavy] * (1 - 1e-9);
        size_t from = 0, to = 0;
        for (size_t a = 0; a < weight_.size(); ++a) {
            if (pack_[a] != heavy) continue;
            for (size_t b = 0; b < weight_.size(); ++b) {
                const double gain = double{weight_[a]} - weight_[b];
                if (!(gain > 0) || pack_[b] == heavy) continue;
                const double after = std::max(load_[heavy] - gain, load_[pack_[b]] + gain);
                if (after >= least || holds(pack_[b], expert_[a]) || holds(heavy, expert_[b]))
                    continue;
                least = after;
                from = a, to = b;
            }
        }
        if (from == to) return false;
        const double gain = double{weight_[from]} - weight_[to];
        load_[heavy] -= gain;
        load_[pack_[to]] += gain;
        std::swap(pack_[from], pack_[to]);
        return true;
    }
    bool holds(uint32_t pack, uint32_t expert) const {
        for (size_t i = 0; i < weight_.size(); ++i)
            if (pack_[i] == pack && expert_[i] == expert) return true;
        return false;
    }

    const std::span<const float> weight_;
    const std::span<const uint32_t> expert_;
    const std::span<uint32_t> pack_;
    std::vector<double> load_;
};

// Step 3 for one node: its places to its GPUs, written in the order of GPUs.
inline void pack_node(std::span<const float> place_weight, std::span<const uint32_t> place_expert,
                      uint32_t gpus, uint32_t refine_rounds, std::span<uint32_t> out,
                      workspace &work) {
    balanced_packing(place_weight, gpus, work);
    const size_t room = place_weight.size() / gpus;
    if (refine_rounds > 0) {
        refinement(place_weight, place_expert, gpus, work.pack).run(refine_rounds);
        work.used.assign(gpus, 0);
        for (size_t i = 0; i < place_weight.size(); ++i) work.rank[i] = work.used[work.pack[i]]++;
    }
    for (size_t i = 0; i < place_weight.size(); ++i)
        out[work.pack[i] * room + work.rank[i]] = place_expert[i];
}

// One layer: the expert of every place, GPU by GPU, and the copies of every expert.
// Requires: of.valid(), weight of of.experts, place_expert of of.replicas, copies of of.experts.
inline void rebalance(std::span<const float> weight, shape of, std::span<uint32_t> place_expert,
                      std::span<uint32_t> copies, workspace &work, uint32_t refine_rounds = 0) {
    if (!of.hierarchical()) of.groups = of.nodes = 1;
    const uint32_t group_size = of.experts / of.groups, node_groups = of.groups / of.nodes;
    const uint32_t node_experts = of.experts / of.nodes, node_places = of.replicas / of.nodes;
    work.group_load.assign(of.groups, 0);
    for (uint32_t expert = 0; expert < of.experts; ++expert)
        work.group_load[expert / group_size] += weight[expert];
    balanced_packing(work.group_load, of.nodes, work);
    work.expert_of.resize(of.experts);  // node by node
    for (uint32_t group = 0; group < of.groups; ++group) {
        const uint32_t first = (work.pack[group] * node_groups + work.rank[group]) * group_size;
        for (uint32_t i = 0; i < group_size; ++i)
            work.expert_of[first + i] = group * group_size + i;
    }
    work.place.resize(node_places), work.place_load.resize(node_places);
    work.count.resize(node_experts), work.expert_load.resize(node_experts);
    for (uint32_t node = 0; node < of.nodes; ++node) {
        const uint32_t *experts = work.expert_of.data() + size_t{node} * node_experts;
        for (uint32_t i = 0; i < node_experts; ++i) work.expert_load[i] = weight[experts[i]];
        replicate(work.expert_load, work.place, work.count, work.each);
        for (uint32_t i = 0; i < node_experts; ++i) copies[experts[i]] = work.count[i];
        for (uint32_t i = 0; i < node_places; ++i) {
            work.place_load[i] = work.each[work.place[i]];
            work.place[i] = experts[work.place[i]];
        }
        pack_node(work.place_load, work.place, of.gpus / of.nodes, refine_rounds,
                  place_expert.subspan(size_t{node} * node_places, node_places), work);
    }
}

}  // namespace moorage::eplb
