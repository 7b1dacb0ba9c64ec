// moepic_allocation.h - ExpertSplit and VramAllocation: slots and split ratio of every layer.
//
// MoEpic, section 3.4.2, Eq. (5) to (11) and Algorithm 1, in the readings' form (MOE-5 to MOE-11).
// A layer with memory for V whole experts keeps the top share theta = V / C of C experts. C is a
// whole number in V .. N. It is chosen so that the most of its activated experts are there after
// the prefetch window. Plain double arithmetic in a fixed order, without library functions, so
// equal on every machine.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <span>
#include <utility>
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

// Memory that a layer may get, and how it may be split.
struct allocation_options {
    double slots = 0;                         // V_e, whole experts of all layers
    double granularity = 0.01;                // zeta
    double split_step = 0;                    // a split below 1 is a multiple of it; 0: any
    std::span<const float> fixed_split = {};  // [layers] if splits may not change, else empty
};

struct layer_plan {
    double exposed_ns = 0;  // T
    choice best;
};
using layer_plans = std::vector<layer_plan>;

class allocation {
public:
    // Allocates; no other function does.
    void assign(uint32_t layers, uint32_t experts, uint32_t top_k) {
        layers_ = layers;
        experts_ = experts;
        top_k_ = top_k;
        sizes_ = experts + 1;
        hits_.resize(size_t{layers} * sizes_);
        activated_.resize(size_t{layers} * sizes_);
        present_.resize(size_t{layers} * sizes_ * sizes_);
        present_activated_.resize(size_t{layers} * sizes_ * sizes_);
        ranks_.resize(experts);
        moves_.assign(layers, 0);
        for (layer_plans *plans : {&current_, &candidate_, &with_more_, &with_less_})
            plans->resize(layers);
    }

    // Takes the current counts (moepic_statistics.h). Requires: tokens(layer) > 0 for all layers.
    template <class Counts>
    void read(const Counts &counts, const times &durations, const allocation_options &options) {
        times_ = durations;
        options_ = options;
        std::fill(moves_.begin(), moves_.end(), 0);
        for (uint32_t layer = 0; layer < layers_; ++layer) read_layer(counts, layer);
    }

    // VramAllocation. memory() then gives each layer's share. Plans are valid until the next call.
    const layer_plans &solve() {
        std::fill(moves_.begin(), moves_.end(), 0);
        split_all(0, current_);
        for (uint32_t round = 0; layers_ > 1 && round < rounds_max; ++round) {
            split_all(1, with_more_);
            split_all(-1, with_less_);
            const auto [taker, giver] = find_move();
            if (giver == layers_) break;
            ++moves_[taker];
            --moves_[giver];
            split_all(0, candidate_);
            if (!(total(candidate_) < total(current_) * (1 - 1e-12))) {
                --moves_[taker];
                ++moves_[giver];
                break;
            }
            std::swap(current_, candidate_);
        }
        return current_;
    }

    // ExpertSplit of the memory in force, with each layer's memory shifted by `shift` grains.
    void split_all(int32_t shift, layer_plans &plans) const {
        double window = times_.head + times_.attention;
        for (uint32_t layer = 0; layer < layers_; ++layer) {
            const double room = memory(layer, shift);
            plans[layer].best = room > nothing ? split(layer, room, window) : choice{};
            plans[layer].exposed_ns =
                room > nothing ? exposed_ns(plans[layer].best.loaded) : endless;
            window = next_window(plans[layer].best.loaded);
        }
    }

    // The expected cost of a given configuration.
    const layer_plans &cost_of(std::span<const uint32_t> slots, std::span<const float> split) {
        double window = times_.head + times_.attention;
        for (uint32_t layer = 0; layer < layers_; ++layer) {
            const uint32_t count = std::min(slots[layer], experts_);
            const double share = count == 0 ? 0 : double{split[layer]};
            candidate_[layer].best = {count, split[layer], loaded(layer, count, share, window)};
            candidate_[layer].exposed_ns = exposed_ns(candidate_[layer].best.loaded);
            window = next_window(candidate_[layer].best.loaded);
        }
        return candidate_;
    }

    static double total(const layer_plans &plans) {
        double sum = 0;
        for (const layer_plan &plan : plans) sum += plan.exposed_ns;
        return sum;
    }

    // V_i: V_e / L plus or minus a whole number of grains.
    double memory(uint32_t layer, int32_t shift = 0) const {
        return options_.slots / layers_ +
               (moves_[layer] + shift) * (options_.granularity * options_.slots);
    }

    // Eq. (11): the number of experts to keep for which the most activated ones are loaded.
    choice split(uint32_t layer, double room, double window) const {
        choice best;
        best.loaded = -1;
        const uint32_t last = range(layer, room).last;
        for (uint32_t slots = range(layer, room).first; slots <= last; ++slots) {
            const double share = share_of(layer, room, slots);
            if (share <= 0) continue;
            const double m = loaded(layer, slots, share, window);
            // Takes the smallest of equal ones. A difference in the last digits counts as equal.
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

    // The layer that gains most by one more grain, and among the others the layer that loses least
    // by one less. The second is `layers_` if none can give. A difference in the last digits counts
    // as equal, and the first layer wins.
    std::pair<uint32_t, uint32_t> find_move() const {
        const double tolerance = 1e-12 * total(current_);
        const auto gain = [this](uint32_t i) {
            return current_[i].exposed_ns - with_more_[i].exposed_ns;
        };
        const auto loss = [this](uint32_t i) {
            return with_less_[i].exposed_ns - current_[i].exposed_ns;
        };
        uint32_t taker = 0, giver = layers_;
        for (uint32_t layer = 1; layer < layers_; ++layer)
            if (gain(layer) > gain(taker) + tolerance) taker = layer;
        for (uint32_t layer = 0; layer < layers_; ++layer) {
            if (layer == taker || memory(layer, -1) <= nothing) continue;
            if (giver == layers_ || loss(layer) < loss(giver) - tolerance) giver = layer;
        }
        return {taker, giver};
    }

    // Sums of counts are exact. Each quotient is one division.
    template <class Counts>
    void read_layer(const Counts &counts, uint32_t layer) {
        const auto tokens = static_cast<double>(counts.tokens(layer));
        double hits = 0, activated = 0;
        for (uint32_t i = 0; i < experts_; ++i) {
            hits += counts.hits(layer, i);
            activated += counts.activated(layer, i);
            hits_[row(layer) + i + 1] = hits / tokens;
            activated_[row(layer) + i + 1] = activated / tokens;
        }
        std::fill(ranks_.begin(), ranks_.end(), 0);
        for (uint32_t size = 1; size < sizes_; ++size) {
            double *present = present_.data() + (row(layer) + size) * sizes_;
            double *present_activated = present_activated_.data() + (row(layer) + size) * sizes_;
            double sum = 0;
            for (uint32_t rank = 0; rank < experts_; ++rank) {
                ranks_[rank] += counts.present(layer, rank, size - 1);
                sum += ranks_[rank];
                present[rank + 1] = sum / tokens;
                present_activated[rank + 1] =
                    present_activated[rank] +
                    ranks_[rank] / tokens * (counts.activated(layer, rank) / tokens);
            }
        }
    }
    size_t row(uint32_t layer) const { return size_t{layer} * sizes_; }

    // The numbers of experts that `room` can hold: from all whole to all of the layer. If splits
    // are rounded, whole experts that do not use up the room are a choice too.
    limits range(uint32_t layer, double room) const {
        if (!options_.fixed_split.empty()) {
            const double slots = room / options_.fixed_split[layer] + 1e-9;
            const uint32_t only =
                slots >= experts_ ? experts_ : static_cast<uint32_t>(std::max(slots, 0.0));
            return {std::max(only, 1u), only};
        }
        if (room >= experts_) return {experts_, experts_};
        const auto whole = static_cast<uint32_t>(room + 1e-9);
        const bool exact = room - whole <= 1e-9;
        return {std::max(exact || options_.split_step > 0 ? whole : whole + 1, 1u), experts_};
    }
    double share_of(uint32_t layer, double room, uint32_t slots) const {
        if (!options_.fixed_split.empty()) return options_.fixed_split[layer];
        const double share = room / slots;
        if (share >= 1 - 1e-12) return slots <= room + 1e-9 ? 1 : 0;
        if (options_.split_step <= 0) return share;
        const auto steps = static_cast<uint32_t>(share / options_.split_step + 5e-7);
        return std::min(steps * options_.split_step, 1.0);
    }

    // m: cached experts, and the whole prefetches that fit into the window, best predicted first.
    double loaded(uint32_t layer, uint32_t slots, double share, double window) const {
        const double *present = present_.data() + (row(layer) + slots) * sizes_;
        const double *present_activated = present_activated_.data() + (row(layer) + slots) * sizes_;
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
        const double m = hits_[row(layer) + slots] * share +
                         (activated_[row(layer) + count] - share * present_activated[count]);
        return std::clamp(m, 0.0, static_cast<double>(top_k_));
    }

    double hidden_ns(double m) const { return m * times_.experts / top_k_; }
    double missing_ns(double m) const { return (top_k_ - m) * times_.load; }
    double exposed_ns(double m) const { return std::max(0.0, missing_ns(m) - hidden_ns(m)); }
    double next_window(double m) const {
        return times_.experts - std::min(hidden_ns(m), missing_ns(m)) + times_.attention;
    }

    uint32_t layers_ = 0, experts_ = 0, top_k_ = 1, sizes_ = 1;
    times times_{};
    allocation_options options_;
    std::vector<double> hits_;               // [layers, C] K * H(C), C from 0
    std::vector<double> activated_;          // [layers, y] P(1) + ... + P(y)
    std::vector<double> present_;            // [layers, C, y] PH(1, C) + ... + PH(y, C)
    std::vector<double> present_activated_;  // [layers, C, y] the sum of PH(y, C) * P(y)
    std::vector<double> ranks_;              // [y] for the cache size being read
    std::vector<int32_t> moves_;             // [layers] grains given less grains taken
    layer_plans current_, candidate_, with_more_, with_less_;
};

}  // namespace moepic
