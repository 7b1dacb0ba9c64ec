// state.inl - definitions of state.hpp.
#pragma once

#include "state.hpp"

namespace moorage::joint {

inline state::state(const latency_model &model, const layer_time &time, const cost_weights &weights,
                    uint32_t stride)
    : model_(model),
      time_(time),
      batches_(model.cluster(), model.demand()),
      weights_(weights),
      servers_(model.cluster().servers),
      experts_(model.experts()),
      entries_(time.entries()),
      server_words_((servers_ + 63) / 64),
      bytes_(model.demand().host_expert_bytes,
             model.demand().host_expert_bytes + model.demand().models),
      single_(size_t{experts_} * entries_, 0),
      calls_(size_t{experts_} * entries_, 0),
      at_(size_t{experts_} * servers_, none),
      copies_(experts_, 0),
      holders_(size_t{experts_} * server_words_, 0),
      free_(model.cluster().host_device_bytes,
            model.cluster().host_device_bytes + model.cluster().devices),
      by_(size_t{experts_} * entries_, none),
      by_rank_(by_.size(), none),
      far_max_(servers_ > 8 ? 4 : 64),
      known_(size_t{1} << known_bits) {
    read_layers();
    read_calls();
    read_sets(stride);
    settle();
}

inline void state::read_layers() {
    if (!batched()) return;
    const moorage_demand &demand = model_.demand();
    for (uint32_t m = 0; m < demand.models; ++m)
        for (uint32_t l = 0; l < demand.host_model_layers[m]; ++l) {
            layer_first_.push_back(demand.host_model_first[m] + l * demand.host_model_experts[m]);
            layer_.insert(layer_.end(), demand.host_model_experts[m],
                          static_cast<uint32_t>(layer_first_.size() - 1));
        }
    extra_.assign(layer_first_.size() * entries_, 0);
}

// The placement with a change, in the form that moorage/batch.hpp reads.
class state::holder_view {
public:
    holder_view(const state &of, uint32_t x, uint32_t n, uint32_t device)
        : of_(of), x_(x), n_(n), device_(device) {}
    uint32_t at(uint32_t x, uint32_t n) const {
        return x == x_ && n == n_ ? device_ : of_.at(x, n);
    }
    template <class Each>
    void each(uint32_t x, Each call) const {
        of_.each_holder(x, x == x_ ? n_ : none, device_, call);
    }

private:
    const state &of_;
    const uint32_t x_, n_, device_;
};

inline double state::extra_s(uint32_t x, uint32_t e, uint32_t n, uint32_t device) {
    const uint32_t first = layer_first_[layer_[x]];
    work_ += model_.demand().host_model_experts[model_.model_of(x)];
    return batches_.extra_s(e, first, holder_view(*this, x, n, device));
}

inline void state::read_calls() {
    const moorage_cluster &cluster = model_.cluster();
    const moorage_demand &demand = model_.demand();
    double all = 0;
    for (uint32_t h = 0; h < demand.homes; ++h) all += demand.host_home_tokens_per_s[h];
    tokens_per_s_ = all > 0 ? all : demand.homes;
    for (uint32_t h = 0; h < demand.homes; ++h) {
        const double weight = all > 0 ? demand.host_home_tokens_per_s[h] / all : 1.0 / demand.homes;
        const size_t row = size_t{h} * experts_;
        const uint32_t e = time_.server_entry(cluster.host_home_server[h]);
        for (uint32_t x = 0; x < experts_; ++x)
            if (!demand.host_home_holds || demand.host_home_holds[row + x] == 0)
                calls_[flow(x, e)] += weight * demand.host_frequency[row + x];
    }
    for (uint32_t x = 0; x < experts_; ++x)
        for (uint32_t e = 0; e < entries_; ++e)
            single_[flow(x, e)] = model_.single_weight(x, time_.entry_server(e)) / batch(e);
}

inline void state::read_sets(uint32_t stride) {
    uint64_t number = 0;
    const uint32_t models = model_.demand().models;
    use_first_.assign(size_t{experts_} * entries_ + 1, 0);
    model_.for_sets([&](uint32_t server, double weight, std::span<const uint32_t> of) {
        if (number++ % stride != 0) return;
        const uint32_t entry = time_.server_entry(server);
        const uint32_t context = entry * models + model_.model_of(of[0]);
        sets_.push_back({0, 0, weight * stride / batch(entry),
                         static_cast<uint32_t>(members_.size()), static_cast<uint32_t>(of.size()),
                         context});
        members_.insert(members_.end(), of.begin(), of.end());
        for (const uint32_t x : of) ++use_first_[flow(x, entry) + 1];
    });
    for (size_t i = 1; i < use_first_.size(); ++i) use_first_[i] += use_first_[i - 1];
    use_.resize(members_.size());
    pattern_.assign(sets_.empty() ? 0 : size_t{experts_} * entries_, none);
    std::vector<size_t> next(use_first_.begin(), use_first_.end() - 1);
    for (uint32_t s = 0; s < sets_.size(); ++s)
        for (uint32_t i = 0; i < sets_[s].count; ++i)
            use_[next[flow(members_[sets_[s].first + i], sets_[s].context / models)]++] = s;
    refresh();
}

// Computes anew everything that follows from the placement.
inline void state::refresh() {
    for (uint32_t x = 0; x < experts_; ++x)
        for (uint32_t e = 0; e < entries_; ++e) {
            const size_t i = flow(x, e);
            set_by(x, e, nearest(x, e, none, none));
            if (use_first_[i] != use_first_[i + 1]) pattern_[i] = pattern_with(x, e, none, none);
        }
    for (set &of : sets_) {
        const uint32_t entry = of.context / model_.demand().models;
        of.key = 0;
        for (uint32_t i = 0; i < of.count; ++i)
            of.key += patterns_.code(pattern_[flow(members_[of.first + i], entry)]);
        of.value_s = set_s(of, of.key, none, none);
    }
    for (size_t i = 0; i < extra_.size(); ++i)
        extra_[i] =
            extra_s(layer_first_[i / entries_], static_cast<uint32_t>(i % entries_), none, none);
    work_ += use_.size();
}

inline void state::end_many() {
    many_ = settled_ = false;
    refresh();
    settle();
}

// Counts steps as clear() does.
inline void state::begin_empty() {
    size_t held = 0;
    for (const uint32_t copies : copies_) held += copies;
    if (held <= 64) clear();
    begin_many();
    if (held <= 64) return;
    for (uint32_t x = 0; x < experts_; ++x)
        each_holder(x, none, none, [&](uint32_t n, uint32_t) { put(x, n, none); });
    work_ += refresh_work();
    forget();
}

// Nothing changes if no sets are known.
inline void state::count_all() {
    if (use_.empty()) return;
    far_max_ = 64;
    refresh();
    settled_ = false;
    settle();
}

inline void state::limit_remote(double remote_max, double over_s) {
    weights_.remote_max = remote_max, weights_.over_s = over_s;
    settled_ = false;
    settle();
}

inline void state::set_current(std::span<const moorage_copy> current,
                               std::span<const double> added_s) {
    const uint32_t devices = model_.cluster().devices;
    added_s_.assign(added_s.begin(), added_s.end());
    current_.assign(size_t{experts_} * devices, 0);
    for (const moorage_copy &copy : current)
        current_[size_t{copy.expert} * devices + copy.device] = 1;
    settled_ = false;
    settle();
}

inline void state::settle() {
    if (settled_) return;
    settled_ = true;
    total_ = 0;
    for (uint32_t x = 0; x < experts_; ++x) {
        for (uint32_t e = 0; e < entries_; ++e)
            total_ += flow_cost(flow(x, e), model_.model_of(x), e, by_[flow(x, e)]);
        for (uint32_t n = 0; n < servers_ && !added_s_.empty(); ++n)
            total_ += copy_cost(x, at(x, n));
    }
    remote_ = remote_calls();
    total_ += remote_cost(remote_);
    for (const set &of : sets_) total_ += weights_.latency * of.weight * of.value_s;
    for (const double each : extra_) total_ += weights_.latency * each;
    if (weights_.load <= 0) return;
    load_.assign(model_.cluster().devices + size_t{servers_} * servers_, 0);
    for (uint32_t x = 0; x < experts_; ++x)
        for (uint32_t e = 0; e < entries_; ++e)
            for_load(x, e, by_[flow(x, e)], [this](size_t i, double more) { load_[i] += more; });
    for (const double utilisation : load_)
        total_ += weights_.load / tokens_per_s_ * waiting(utilisation);
}

inline double state::latency_s() const {
    double sum = 0;
    for (uint32_t x = 0; x < experts_; ++x)
        for (uint32_t e = 0; e < entries_; ++e)
            sum += batch(e) * single_[flow(x, e)] *
                   time_.alone_s(model_.model_of(x), e, by_[flow(x, e)]);
    for (const set &of : sets_)
        sum += batch(of.context / model_.demand().models) * of.weight * of.value_s;
    return sum;
}

inline double state::remote_calls() const {
    double sum = 0;
    for (uint32_t x = 0; x < experts_; ++x)
        for (uint32_t e = 0; e < entries_; ++e)
            if (at(x, time_.entry_server(e)) == none) sum += calls_[flow(x, e)];
    return sum;
}

// ---- what serves an expert -------------------------------------------------------------------

inline uint32_t state::nearest(uint32_t x, uint32_t e, uint32_t n, uint32_t device) const {
    const uint32_t m = model_.model_of(x), own = time_.entry_server(e);
    const uint32_t near = with(x, own, n, device);
    if (near != none) return near;
    uint32_t best = none;
    each_holder(x, n, device, [&](uint32_t other, uint32_t d) {
        if (!time_.reached(e, other)) return;
        if (best == none || nearer(m, e, d, best)) best = d;
    });
    return best;
}

template <class Each>
void state::each_touched(uint32_t x, uint32_t n, uint32_t device, bool equal, Each call) const {
    constexpr uint32_t block = 16;
    if (!nearest_decides()) {
        for (uint32_t e = 0; e < entries_; ++e) call(e);
        return;
    }
    static constexpr std::array<uint32_t, block> nowhere = [] {
        std::array<uint32_t, block> all{};
        all.fill(none);
        return all;
    }();
    const uint32_t first = model_.device_begin(n), count = model_.device_begin(n + 1) - first;
    const uint32_t *ranks = device == none ? nullptr : time_.ranks(model_.model_of(x), device);
    const uint32_t more = equal ? 1 : 0;
    for (uint32_t begin = 0; begin < entries_; begin += block) {
        const uint32_t size = std::min(block, entries_ - begin);
        const uint32_t *by = &by_[flow(x, begin)], *by_rank = &by_rank_[flow(x, begin)];
        const uint32_t *rank = ranks == nullptr ? nowhere.data() : ranks + begin;
        const auto touched = [&](uint32_t i) {
            return static_cast<uint32_t>(by[i] - first < count) |
                   static_cast<uint32_t>(rank[i] < by_rank[i] + more);
        };
        uint32_t any = 0;
        if (size == block)
            for (uint32_t i = 0; i < block; ++i) any |= touched(i);
        if (size == block && any == 0) continue;
        for (uint32_t i = 0; i < size; ++i)
            if (touched(i) != 0) call(begin + i);
    }
}

// The device that serves it, with `device` (or none) on server n.
inline uint32_t state::served_by(uint32_t x, uint32_t e, uint32_t n, uint32_t device) const {
    const uint32_t now = by_[flow(x, e)], own = time_.entry_server(e);
    if (own == n && device != none) return device;
    if (now != none && time_.server_of(now) == n) return nearest(x, e, n, device);
    if (device == none || !time_.reached(e, n)) return now;
    if (now != none && time_.server_of(now) == own) return now;
    return now == none || nearer(model_.model_of(x), e, device, now) ? device : now;
}

// Requires: at most 64 servers.
inline uint32_t state::pattern_with(uint32_t x, uint32_t e, uint32_t n, uint32_t device) {
    const uint32_t own = time_.entry_server(e);
    const uint32_t context = e * model_.demand().models + model_.model_of(x);
    const uint32_t near = with(x, own, n, device);
    if (near != none) return patterns_.find(context, {&near, 1});
    std::array<uint32_t, 64> far;
    size_t count = 0;
    each_holder(x, n, device, [&](uint32_t other, uint32_t d) {
        if (time_.reached(e, other)) far[count++] = d;
    });
    if (count > far_max_) {
        const uint32_t m = model_.model_of(x);
        std::partial_sort(far.begin(), far.begin() + far_max_, far.begin() + count,
                          [&](uint32_t a, uint32_t b) { return nearer(m, e, a, b); });
        count = far_max_;
        std::sort(far.begin(), far.begin() + count);
    }
    return patterns_.find(context, {far.data(), count});
}

// Time of a set whose expert x has `pattern`. Its key is then `key`.
inline double state::set_s(const set &of, uint64_t key, uint32_t x, uint32_t pattern) {
    known &slot = known_[key >> (64 - known_bits)];
    if (slot.key == key && key != 0) return slot.value_s;
    const uint32_t models = model_.demand().models, e = of.context / models;
    std::array<holders, 16> by;
    for (uint32_t i = 0; i < of.count; ++i) {
        const uint32_t member = members_[of.first + i];
        by[i] = patterns_.devices_of(member == x ? pattern : pattern_[flow(member, e)]);
    }
    slot.key = key;
    slot.value_s = time_.layer_s(of.context % models, e, {by.data(), of.count});
    work_ += 8;
    return slot.value_s;
}

// ---- load ------------------------------------------------------------------------------------

// Utilisation that the expert's calls by an entry's homes add if `device` serves them.
template <class Each>
void state::for_load(uint32_t x, uint32_t e, uint32_t device, Each each) const {
    const double calls_per_s = calls_[flow(x, e)] * tokens_per_s_;
    if (device == none || calls_per_s <= 0) return;
    const moorage_cluster &cluster = model_.cluster();
    const uint32_t m = model_.model_of(x), own = time_.entry_server(e);
    const uint32_t n = time_.server_of(device);
    each(device, calls_per_s * time_.call_s(device, m));
    if (n == own) return;
    const size_t to = size_t{own} * servers_ + n, from = size_t{n} * servers_ + own;
    const double bytes_per_s =
        calls_per_s * static_cast<double>(model_.demand().host_hidden_bytes[m]);
    each(cluster.devices + to, bytes_per_s / cluster.host_link_bytes_per_s[to]);
    each(cluster.devices + from, bytes_per_s / cluster.host_link_bytes_per_s[from]);
}

inline double state::load_change(uint32_t x, uint32_t n, uint32_t device, bool keep) {
    load_changes_.clear();
    for (uint32_t e = 0; e < entries_; ++e) {
        const uint32_t now = by_[flow(x, e)], then = served_by(x, e, n, device);
        if (now == then) continue;
        for_load(x, e, now, [this](size_t i, double less) {
            load_changes_.emplace_back(static_cast<uint32_t>(i), -less);
        });
        for_load(x, e, then, [this](size_t i, double more) {
            load_changes_.emplace_back(static_cast<uint32_t>(i), more);
        });
    }
    std::stable_sort(load_changes_.begin(), load_changes_.end(),
                     [](const auto &a, const auto &b) { return a.first < b.first; });
    double sum = 0;
    for (size_t i = 0; i < load_changes_.size();) {
        const uint32_t of = load_changes_[i].first;
        double more = 0;
        for (; i < load_changes_.size() && load_changes_[i].first == of; ++i)
            more += load_changes_[i].second;
        const double then = std::max(0.0, load_[of] + more);
        sum += waiting(then) - waiting(load_[of]);
        if (keep) load_[of] = then;
    }
    return weights_.load / tokens_per_s_ * sum;
}

// ---- changes ---------------------------------------------------------------------------------

inline double state::change_s(uint32_t x, uint32_t n, uint32_t device) {
    const uint32_t m = model_.model_of(x);
    double sum = copy_cost(x, device) - copy_cost(x, at(x, n)), remote = 0;
    work_ += 4 + entries_ / 8;
    each_touched(x, n, device, /*equal=*/false, [&](uint32_t e) {
        const size_t i = flow(x, e);
        if (single_[i] > 0 || calls_[i] > 0) {
            const uint32_t by = served_by(x, e, n, device);
            if (by != by_[i]) {
                sum += flow_cost(i, m, e, by) - flow_cost(i, m, e, by_[i]);
                remote += remote_of(i, e, by) - remote_of(i, e, by_[i]);
            }
        }
        if (!extra_.empty() && calls_[i] > 0 && seen_from(x, e, n))
            sum += weights_.latency *
                   (extra_s(x, e, n, device) - extra_[layer_[x] * size_t{entries_} + e]);
        if (use_first_[i] == use_first_[i + 1] || !seen_from(x, e, n)) return;
        const uint32_t pattern = pattern_with(x, e, n, device);
        if (pattern == pattern_[i]) return;
        double part = 0;
        const uint64_t shift = patterns_.code(pattern) - patterns_.code(pattern_[i]);
        for (size_t u = use_first_[i]; u < use_first_[i + 1]; ++u) {
            const set &of = sets_[use_[u]];
            part += of.weight * (set_s(of, of.key + shift, x, pattern) - of.value_s);
        }
        sum += weights_.latency * part;
        work_ += use_first_[i + 1] - use_first_[i];
    });
    sum += remote_cost(remote_ + remote) - remote_cost(remote_);
    return weights_.load > 0 ? sum + load_change(x, n, device, false) : sum;
}

// Entry by entry for all servers at once, which is fast on a processor. Each sum has the terms of
// change_s() in their order, so it is the same to the bit.
inline void state::changes_s(uint32_t x, std::span<const uint32_t> device,
                             std::span<double> change_s) {
    bool by_number = true;  // each server has one device
    for (uint32_t n = 0; n <= servers_; ++n) by_number = by_number && model_.device_begin(n) == n;
    if (!nearest_decides() || !by_number || weights_.load > 0) {
        for (uint32_t n = 0; n < servers_; ++n)
            if (device[n] != none) change_s[n] = this->change_s(x, n, device[n]);
        return;
    }
    const uint32_t m = model_.model_of(x);
    std::vector<double> remote(servers_, 0);
    for (uint32_t n = 0; n < servers_; ++n) {
        change_s[n] = copy_cost(x, device[n]);
        if (device[n] != none) work_ += 4 + entries_ / 8;
    }
    for (uint32_t e = 0; e < entries_; ++e) {
        const size_t i = flow(x, e);
        const uint32_t by = by_[i], own = time_.entry_server(e);
        if ((single_[i] <= 0 && calls_[i] <= 0) || at(x, own) != none) continue;
        const double *alone_s = time_.alone_s(m, e);
        const double rate = weights_.latency * single_[i];
        const double now_s = by == none ? infinity : alone_s[by];
        const double paid_s = flow_cost(i, m, e, by);
        for (uint32_t n = 0; n < servers_; ++n)
            change_s[n] += alone_s[n] < now_s ? rate * alone_s[n] - paid_s : 0.0;
        // Its own server serves it, however long that takes, without a remote call.
        if (!(alone_s[own] < now_s)) change_s[own] += rate * alone_s[own] - paid_s;
        remote[own] -= remote_of(i, e, by);
    }
    for (uint32_t n = 0; n < servers_; ++n)
        change_s[n] += remote_cost(remote_ + remote[n]) - remote_cost(remote_);
}

inline double state::put(uint32_t x, uint32_t n, uint32_t device) {
    const uint32_t m = model_.model_of(x), before = at(x, n);
    if (before == device) return 0;
    if (before != none) free_[before] += static_cast<int64_t>(bytes(x)), --copies_[x];
    if (device != none) free_[device] -= static_cast<int64_t>(bytes(x)), ++copies_[x];
    if (many_) {
        set_at(x, n, device);
        return 0;
    }
    settled_ = false;
    double sum = copy_cost(x, device) - copy_cost(x, before), remote = 0;
    if (weights_.load > 0) sum += load_change(x, n, device, true);
    work_ += 4 + entries_ / 8;
    each_touched(x, n, device, /*equal=*/true, [&](uint32_t e) {
        const size_t i = flow(x, e);
        const uint32_t by = served_by(x, e, n, device);
        if (by != by_[i]) {
            sum += flow_cost(i, m, e, by) - flow_cost(i, m, e, by_[i]);
            remote += remote_of(i, e, by) - remote_of(i, e, by_[i]);
            set_by(x, e, by);
        }
        if (!extra_.empty() && calls_[i] > 0 && seen_from(x, e, n)) {
            double &extra = extra_[layer_[x] * size_t{entries_} + e];
            const double then = extra_s(x, e, n, device);
            sum += weights_.latency * (then - extra);
            extra = then;
        }
        if (use_first_[i] == use_first_[i + 1] || !seen_from(x, e, n)) return;
        const uint32_t pattern = pattern_with(x, e, n, device);
        if (pattern == pattern_[i]) return;
        double part = 0;
        const uint64_t shift = patterns_.code(pattern) - patterns_.code(pattern_[i]);
        for (size_t u = use_first_[i]; u < use_first_[i + 1]; ++u) {
            set &of = sets_[use_[u]];
            const double then = set_s(of, of.key + shift, x, pattern);
            part += of.weight * (then - of.value_s);
            of.value_s = then, of.key += shift;
        }
        sum += weights_.latency * part;
        work_ += use_first_[i + 1] - use_first_[i];
        pattern_[i] = pattern;
    });
    set_at(x, n, device);
    sum += remote_cost(remote_ + remote) - remote_cost(remote_);
    remote_ += remote;
    journal_.push_back({x, n, before});
    total_ += sum;
    return sum;
}

inline void state::rollback(size_t mark) {
    while (journal_.size() > mark) {
        const move_of last = journal_.back();
        put(last.x, last.n, last.device);
        journal_.resize(journal_.size() - 2);
    }
}

inline void state::restore(const std::vector<uint32_t> &placement) {
    size_t differ = 0;
    for (size_t i = 0; i < at_.size(); ++i) differ += at_[i] != placement[i] ? 1 : 0;
    if (differ > 64) begin_many();
    for (uint32_t x = 0; x < experts_; ++x)
        for (uint32_t n = 0; n < servers_; ++n)
            if (at(x, n) != placement[size_t{x} * servers_ + n])
                put(x, n, placement[size_t{x} * servers_ + n]);
    if (differ > 64) end_many();
    forget();
}

}  // namespace moorage::joint
