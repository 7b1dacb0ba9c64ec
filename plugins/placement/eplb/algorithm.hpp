// algorithm.hpp - DeepSeek's expert parallelism load balancer as published, one layer at a time.
//
// Packing of equal counts, replication of the most loaded, both policies. Source: the published
// EPLB and DeepSeek-V3, Section 3.4.1. Sums and quotients are in single precision and in the
// published order, so the results are equal. The smallest index of equal items comes first. The
// first of equal packs is taken. Two copies of one expert may land on one GPU, as published.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <functional>
#include <limits>
#include <numeric>
#include <span>
#include <vector>

namespace moorage::eplb {

struct shape {
    uint32_t experts, replicas;
    uint32_t groups;  // groups of experts that the router limits tokens to
    uint32_t nodes, gpus;

    // If groups do not divide by the nodes, they are ignored in packing.
    bool hierarchical() const { return groups % nodes == 0; }
    // Requires: the assertions of the published algorithm.
    bool valid() const {
        if (experts == 0 || nodes == 0 || gpus == 0 || groups == 0) return false;
        if (replicas < experts || replicas % gpus != 0) return false;
        return !hierarchical() || (experts % groups == 0 && gpus % nodes == 0);
    }
};

// Arrays shared by calls, so that a layer allocates nothing after the first.
struct workspace {
    std::vector<uint64_t> keys, heap;
    std::vector<uint32_t> pack, rank, used, expert_of, place, count;
    std::vector<float> copy_load, group_load, expert_load, place_load;
};

// A number of 0 or more as bits with the same order. The lower bits order equal numbers by the
// smaller index.
inline uint64_t key_of(float value, uint32_t low) {
    return uint64_t{std::bit_cast<uint32_t>(value + 0.0f)} << 32 | low;
}
inline float value_of(uint64_t key) {
    return std::bit_cast<float>(static_cast<uint32_t>(key >> 32));
}

// Restores a heap whose top has changed. `precedes` puts the top before all other keys.
template <class Before>
void sift_top(std::span<uint64_t> heap, Before precedes) {
    const uint64_t moved = heap[0];
    size_t hole = 0;
    for (size_t child = 1; child < heap.size(); child = 2 * hole + 1) {
        if (child + 1 < heap.size() && precedes(heap[child + 1], heap[child])) ++child;
        if (!precedes(heap[child], moved)) break;
        heap[hole] = heap[child];
        hole = child;
    }
    heap[hole] = moved;
}

// Puts items into packs of equal counts, heaviest first, each into the lightest pack with room.
// Writes pack and place in it of every item to work.pack and work.rank.
inline void balanced_packing(std::span<const float> weight, uint32_t packs, workspace &work) {
    const auto items = static_cast<uint32_t>(weight.size());
    const uint32_t room = items / packs;
    work.pack.resize(items);
    work.rank.assign(items, 0);
    if (room == 1) {
        std::iota(work.pack.begin(), work.pack.end(), 0u);
        return;
    }
    work.keys.resize(items);  // heaviest first, of equal ones the smallest
    for (uint32_t item = 0; item < items; ++item) work.keys[item] = ~key_of(weight[item], ~item);
    std::sort(work.keys.begin(), work.keys.end());
    work.used.assign(packs, 0);
    work.heap.resize(packs);  // lightest with room first; ascending at first
    std::iota(work.heap.begin(), work.heap.end(), uint64_t{0});
    std::span<uint64_t> open(work.heap);
    for (const uint64_t key : work.keys) {
        const auto item = static_cast<uint32_t>(key);
        const auto best = static_cast<uint32_t>(open[0]);
        work.pack[item] = best;
        work.rank[item] = work.used[best]++;
        if (work.used[best] < room) {
            open[0] = key_of(value_of(open[0]) + weight[item], best);
        } else {
            open[0] = open.back();
            open = open.first(open.size() - 1);
        }
        if (!open.empty()) sift_top(open, std::less<>());
    }
}

// Makes copies for the given places, so that the largest load of a copy is least: one of each, then
// always one more of the largest. Writes the expert of each place: first all experts, then the
// copies. No expert gets more than `most_copies`. Requires: that many of each fill the places.
inline void replicate(std::span<const float> weight, std::span<uint32_t> place_expert,
                      std::span<uint32_t> copies, workspace &work,
                      uint32_t most_copies = UINT32_MAX) {
    const auto experts = static_cast<uint32_t>(weight.size());
    work.copy_load.assign(weight.begin(), weight.end());
    std::fill(copies.begin(), copies.end(), 1u);
    std::iota(place_expert.begin(), place_expert.begin() + experts, 0u);
    if (place_expert.size() == experts) return;
    work.heap.resize(experts);
    for (uint32_t expert = 0; expert < experts; ++expert)
        work.heap[expert] = key_of(weight[expert], ~expert);
    std::make_heap(work.heap.begin(), work.heap.end());
    std::span<uint64_t> open(work.heap);
    for (size_t place = experts; place < place_expert.size(); ++place) {
        while (copies[~static_cast<uint32_t>(open[0])] >= most_copies) {
            open[0] = open.back();
            open = open.first(open.size() - 1);
            sift_top(open, std::greater<>());
        }
        const uint32_t most = ~static_cast<uint32_t>(open[0]);
        place_expert[place] = most;
        work.copy_load[most] = weight[most] / static_cast<float>(++copies[most]);
        open[0] = key_of(work.copy_load[most], ~most);
        sift_top(open, std::greater<>());
    }
}

// Options beyond the published algorithm; none by default.
struct packing_options {
    // At most as many copies of an expert as GPUs, and never two on one GPU. Then exchanges until
    // no GPU has more work than before. Requires: no more places on a GPU than experts of its node.
    bool separate = false;
    uint32_t refine = 0;  // exchanges at most that even out the loads
};

// Exchanges of two items of different packs. `expert` says which of `experts` an item copies. No
// exchange puts two copies of one expert together.
class exchanges {
public:
    exchanges(std::span<const float> weight, std::span<const uint32_t> expert, uint32_t experts,
              uint32_t packs, std::span<uint32_t> pack)
        : weight_(weight),
          expert_(expert),
          experts_(experts),
          pack_(pack),
          load_(packs, 0),
          held_(size_t{packs} * experts, 0) {
        for (size_t i = 0; i < weight.size(); ++i) {
            load_[pack[i]] += weight[i];
            ++held(pack[i], expert[i]);
        }
    }
    // Copies that share a pack change places with the item that leaves the lighter packs.
    bool separate() {
        bool changed = false;
        for (size_t i = 0; i < weight_.size(); ++i)
            if (held(pack_[i], expert_[i]) > 1)
                changed |= exchange(pack_[i], i, i + 1, std::numeric_limits<double>::infinity());
        return changed;
    }
    // Exchanges two items between the heaviest pack and another, as long as that makes the heavier
    // of both lighter. Takes the exchange that leaves the least, until no pack has more than
    // `enough`.
    bool refine(size_t rounds, double enough = 0) {
        size_t done = 0;
        for (; done < rounds && largest() > enough; ++done) {
            const auto heavy =
                static_cast<uint32_t>(std::max_element(load_.begin(), load_.end()) - load_.begin());
            if (!exchange(heavy, 0, weight_.size(), load_[heavy] * (1 - 1e-9))) break;
        }
        return done > 0;
    }

    double largest() const { return *std::max_element(load_.begin(), load_.end()); }

private:
    // The best partner for an item of [first, last) of the pack, if both packs then have less than
    // `limit`.
    bool exchange(uint32_t pack, size_t first, size_t last, double limit) {
        size_t leaving = 0, entering = 0;
        for (size_t a = first; a < last; ++a) {
            if (pack_[a] != pack) continue;
            for (size_t b = 0; b < weight_.size(); ++b) {
                const double gain = double{weight_[a]} - weight_[b];
                const double larger_load = std::max(load_[pack] - gain, load_[pack_[b]] + gain);
                if (larger_load >= limit || pack_[b] == pack || held(pack_[b], expert_[a]) > 0 ||
                    held(pack, expert_[b]) > 0)
                    continue;
                limit = larger_load;
                leaving = a, entering = b;
            }
        }
        if (leaving == entering) return false;
        const double gain = double{weight_[leaving]} - weight_[entering];
        load_[pack] -= gain, load_[pack_[entering]] += gain;
        --held(pack, expert_[leaving]), ++held(pack_[entering], expert_[leaving]);
        --held(pack_[entering], expert_[entering]), ++held(pack, expert_[entering]);
        std::swap(pack_[leaving], pack_[entering]);
        return true;
    }
    uint32_t &held(uint32_t pack, uint32_t expert) {
        return held_[size_t{pack} * experts_ + expert];
    }

    const std::span<const float> weight_;
    const std::span<const uint32_t> expert_;
    const uint32_t experts_;
    const std::span<uint32_t> pack_;
    std::vector<double> load_;
    std::vector<uint32_t> held_;
};

// Whether two copies of one expert are in one pack.
inline bool shared(std::span<const uint32_t> expert, uint32_t experts, uint32_t packs,
                   workspace &work) {
    work.used.assign(size_t{packs} * experts, 0);
    for (size_t i = 0; i < expert.size(); ++i)
        if (work.used[size_t{work.pack[i]} * experts + expert[i]]++ > 0) return true;
    return false;
}

// Step 3 for one node: assigns work.place to GPUs. Writes their experts GPU by GPU.
inline void pack_node(const uint32_t *experts, uint32_t count, uint32_t gpus,
                      packing_options options, std::span<uint32_t> gpu_experts, workspace &work) {
    balanced_packing(work.place_load, gpus, work);
    const size_t room = work.place.size() / gpus;
    if (options.refine > 0 || (options.separate && shared(work.place, count, gpus, work))) {
        exchanges change(work.place_load, work.place, count, gpus, work.pack);
        const double published = change.largest();
        bool changed = options.separate && change.separate();
        if (changed) change.refine(2 * size_t{gpus}, published);
        changed |= change.refine(options.refine);
        if (changed) work.used.assign(gpus, 0);
        for (size_t i = 0; changed && i < work.place.size(); ++i)
            work.rank[i] = work.used[work.pack[i]]++;
    }
    for (size_t i = 0; i < work.place.size(); ++i)
        gpu_experts[work.pack[i] * room + work.rank[i]] = experts[work.place[i]];
}

// One layer: the expert of every place, GPU by GPU, and the copies of every expert. Requires:
// shape.valid(), weight [shape.experts], place_expert [shape.replicas], copies [shape.experts].
inline void rebalance(std::span<const float> weight, shape shape, std::span<uint32_t> place_expert,
                      std::span<uint32_t> copies, workspace &work, packing_options options = {}) {
    if (!shape.hierarchical()) shape.groups = shape.nodes = 1;
    const uint32_t group_size = shape.experts / shape.groups,
                   node_groups = shape.groups / shape.nodes;
    const uint32_t node_experts = shape.experts / shape.nodes,
                   node_places = shape.replicas / shape.nodes;
    work.group_load.assign(shape.groups, 0);
    for (uint32_t expert = 0; expert < shape.experts; ++expert)
        work.group_load[expert / group_size] += weight[expert];
    balanced_packing(work.group_load, shape.nodes, work);
    work.expert_of.resize(shape.experts);  // node by node
    for (uint32_t group = 0; group < shape.groups; ++group) {
        const uint32_t first = (work.pack[group] * node_groups + work.rank[group]) * group_size;
        for (uint32_t i = 0; i < group_size; ++i)
            work.expert_of[first + i] = group * group_size + i;
    }
    work.place.resize(node_places), work.place_load.resize(node_places);
    work.count.resize(node_experts), work.expert_load.resize(node_experts);
    for (uint32_t node = 0; node < shape.nodes; ++node) {
        const uint32_t *experts = work.expert_of.data() + size_t{node} * node_experts;
        for (uint32_t i = 0; i < node_experts; ++i) work.expert_load[i] = weight[experts[i]];
        replicate(work.expert_load, work.place, work.count, work,
                  options.separate ? shape.gpus / shape.nodes : UINT32_MAX);
        for (uint32_t i = 0; i < node_experts; ++i) copies[experts[i]] = work.count[i];
        for (uint32_t i = 0; i < node_places; ++i)
            work.place_load[i] = work.copy_load[work.place[i]];
        pack_node(experts, node_experts, shape.gpus / shape.nodes, options,
                  place_expert.subspan(size_t{node} * node_places, node_places), work);
    }
}

}  // namespace moorage::eplb
