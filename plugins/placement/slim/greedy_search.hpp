// greedy_search.hpp - repeatedly takes the copy that saves most (SlimCaching, Algorithm 1).
//
// It serves the policy slim_greedy, and gives one of the plans that joint starts from. Over all
// experts and servers with room, the largest gain / size is placed and gains are updated, as long
// as anything that saves fits. Ties: smallest expert, then smallest server. The printed loop
// neither checks that the item fits nor continues when one server is full; this one does both.
// per_byte = false is the benchmark in the words of Section VI-A: the largest gain, where Algorithm
// 1 divides it by the size. A copy that would raise the latency is never made.
//
// Lazy: every pair has an upper bound of its gain. The gain itself is computed only when the bound
// comes to the top. For K = 1 an old gain is such a bound, because gains only fall. For K > 1 a
// pick can raise the gain of experts chosen together with it. If messages dominate, bounds rise by
// the most that their common sets can bring (for_raised). A bound that then comes to the top is
// replaced by new bounds on all servers in one walk (gains_most). Most pairs never need more.
// Otherwise bounds rise by what these sets do bring, and a little for the rounding of such sums.
// The result equals that of computing every gain before every pick, to the bit.
//
// Cost: a walk up a tree for each changed bound, and a walk over an expert's sets for a gain or for
// the bounds of all servers. With 20 servers and 200 users these are 7 such walks a pick; with
// gains alone they were 36. If messages do not dominate, a pick looks up twice the time of each of
// its sets, for each expert of the set on each server. Guarantee: half of the optimum for K = 1,
// one device a server and equal sizes. The servers are then a partition matroid; the paper's 1 -
// 1/e holds for one server. With different sizes or K > 1 there is no guarantee: with different
// sizes the rule can take 2 where 18 was possible.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "../slim_parts.hpp"

namespace moorage::slim {

// The largest of many changing values; among equal ones the first.
class tournament {
public:
    static constexpr double excluded = -std::numeric_limits<double>::infinity();

    explicit tournament(size_t count) : leaves_(std::bit_ceil(std::max<size_t>(count, 1))) {
        value_.assign(leaves_, excluded);
        winner_.resize(2 * leaves_);
        for (size_t i = 0; i < leaves_; ++i) winner_[leaves_ + i] = static_cast<uint32_t>(i);
    }
    double &operator[](size_t index) { return value_[index]; }
    void play_all() {
        for (size_t node = leaves_ - 1; node > 0; --node) play(node);
    }
    void change(size_t index, double value) {
        value_[index] = value;
        for (size_t node = (leaves_ + index) / 2; node > 0; node /= 2) {
            const uint32_t old_winner = winner_[node];
            play(node);
            if (winner_[node] == old_winner && old_winner != index)
                return;  // nothing new above this node
        }
    }
    // Call after the values of [begin, end) were set.
    void play_range(size_t begin, size_t end) {
        if (begin == end || leaves_ == 1) return;
        for (size_t first = (leaves_ + begin) / 2, last = (leaves_ + end - 1) / 2; first > 0;
             first /= 2, last /= 2)
            for (size_t node = first; node <= last; ++node) play(node);
    }
    uint32_t best() const { return leaves_ == 1 ? 0 : winner_[1]; }
    double best_value() const { return value_[best()]; }

private:
    void play(size_t node) {
        const uint32_t left = winner_[2 * node], right = winner_[2 * node + 1];
        winner_[node] = value_[right] > value_[left] ? right : left;
    }
    size_t leaves_;
    std::vector<double> value_;
    std::vector<uint32_t> winner_;
};

// One run over a model: bounds of the gains, some exact, and the pick with the best ratio.
class greedy_search {
public:
    greedy_search(latency_model &model, device_room &room, bool per_byte)
        : model_(model),
          room_(room),
          per_byte_(per_byte),
          servers_(model.cluster().servers),
          ratios_(size_t{model.experts()} * servers_),
          bound_(size_t{model.experts()} * servers_),
          gain_(bound_.size(), unasked),
          open_(bound_.size(), 1) {
        for (uint32_t m = 0; m < model.cluster().models; ++m)
            for (uint32_t n = 0; n < servers_; ++n) target_.push_back(find(m, n));
        change_.resize(bound_.size(), 0);
        for (uint32_t x = 0; x < model.experts(); ++x) {
            most_.push_back(model.gain_most(x) * (1 + slack));
            for (uint32_t n = 0; n < servers_; ++n) {
                bound_[index(x, n)] = first_bound(x, n);
                ratios_[index(x, n)] = most_[x] > 0 ? ratio(x, n) : tournament::excluded;
            }
        }
        ratios_.play_all();
        if (!model.grouped() && !model.messages_dominate()) block_.emplace_back(model);
    }

    void run() {
        while (ratios_.best_value() > 0) {
            const uint32_t best = ratios_.best(), x = best / servers_, n = best % servers_;
            const uint32_t device = room_.find(x, n);
            if (device != latency_model::none && gain_[best] == exact)
                pick(x, n, device);
            else if (!block_.empty())
                ask_all(x);
            else if (device == latency_model::none)
                close(x, n);
            else if (model_.messages_dominate() && gain_[best] == unasked)
                bound_all(x);
            else
                ask(x, n, device);
        }
    }
    // How many times an expert's sets were walked, for a gain or for bounds.
    uint64_t marginals() const { return marginals_; }

private:
    // Allows for the rounding of sums in other orders, so a bound stays a bound.
    static constexpr double slack = 1e-9;
    // State of a bound. unasked: above the gain by an unknown amount. exact: the gain itself.
    // summed: the gain, up to rounding.
    enum : uint8_t { unasked, exact, summed };

    size_t index(uint32_t x, uint32_t n) const { return size_t{x} * servers_ + n; }
    double ratio(uint32_t x, uint32_t n) const {
        const double bound =
            bound_[index(x, n)] + (gain_[index(x, n)] == summed ? slack * most_[x] : 0);
        return per_byte_ ? bound / static_cast<double>(model_.bytes(x)) : bound;
    }
    uint32_t find(uint32_t m, uint32_t n) const {
        return room_.find(model_.demand().host_model_first[m], n);
    }
    double first_bound(uint32_t x, uint32_t n) const {
        if (!model_.messages_dominate()) return most_[x];
        const uint32_t device = room_.find(x, n);
        return device == latency_model::none
                   ? 0
                   : std::max(0.0, model_.gain_first(x, device)) + slack * most_[x];
    }
    void close(uint32_t x, uint32_t n) {
        open_[index(x, n)] = 0;
        ratios_.change(index(x, n), tournament::excluded);
    }
    void ask(uint32_t x, uint32_t n, uint32_t device) {
        ++marginals_;
        bound_[index(x, n)] = model_.gain(x, device);
        gain_[index(x, n)] = exact;
        const bool saves = bound_[index(x, n)] >= moorage::slim::gain_min_s;
        ratios_.change(index(x, n), saves ? ratio(x, n) : tournament::excluded);
    }
    // Computes the bounds of all servers. That takes one walk over the sets, as one gain does, and
    // most bounds are low.
    void bound_all(uint32_t x) {
        ++marginals_;
        model_.gains_most(x, most_there_);
        for (uint32_t n = 0; n < servers_; ++n) {
            const size_t pair = index(x, n);
            if (open_[pair] == 0 || gain_[pair] != unasked) continue;
            bound_[pair] = std::min(bound_[pair], most_there_[n]);
            gain_[pair] = summed;
            ratios_[pair] = ratio(x, n);
        }
        ratios_.play_range(index(x, 0), index(x, 0) + servers_);
    }
    // If sets are unknown and messages do not dominate, all servers have one bound and come to the
    // top one after another. So their gains are computed together.
    void ask_all(uint32_t x) {
        constexpr uint32_t width = latency_model::gain_block::width;
        latency_model::gain_block::gains gains{};
        uint32_t block = latency_model::none;
        for (uint32_t n = 0; n < servers_; ++n) {
            const size_t pair = index(x, n);
            if (open_[pair] == 0) continue;
            const uint32_t device = room_.find(x, n);
            if (device == latency_model::none)
                open_[pair] = 0, ratios_[pair] = tournament::excluded;
            if (device == latency_model::none || gain_[pair] == exact) continue;
            ratios_[pair] = tournament::excluded;
            ++marginals_;
            if (device / width != block)
                block = device / width, gains = block_[0].compute_gains(x, block);
            bound_[pair] = gains[device % width];
            gain_[pair] = exact;
            if (bound_[pair] >= moorage::slim::gain_min_s) ratios_[pair] = ratio(x, n);
        }
        ratios_.play_range(index(x, 0), index(x, 0) + servers_);
    }
    // Gains may have grown, on each server by at most the value of `added_gain`.
    template <class By>
    void loosen(uint32_t x, By added_gain) {
        if (most_[x] <= 0) return;
        for (uint32_t n = 0; n < servers_; ++n) {
            double &bound = bound_[index(x, n)];
            if (open_[index(x, n)] == 0) continue;
            bound = std::min(most_[x], (std::max(bound, 0.0) + added_gain(n)) * (1 + slack));
            gain_[index(x, n)] = unasked;
            ratios_[index(x, n)] = ratio(x, n);
        }
        ratios_.play_range(index(x, 0), index(x, 0) + servers_);
    }
    void pick(uint32_t x, uint32_t n, uint32_t device) {
        close(x, n);
        if (!block_.empty())
            pick_alone(x, device);
        else if (model_.messages_dominate())
            pick_bounded(x, device);
        else
            pick_summed(x, device);
        room_.take(x, device);
        if (model_.device_begin(n) + 1 < model_.device_begin(n + 1)) retarget(n);
        if (!block_.empty()) ask_all(x);
    }
    // For a pick that changes no other expert's gains.
    void pick_alone(uint32_t x, uint32_t device) {
        model_.add(x, device);
        std::fill_n(gain_.begin() + static_cast<ptrdiff_t>(index(x, 0)), servers_, unasked);
    }
    void pick_bounded(uint32_t x, uint32_t device) {
        raised_.resize(bound_.size());
        raised_all_.resize(model_.experts());
        partner_.resize(model_.experts());
        partners_.clear();
        model_.for_raised(x, device, [&](uint32_t partner, uint64_t servers, double most_s) {
            if (partner_[partner] == 0) partners_.push_back(partner);
            partner_[partner] = 1;
            if (servers == latency_model::all_servers)
                raised_all_[partner] += most_s;
            else
                for (uint64_t left = servers; left != 0; left &= left - 1)
                    raised_[index(partner, static_cast<uint32_t>(std::countr_zero(left)))] +=
                        most_s;
        });
        model_.add(x, device);
        loosen(x, [](uint32_t) { return 0.0; });
        for (const uint32_t partner : partners_) {
            loosen(partner, [&](uint32_t n) {
                return raised_all_[partner] + std::exchange(raised_[index(partner, n)], 0);
            });
            raised_all_[partner] = 0;
            partner_[partner] = 0;
        }
    }
    // Gains that were computed once are kept up to date.
    void pick_summed(uint32_t x, uint32_t device) {
        partners_.clear();
        model_.add_telling(
            x, device,
            [&](uint32_t partner, uint32_t n) {
                const size_t pair = index(partner, n);
                if (open_[pair] == 0 || gain_[pair] == unasked) return latency_model::none;
                return target_[size_t{model_.model_of(partner)} * servers_ + n];
            },
            [&](uint32_t partner, uint32_t n, double change_s) {
                const size_t pair = index(partner, n);
                if (change_[pair] == 0) partners_.push_back(static_cast<uint32_t>(pair));
                change_[pair] += change_s;
            });
        for (const uint32_t pair : partners_) {
            if (change_[pair] == 0) continue;  // named twice, or no change in the end
            bound_[pair] += change_[pair];
            change_[pair] = 0;
            gain_[pair] = summed;
            ratios_.change(pair, ratio(pair / servers_, pair % servers_));
        }
        loosen(x, [&](uint32_t) { return most_[x]; });
    }
    // Experts may go to another device of the server from now on, perhaps of another speed.
    void retarget(uint32_t n) {
        const moorage_demand &demand = model_.demand();
        for (uint32_t m = 0; m < demand.models; ++m) {
            uint32_t &target = target_[size_t{m} * servers_ + n];
            if (find(m, n) == target) continue;  // or still nothing fits
            target = find(m, n);
            for (uint32_t x = demand.host_model_first[m]; x < demand.host_model_first[m + 1]; ++x) {
                if (open_[index(x, n)] == 0 || most_[x] <= 0) continue;
                bound_[index(x, n)] = most_[x];
                gain_[index(x, n)] = unasked;
                ratios_.change(index(x, n), ratio(x, n));
            }
        }
    }

    latency_model &model_;
    device_room &room_;
    const bool per_byte_;
    const uint32_t servers_;
    tournament ratios_;
    std::vector<double> bound_, most_;  // seconds a token: [X, N]; lasting bounds [X]
    std::vector<double> change_;        // [X, N] while picking
    std::vector<uint8_t> gain_, open_;  // [X, N] state of the bound; neither held nor full
    std::vector<uint32_t> target_;      // [M, N] first device with room for the model's experts
    std::vector<double> most_there_;    // [N] while bounding
    // While picking: bounds of the added gain, [X, N], and of the gain added on all servers, [X].
    std::vector<double> raised_, raised_all_;
    std::vector<uint8_t> partner_;  // [X] whether it is in partners_
    std::vector<uint32_t> partners_;
    std::vector<latency_model::gain_block> block_;  // one element if gains are independent
    uint64_t marginals_ = 0;
};

}  // namespace moorage::slim
