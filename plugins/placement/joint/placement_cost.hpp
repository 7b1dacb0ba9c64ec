// placement_cost.hpp - the cost of a placement and of one change of it, for the joint policy.
//
// The policy minimises this cost, in seconds a token:
//
//   latency_weight * latency (moorage/latency.hpp, without the part that no placement changes)
//   + remote_s * expert calls of a token that neither its home nor that home's server serves,
//     and over_s for every such call above remote_max
//   + load_weight * waiting: sum over devices and links of load_table::waiting() over the tokens
//     per second
//   + the cost of copies that were not there before (copy_prices.hpp)
//
// The latency has three parts: experts that are missed alone (serving_table.hpp), sets of experts
// (set_times.hpp) and the time that batches add (batch_times.hpp).
#pragma once

#include <algorithm>
#include <vector>

#include "batch_times.hpp"
#include "copy_prices.hpp"
#include "load_table.hpp"
#include "set_times.hpp"

namespace moorage::joint {

class placement_cost {
public:
    // The placement is empty. The model and the times are borrowed. With `stride` above 1, one set
    // in `stride` stands for all.
    placement_cost(const latency_model &latency, const call_times &times,
                   const cost_weights &weights, uint32_t stride)
        : latency_(latency),
          times_(times),
          weights_(weights),
          servers_(latency.cluster().servers),
          experts_(latency.experts()),
          entries_(times.entries()),
          demand_(latency, times),
          copies_(latency),
          serving_(latency, times, copies_),
          sets_(latency, times, demand_, copies_, stride),
          batches_(latency, demand_, copies_, entries_),
          loads_(latency, times, demand_, serving_) {
        refresh();
    }
    placement_cost(const placement_cost &) = delete;  // its parts refer to each other

    const entry_demand &demand() const { return demand_; }
    const copy_table &copies() const { return copies_; }
    const set_times &sets() const { return sets_; }

    // These change the cost. Call total() afterwards.
    void limit_remote(double remote_max, double over_s) {
        weights_.remote_max = remote_max, weights_.over_s = over_s;
    }
    void set_current(std::span<const moorage_copy> current, std::span<const double> added_s) {
        prices_.set(current, added_s, experts_);
    }
    void count_all_holders() {
        sets_.count_all_holders();
        refresh();
    }

    // Makes a change without the values that follow from it. Call refresh() afterwards.
    void place(const copy_change &change) {
        copies_.account(change);
        copies_.set(change);
    }
    // Computes anew everything that follows from the copies, except total().
    void refresh() {
        serving_.refresh();
        sets_.refresh();
        batches_.refresh();
    }

    // The cost, computed anew.
    double total();
    // Figures for a token alone, not in a batch. The latency is the part that the placement
    // changes.
    double latency_s() const;
    double remote_calls() const;

    // The cost of a change.
    double change_s(const copy_change &change);
    // The same for every server whose device[server] is not none. Such a server lacks the expert.
    void changes_s(uint32_t expert, std::span<const uint32_t> device, std::span<double> change_s);
    // Makes the change and returns its cost. Requires: it changes something.
    double apply(const copy_change &change);

    uint64_t steps() const { return steps_ + sets_.steps() + batches_.steps(); }
    void add_steps(uint64_t steps) { steps_ += steps; }
    uint64_t refresh_steps() const {
        return sets_.uses() + (batches_.is_empty() ? 0 : uint64_t{experts_} * entries_);
    }
    uint64_t change_steps() const { return 4 + entries_ / 8; }

private:
    // Whether an entry's costs follow from the nearest holder alone.
    bool is_nearest_enough() const { return sets_.sets().empty() && batches_.is_empty(); }
    bool has_one_device_each() const {
        for (uint32_t server = 0; server <= servers_; ++server)
            if (latency_.device_begin(server) != server) return false;
        return true;
    }
    // Calls `call(entry)`, ascending, for the entries that serving_table::each_touched() names, or
    // for all entries if the nearest holder is not enough.
    template <class Each>
    void each_touched(const copy_change &change, bool equal, Each call) const {
        if (is_nearest_enough()) return serving_.each_touched(change, equal, call);
        for (uint32_t entry = 0; entry < entries_; ++entry) call(entry);
    }
    // Whether the sets and batches of the entry see the change.
    bool is_seen_from(const copy_change &change, uint32_t entry) const {
        const uint32_t own_server = times_.entry_server(entry);
        return own_server == change.server ||
               (copies_.device_at(change.expert, own_server) == none &&
                times_.is_reached(entry, change.server));
    }

    double alone_cost(size_t pair, uint32_t model, uint32_t entry, uint32_t device) const {
        return weights_.latency * demand_.single(pair) * times_.alone_s(model, entry, device);
    }
    double remote_calls_of(size_t pair, uint32_t entry, uint32_t device) const {
        const bool local = device != none && times_.server_of(device) == times_.entry_server(entry);
        return local ? 0 : demand_.calls(pair);
    }
    double remote_cost(double calls) const {
        return weights_.remote_s * calls +
               weights_.over_s * std::max(0.0, calls - weights_.remote_max);
    }
    double copy_cost(uint32_t expert, uint32_t device) const {
        return prices_.is_set() ? prices_.cost(expert, device, copies_.bytes(expert)) : 0;
    }
    double load_cost(const copy_change &change, bool keep) {
        return weights_.load / demand_.tokens_per_s() * loads_.change(change, keep);
    }

    const latency_model &latency_;
    const call_times &times_;
    cost_weights weights_;
    const uint32_t servers_, experts_, entries_;
    const entry_demand demand_;
    copy_prices prices_;
    // The placement, and values that follow from it.
    copy_table copies_;
    serving_table serving_;
    set_times sets_;
    batch_times batches_;
    load_table loads_;
    double remote_ = 0;  // remote calls
    uint64_t steps_ = 0;
};

// ---- the whole cost ----------------------------------------------------------------------------

inline double placement_cost::total() {
    double sum = 0;
    for (uint32_t expert = 0; expert < experts_; ++expert) {
        for (uint32_t entry = 0; entry < entries_; ++entry) {
            const size_t pair = demand_.pair_index(expert, entry);
            sum += alone_cost(pair, latency_.model_of(expert), entry, serving_.device(pair));
        }
        for (uint32_t server = 0; server < servers_ && prices_.is_set(); ++server)
            sum += copy_cost(expert, copies_.device_at(expert, server));
    }
    remote_ = remote_calls();
    sum += remote_cost(remote_);
    for (const expert_set &set : sets_.sets()) sum += weights_.latency * set.weight * set.value_s;
    for (const double extra_s : batches_.extra_s()) sum += weights_.latency * extra_s;
    if (weights_.load <= 0) return sum;
    loads_.refresh();
    for (const double utilisation : loads_.utilisation())
        sum += weights_.load / demand_.tokens_per_s() * load_table::waiting(utilisation);
    return sum;
}

inline double placement_cost::latency_s() const {
    double sum = 0;
    for (uint32_t expert = 0; expert < experts_; ++expert)
        for (uint32_t entry = 0; entry < entries_; ++entry) {
            const size_t pair = demand_.pair_index(expert, entry);
            sum += demand_.batch(entry) * demand_.single(pair) *
                   times_.alone_s(latency_.model_of(expert), entry, serving_.device(pair));
        }
    for (const expert_set &set : sets_.sets())
        sum += demand_.batch(sets_.entry_of(set)) * set.weight * set.value_s;
    return sum;
}

inline double placement_cost::remote_calls() const {
    double sum = 0;
    for (uint32_t expert = 0; expert < experts_; ++expert)
        for (uint32_t entry = 0; entry < entries_; ++entry)
            if (copies_.device_at(expert, times_.entry_server(entry)) == none)
                sum += demand_.calls(demand_.pair_index(expert, entry));
    return sum;
}

// ---- changes -----------------------------------------------------------------------------------

inline double placement_cost::change_s(const copy_change &change) {
    const uint32_t expert = change.expert, model = latency_.model_of(expert);
    double sum = copy_cost(expert, change.device) -
                 copy_cost(expert, copies_.device_at(expert, change.server));
    double remote = 0;
    steps_ += change_steps();
    each_touched(change, /*equal=*/false, [&](uint32_t entry) {
        const size_t pair = demand_.pair_index(expert, entry);
        if (demand_.is_asked(pair)) {
            const uint32_t old_serving = serving_.device(pair),
                           serving = serving_.device_after(change, entry);
            if (serving != old_serving) {
                sum += alone_cost(pair, model, entry, serving) -
                       alone_cost(pair, model, entry, old_serving);
                remote += remote_calls_of(pair, entry, serving) -
                          remote_calls_of(pair, entry, old_serving);
            }
        }
        if (!batches_.is_empty() && demand_.calls(pair) > 0 && is_seen_from(change, entry))
            sum += weights_.latency * batches_.change_s(change, entry);
        if (sets_.uses(pair) == 0 || !is_seen_from(change, entry)) return;
        const uint32_t pattern = sets_.pattern_after(change, entry);
        if (pattern == sets_.pattern(pair)) return;
        sum += weights_.latency * sets_.change_s(expert, pair, pattern);
    });
    sum += remote_cost(remote_ + remote) - remote_cost(remote_);
    return weights_.load > 0 ? sum + load_cost(change, /*keep=*/false) : sum;
}

// Entry by entry for all servers at once, which is fast on a processor. Each sum has the terms of
// change_s() in their order, so it is the same to the bit.
inline void placement_cost::changes_s(uint32_t expert, std::span<const uint32_t> device,
                                      std::span<double> change_s) {
    if (!is_nearest_enough() || !has_one_device_each() || weights_.load > 0) {
        for (uint32_t server = 0; server < servers_; ++server)
            if (device[server] != none)
                change_s[server] = this->change_s({expert, server, device[server]});
        return;
    }
    const uint32_t model = latency_.model_of(expert);
    std::vector<double> remote(servers_, 0);
    for (uint32_t server = 0; server < servers_; ++server) {
        change_s[server] = copy_cost(expert, device[server]);
        if (device[server] != none) steps_ += change_steps();
    }
    for (uint32_t entry = 0; entry < entries_; ++entry) {
        const size_t pair = demand_.pair_index(expert, entry);
        const uint32_t serving = serving_.device(pair), own_server = times_.entry_server(entry);
        if (!demand_.is_asked(pair) || copies_.device_at(expert, own_server) != none) continue;
        const double *alone_s = times_.alone_s(model, entry);
        const double rate = weights_.latency * demand_.single(pair);
        const double now_s = serving == none ? infinity : alone_s[serving];
        const double paid_s = alone_cost(pair, model, entry, serving);
        for (uint32_t server = 0; server < servers_; ++server)
            change_s[server] += alone_s[server] < now_s ? rate * alone_s[server] - paid_s : 0.0;
        // Its own server serves it, however long that takes, without a remote call.
        if (!(alone_s[own_server] < now_s))
            change_s[own_server] += rate * alone_s[own_server] - paid_s;
        remote[own_server] -= remote_calls_of(pair, entry, serving);
    }
    for (uint32_t server = 0; server < servers_; ++server)
        change_s[server] += remote_cost(remote_ + remote[server]) - remote_cost(remote_);
}

inline double placement_cost::apply(const copy_change &change) {
    const uint32_t expert = change.expert, model = latency_.model_of(expert);
    double sum = copy_cost(expert, change.device) -
                 copy_cost(expert, copies_.device_at(expert, change.server));
    double remote = 0;
    copies_.account(change);
    if (weights_.load > 0) sum += load_cost(change, /*keep=*/true);
    steps_ += change_steps();
    each_touched(change, /*equal=*/true, [&](uint32_t entry) {
        const size_t pair = demand_.pair_index(expert, entry);
        const uint32_t old_serving = serving_.device(pair),
                       serving = serving_.device_after(change, entry);
        if (serving != old_serving) {
            sum += alone_cost(pair, model, entry, serving) -
                   alone_cost(pair, model, entry, old_serving);
            remote +=
                remote_calls_of(pair, entry, serving) - remote_calls_of(pair, entry, old_serving);
            serving_.set(expert, entry, serving);
        }
        if (!batches_.is_empty() && demand_.calls(pair) > 0 && is_seen_from(change, entry))
            sum += weights_.latency * batches_.apply(change, entry);
        if (sets_.uses(pair) == 0 || !is_seen_from(change, entry)) return;
        const uint32_t pattern = sets_.pattern_after(change, entry);
        if (pattern == sets_.pattern(pair)) return;
        sum += weights_.latency * sets_.apply(expert, pair, pattern);
    });
    copies_.set(change);
    sum += remote_cost(remote_ + remote) - remote_cost(remote_);
    remote_ += remote;
    return sum;
}

}  // namespace moorage::joint
