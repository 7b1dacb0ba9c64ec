// moepic_allocation.h - ExpertSplit and VramAllocation: slots and split ratio of every layer.
//
// MoEpic, section 3.4.2, Eq. (5) to (11) and Algorithm 1, in the readings' form (MOE-5 to MOE-11):
// a layer with memory for V whole experts keeps the top share theta = V / C of C experts, C a whole
// number in V .. N, such that the most of its activated experts are there after the prefetch
// window. Plain double arithmetic in a fixed order (no library functions), so equal on every
// machine.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

namespace moepic {

struct times {                              // ns
    double attention, experts, head, load;  // T_att, T_moe = K T_exp, T_head, T_load
};

struct choice {
    uint32_t slots = 0;  // C
    double split = 1;    // theta
    double loaded = 0;   // m: activated experts that are there when the layer is routed
};

// Memory that a layer may get and how it may be cut.
struct cutting {
    double slots = 0;                         // V_e, whole experts of all layers
    double granularity = 0.01;                // zeta
    double split_step = 0;                    // a split below 1 is a multiple of it; 0: any
    std::span<const float> fixed_split = {};  // [layers] where splits may not change, else empty
};

class allocation {
public:
    // Takes the counts (moepic_statistics.h) as they are now. Requires: tokens(layer) > 0 for all
    // layers.
    template <class Counts>
    allocation(const Counts &from, uint32_t top_k, const times &of, const cutting &how)
        : layers_(from.layers()),
          experts_(from.experts()),
          top_k_(top_k),
          times_(of),
          how_(how),
          tables_(layers_),
          moves_(layers_, 0) {
        for (uint32_t layer = 0; layer < layers_; ++layer) read(from, layer);
    }

    struct layer_plan {
        double exposed_ns;  // T
        choice best;
    };
    using plan = std::vector<layer_plan>;

    // VramAllocation; memory() is then what each layer got.
    plan solve() {
        std::fill(moves_.begin(), moves_.end(), 0);
        plan now = split_all(0);
        for (uint32_t round = 0; layers_ > 1 && round < rounds_max; ++round) {
            const plan more = split_all(1), less = split_all(-1);
            // Gains that differ in their last digits are equal, and the first layer has it.
            const double same = 1e-12 * total(now);
            const auto gain = [&](uint32_t i) { return now[i].exposed_ns - more[i].exposed_ns; };
            const auto loss = [&](uint32_t i) { return less[i].exposed_ns - now[i].exposed_ns; };
            uint32_t taker = 0, giver = layers_;
            for (uint32_t layer = 1; layer < layers_; ++layer)
                if (gain(layer) > gain(taker) + same) taker = layer;
            for (uint32_t layer = 0; layer < layers_; ++layer) {
                if (layer == taker || memory(layer, -1) <= nothing) continue;
                if (giver == layers_ || loss(layer) < loss(giver) - same) giver = layer;
            }
            if (giver == layers_) break;
            ++moves_[taker];
            --moves_[giver];
            plan then = split_all(0);
            if (!(total(then) < total(now) * (1 - 1e-12))) {
                --moves_[taker];
                ++moves_[giver];
                break;
            }
            now = std::move(then);
        }
        return now;
    }

    // ExpertSplit of the memory in force, each layer's shifted by `shift` grains.
    plan split_all(int32_t shift) const {
        plan all(layers_);
        double window = times_.head + times_.attention;
        for (uint32_t layer = 0; layer < layers_; ++layer) {
            const double room = memory(layer, shift);
            all[layer].best = room > nothing ? split(layer, room, window) : choice{};
            all[layer].exposed_ns = room > nothing ? exposed_ns(all[layer].best.loaded) : endless;
            window = next_window(all[layer].best.loaded);
        }
        return all;
    }

    // What a given configuration is expected to cost.
    plan cost_of(std::span<const uint32_t> slots, std::span<const float> split) const {
        plan all(layers_);
        double window = times_.head + times_.attention;
        for (uint32_t layer = 0; layer < layers_; ++layer) {
            const uint32_t count = std::min(slots[layer], experts_);
            const double share = count == 0 ? 0 : double{split[layer]};
            all[layer].best = {count, split[layer], loaded(layer, count, share, window)};
            all[layer].exposed_ns = exposed_ns(all[layer].best.loaded);
            window = next_window(all[layer].best.loaded);
        }
        return all;
    }

    static double total(const plan &all) {
        double sum = 0;
        for (const layer_plan &of : all) sum += of.exposed_ns;
        return sum;
    }

    // V_i: V_e / L and a whole number of grains.
    double memory(uint32_t layer, int32_t shift = 0) const {
        return how_.slots / layers_ + (moves_[layer] + shift) * (how_.granularity * how_.slots);
    }

    // Eq. (11): the number of experts to keep that leaves the most activated ones loaded.
    choice split(uint32_t layer, double room, double window) const {
        choice best;
        best.loaded = -1;
        const uint32_t last = range(layer, room).last;
        for (uint32_t slots = range(layer, room).first; slots <= last; ++slots) {
            const double share = share_of(layer, room, slots);
            if (share <= 0) continue;
            const double m = loaded(layer, slots, share, window);
            // Of equal ones the smallest; what differs in the last digits is equal.
            if (m > best.loaded * (1 + 1e-12)) best = {slots, share, m};
        }
        if (best.slots == 0) best = {0, 1, loaded(layer, 0, 0, window)};
        return best;
    }

private:
    static constexpr double endless = std::numeric_limits<double>::infinity();
    static constexpr double nothing = 1e-9;  // of an expert: rounding
    static constexpr uint32_t rounds_max = 4096;
    struct limits {
        uint32_t first, last;
    };
    struct table {
        std::vector<double> hits;       // [C] K * H(C), C from 0
        std::vector<double> activated;  // [y] P(1) + ... + P(y)
        std::vector<double> present;    // [C, y] PH(1, C) + ... + PH(y, C)
        std::vector<double> both;       // [C, y] the sum of PH(y, C) * P(y)
    };

    // Sums of counts are exact; what is divided is divided once.
    template <class Counts>
    void read(const Counts &from, uint32_t layer) {
        table &into = tables_[layer];
        const uint32_t sizes = experts_ + 1;
        const auto tokens = static_cast<double>(from.tokens(layer));
        into.hits.assign(sizes, 0);
        into.activated.assign(sizes, 0);
        into.present.assign(size_t{sizes} * sizes, 0);
        into.both.assign(size_t{sizes} * sizes, 0);
        double hits = 0, activated = 0;
        for (uint32_t i = 0; i < experts_; ++i) {
            hits += from.hits(layer, i);
            activated += from.activated(layer, i);
            into.hits[i + 1] = hits / tokens;
            into.activated[i + 1] = activated / tokens;
        }
        std::vector<double> present(experts_, 0);  // of each rank, in the cache of this size
        for (uint32_t size = 1; size < sizes; ++size) {
            double sum = 0, both = 0;
            for (uint32_t rank = 0; rank < experts_; ++rank) {
                present[rank] += from.present(layer, rank, size - 1);
                sum += present[rank];
                both += present[rank] / tokens * (from.activated(layer, rank) / tokens);
                into.present[size_t{size} * sizes + rank + 1] = sum / tokens;
                into.both[size_t{size} * sizes + rank + 1] = both;
            }
        }
    }

    // Experts that may be kept in `room`: with all of them whole, up to all of the layer. Where
    // splits are rounded, whole experts that do not use up the room are a choice too.
    limits range(uint32_t layer, double room) const {
        if (!how_.fixed_split.empty()) {
            const double slots = room / how_.fixed_split[layer] + 1e-9;
            const uint32_t only =
                slots >= experts_ ? experts_ : static_cast<uint32_t>(std::max(slots, 0.0));
            return {std::max(only, 1u), only};
        }
        if (room >= experts_) return {experts_, experts_};
        const auto whole = static_cast<uint32_t>(room + 1e-9);
        const bool exact = room - whole <= 1e-9;
        return {std::max(exact || how_.split_step > 0 ? whole : whole + 1, 1u), experts_};
    }
    double share_of(uint32_t layer, double room, uint32_t slots) const {
        if (!how_.fixed_split.empty()) return how_.fixed_split[layer];
        const double share = room / slots;
        if (share >= 1 - 1e-12) return slots <= room + 1e-9 ? 1 : 0;
        if (how_.split_step <= 0) return share;
        const auto steps = static_cast<uint32_t>(share / how_.split_step + 5e-7);
        return std::min(steps * how_.split_step, 1.0);
    }

    // m: what is cached, and the whole prefetches that fit into the window, best predicted first.
    double loaded(uint32_t layer, uint32_t slots, double share, double window) const {
        const table &of = tables_[layer];
        const double *present = of.present.data() + size_t{slots} * (experts_ + 1);
        const double *both = of.both.data() + size_t{slots} * (experts_ + 1);
        const double room = window + 1e-9 * times_.load;
        // The time of `count` prefetches grows with their number.
        uint32_t count = 0, beyond = experts_ + 1;
        while (beyond - count > 1) {
            const uint32_t middle = count + (beyond - count) / 2;
            if ((middle - share * present[middle]) * times_.load <= room)
                count = middle;
            else
                beyond = middle;
        }
        const double m = of.hits[slots] * share + (of.activated[count] - share * both[count]);
        return std::clamp(m, 0.0, static_cast<double>(top_k_));
    }

    double hidden_ns(double m) const { return m * times_.experts / top_k_; }
    double missing_ns(double m) const { return (top_k_ - m) * times_.load; }
    double exposed_ns(double m) const { return std::max(0.0, missing_ns(m) - hidden_ns(m)); }
    double next_window(double m) const {
        return times_.experts - std::min(hidden_ns(m), missing_ns(m)) + times_.attention;
    }

    const uint32_t layers_, experts_, top_k_;
    const times times_;
    const cutting how_;
    std::vector<table> tables_;
    std::vector<int32_t> moves_;  // [layers] grains given to the layer, less those taken
};

}  // namespace moepic
