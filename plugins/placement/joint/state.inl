// state.inl - definitions of state.hpp.
#pragma once

#include "state.hpp"

namespace moorage::joint {

inline state::state(const latency_model &latency, const layer_time &time,
                    const cost_weights &weights, uint32_t stride)
    : latency_(latency),
      time_(time),
      batches_(latency.cluster(), latency.demand()),
      weights_(weights),
      servers_(latency.cluster().servers),
      experts_(latency.experts()),
      entries_(time.entries()),
      server_words_((servers_ + 63) / 64),
      bytes_(latency.demand().host_expert_bytes,
             latency.demand().host_expert_bytes + latency.demand().models),
      single_(size_t{experts_} * entries_, 0),
      calls_(size_t{experts_} * entries_, 0),
      placement_(size_t{experts_} * servers_, none),
      copies_(experts_, 0),
      holders_(size_t{experts_} * server_words_, 0),
      free_(latency.cluster().host_device_bytes,
            latency.cluster().host_device_bytes + latency.cluster().devices),
      serving_(size_t{experts_} * entries_, none),
      serving_rank_(serving_.size(), none),
      far_max_(servers_ > 8 ? 4 : 64),
      known_(size_t{1} << known_bits) {
    read_layers();
    read_calls();
    read_sets(stride);
    settle();
}

inline void state::read_layers() {
    if (!batched()) return;
    const moorage_demand &demand = latency_.demand();
    for (uint32_t model = 0; model < demand.models; ++model)
        for (uint32_t model_layer = 0; model_layer < demand.host_model_layers[model];
             ++model_layer) {
            layer_first_.push_back(demand.host_model_first[model] +
                                   model_layer * demand.host_model_experts[model]);
            layer_.insert(layer_.end(), demand.host_model_experts[model],
                          static_cast<uint32_t>(layer_first_.size() - 1));
        }
    extra_.assign(layer_first_.size() * entries_, 0);
}

// The placement with a change, in the form that moorage/batch.hpp reads.
class state::holder_view {
public:
    holder_view(const state &state, uint32_t expert, uint32_t server, uint32_t device)
        : state_(state), expert_(expert), server_(server), device_(device) {}
    uint32_t at(uint32_t expert, uint32_t server) const {
        return expert == expert_ && server == server_ ? device_ : state_.device_at(expert, server);
    }
    template <class Each>
    void each(uint32_t expert, Each call) const {
        state_.each_holder(expert, expert == expert_ ? server_ : none, device_, call);
    }

private:
    const state &state_;
    const uint32_t expert_, server_, device_;
};

inline double state::extra_s(uint32_t expert, uint32_t entry, uint32_t server, uint32_t device) {
    const uint32_t first = layer_first_[layer_[expert]];
    work_ += latency_.demand().host_model_experts[latency_.model_of(expert)];
    return batches_.extra_s(entry, first, holder_view(*this, expert, server, device));
}

inline void state::read_calls() {
    const moorage_cluster &cluster = latency_.cluster();
    const moorage_demand &demand = latency_.demand();
    double tokens_per_s = 0;
    for (uint32_t home = 0; home < demand.homes; ++home)
        tokens_per_s += demand.host_home_tokens_per_s[home];
    tokens_per_s_ = tokens_per_s > 0 ? tokens_per_s : demand.homes;
    for (uint32_t home = 0; home < demand.homes; ++home) {
        const double weight = tokens_per_s > 0 ? demand.host_home_tokens_per_s[home] / tokens_per_s
                                               : 1.0 / demand.homes;
        const size_t row = size_t{home} * experts_;
        const uint32_t entry = time_.server_entry(cluster.host_home_server[home]);
        for (uint32_t expert = 0; expert < experts_; ++expert)
            if (!demand.host_home_holds || demand.host_home_holds[row + expert] == 0)
                calls_[pair_index(expert, entry)] += weight * demand.host_frequency[row + expert];
    }
    for (uint32_t expert = 0; expert < experts_; ++expert)
        for (uint32_t entry = 0; entry < entries_; ++entry)
            single_[pair_index(expert, entry)] =
                latency_.single_weight(expert, time_.entry_server(entry)) / batch(entry);
}

inline void state::read_sets(uint32_t stride) {
    uint64_t number = 0;
    const uint32_t models = latency_.demand().models;
    use_first_.assign(size_t{experts_} * entries_ + 1, 0);
    latency_.for_sets([&](uint32_t server, double weight, std::span<const uint32_t> members) {
        if (number++ % stride != 0) return;
        const uint32_t entry = time_.server_entry(server);
        const uint32_t context = entry * models + latency_.model_of(members[0]);
        sets_.push_back({0, 0, weight * stride / batch(entry),
                         static_cast<uint32_t>(members_.size()),
                         static_cast<uint32_t>(members.size()), context});
        members_.insert(members_.end(), members.begin(), members.end());
        for (const uint32_t expert : members) ++use_first_[pair_index(expert, entry) + 1];
    });
    for (size_t index = 1; index < use_first_.size(); ++index)
        use_first_[index] += use_first_[index - 1];
    use_.resize(members_.size());
    pattern_.assign(sets_.empty() ? 0 : size_t{experts_} * entries_, none);
    std::vector<size_t> next(use_first_.begin(), use_first_.end() - 1);
    for (uint32_t set = 0; set < sets_.size(); ++set)
        for (uint32_t member = 0; member < sets_[set].count; ++member)
            use_[next[pair_index(members_[sets_[set].first + member],
                                 sets_[set].context / models)]++] = set;
    refresh();
}

// Computes anew everything that follows from the placement.
inline void state::refresh() {
    for (uint32_t expert = 0; expert < experts_; ++expert)
        for (uint32_t entry = 0; entry < entries_; ++entry) {
            const size_t pair = pair_index(expert, entry);
            set_serving_device(expert, entry, nearest(expert, entry, none, none));
            if (use_first_[pair] != use_first_[pair + 1])
                pattern_[pair] = pattern_with(expert, entry, none, none);
        }
    for (set &set : sets_) {
        const uint32_t entry = set.context / latency_.demand().models;
        set.key = 0;
        for (uint32_t member = 0; member < set.count; ++member)
            set.key += patterns_.code(pattern_[pair_index(members_[set.first + member], entry)]);
        set.value_s = set_s(set, set.key, none, none);
    }
    for (size_t index = 0; index < extra_.size(); ++index)
        extra_[index] = extra_s(layer_first_[index / entries_],
                                static_cast<uint32_t>(index % entries_), none, none);
    work_ += use_.size();
}

inline void state::end_bulk() {
    in_bulk_ = settled_ = false;
    refresh();
    settle();
}

// Counts steps as clear() does.
inline void state::begin_empty() {
    size_t held = 0;
    for (const uint32_t copies : copies_) held += copies;
    if (held <= 64) clear();
    begin_bulk();
    if (held <= 64) return;
    for (uint32_t expert = 0; expert < experts_; ++expert)
        each_holder(expert, none, none,
                    [&](uint32_t server, uint32_t) { put(expert, server, none); });
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
    const uint32_t devices = latency_.cluster().devices;
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
    for (uint32_t expert = 0; expert < experts_; ++expert) {
        for (uint32_t entry = 0; entry < entries_; ++entry)
            total_ += alone_cost(pair_index(expert, entry), latency_.model_of(expert), entry,
                                 serving_[pair_index(expert, entry)]);
        for (uint32_t server = 0; server < servers_ && !added_s_.empty(); ++server)
            total_ += copy_cost(expert, device_at(expert, server));
    }
    remote_ = remote_calls();
    total_ += remote_cost(remote_);
    for (const set &set : sets_) total_ += weights_.latency * set.weight * set.value_s;
    for (const double extra : extra_) total_ += weights_.latency * extra;
    if (weights_.load <= 0) return;
    load_.assign(latency_.cluster().devices + size_t{servers_} * servers_, 0);
    for (uint32_t expert = 0; expert < experts_; ++expert)
        for (uint32_t entry = 0; entry < entries_; ++entry)
            visit_load(expert, entry, serving_[pair_index(expert, entry)],
                       [this](size_t resource, double added) { load_[resource] += added; });
    for (const double utilisation : load_)
        total_ += weights_.load / tokens_per_s_ * waiting(utilisation);
}

inline double state::latency_s() const {
    double sum = 0;
    for (uint32_t expert = 0; expert < experts_; ++expert)
        for (uint32_t entry = 0; entry < entries_; ++entry)
            sum += batch(entry) * single_[pair_index(expert, entry)] *
                   time_.alone_s(latency_.model_of(expert), entry,
                                 serving_[pair_index(expert, entry)]);
    for (const set &set : sets_)
        sum += batch(set.context / latency_.demand().models) * set.weight * set.value_s;
    return sum;
}

inline double state::remote_calls() const {
    double sum = 0;
    for (uint32_t expert = 0; expert < experts_; ++expert)
        for (uint32_t entry = 0; entry < entries_; ++entry)
            if (device_at(expert, time_.entry_server(entry)) == none)
                sum += calls_[pair_index(expert, entry)];
    return sum;
}

// ---- what serves an expert -------------------------------------------------------------------

inline uint32_t state::nearest(uint32_t expert, uint32_t entry, uint32_t server,
                               uint32_t device) const {
    const uint32_t model = latency_.model_of(expert), own_server = time_.entry_server(entry);
    const uint32_t near = device_with_change(expert, own_server, server, device);
    if (near != none) return near;
    uint32_t best = none;
    each_holder(expert, server, device, [&](uint32_t holder_server, uint32_t holder_device) {
        if (!time_.reached(entry, holder_server)) return;
        if (best == none || nearer(model, entry, holder_device, best)) best = holder_device;
    });
    return best;
}

template <class Each>
void state::each_touched(uint32_t expert, uint32_t server, uint32_t device, bool equal,
                         Each call) const {
    constexpr uint32_t block = 16;
    if (!nearest_decides()) {
        for (uint32_t entry = 0; entry < entries_; ++entry) call(entry);
        return;
    }
    static constexpr std::array<uint32_t, block> nowhere = [] {
        std::array<uint32_t, block> filled{};
        filled.fill(none);
        return filled;
    }();
    const uint32_t first = latency_.device_begin(server),
                   count = latency_.device_begin(server + 1) - first;
    const uint32_t *ranks =
        device == none ? nullptr : time_.ranks(latency_.model_of(expert), device);
    const uint32_t tolerance = equal ? 1 : 0;
    for (uint32_t begin = 0; begin < entries_; begin += block) {
        const uint32_t size = std::min(block, entries_ - begin);
        const uint32_t *serving = &serving_[pair_index(expert, begin)],
                       *serving_rank = &serving_rank_[pair_index(expert, begin)];
        const uint32_t *rank = ranks == nullptr ? nowhere.data() : ranks + begin;
        const auto touched = [&](uint32_t offset) {
            return static_cast<uint32_t>(serving[offset] - first < count) |
                   static_cast<uint32_t>(rank[offset] < serving_rank[offset] + tolerance);
        };
        uint32_t found = 0;
        if (size == block)
            for (uint32_t offset = 0; offset < block; ++offset) found |= touched(offset);
        if (size == block && found == 0) continue;
        for (uint32_t offset = 0; offset < size; ++offset)
            if (touched(offset) != 0) call(begin + offset);
    }
}

// The device that serves it, with `device` (or none) on `server`.
inline uint32_t state::serving_device(uint32_t expert, uint32_t entry, uint32_t server,
                                      uint32_t device) const {
    const uint32_t serving = serving_[pair_index(expert, entry)],
                   own_server = time_.entry_server(entry);
    if (own_server == server && device != none) return device;
    if (serving != none && time_.server_of(serving) == server)
        return nearest(expert, entry, server, device);
    if (device == none || !time_.reached(entry, server)) return serving;
    if (serving != none && time_.server_of(serving) == own_server) return serving;
    return serving == none || nearer(latency_.model_of(expert), entry, device, serving) ? device
                                                                                        : serving;
}

// Requires: at most 64 servers.
inline uint32_t state::pattern_with(uint32_t expert, uint32_t entry, uint32_t server,
                                    uint32_t device) {
    const uint32_t own_server = time_.entry_server(entry);
    const uint32_t context = entry * latency_.demand().models + latency_.model_of(expert);
    const uint32_t near = device_with_change(expert, own_server, server, device);
    if (near != none) return patterns_.find(context, {&near, 1});
    std::array<uint32_t, 64> far;
    size_t count = 0;
    each_holder(expert, server, device, [&](uint32_t holder_server, uint32_t holder_device) {
        if (time_.reached(entry, holder_server)) far[count++] = holder_device;
    });
    if (count > far_max_) {
        const uint32_t model = latency_.model_of(expert);
        std::partial_sort(
            far.begin(), far.begin() + far_max_, far.begin() + count,
            [&](uint32_t left, uint32_t right) { return nearer(model, entry, left, right); });
        count = far_max_;
        std::sort(far.begin(), far.begin() + count);
    }
    return patterns_.find(context, {far.data(), count});
}

// Time of a set in which `expert` has `pattern`. Its key is then `key`.
inline double state::set_s(const set &set, uint64_t key, uint32_t expert, uint32_t pattern) {
    remembered_time &slot = known_[key >> (64 - known_bits)];
    if (slot.key == key && key != 0) return slot.value_s;
    const uint32_t models = latency_.demand().models, entry = set.context / models;
    std::array<holders, 16> member_holders;
    for (uint32_t index = 0; index < set.count; ++index) {
        const uint32_t member = members_[set.first + index];
        member_holders[index] =
            patterns_.devices_of(member == expert ? pattern : pattern_[pair_index(member, entry)]);
    }
    slot.key = key;
    slot.value_s = time_.layer_s(set.context % models, entry, {member_holders.data(), set.count});
    work_ += 8;
    return slot.value_s;
}

// ---- load ------------------------------------------------------------------------------------

// Utilisation that the expert's calls by an entry's homes add if `device` serves them.
template <class Each>
void state::visit_load(uint32_t expert, uint32_t entry, uint32_t device, Each visit) const {
    const double calls_per_s = calls_[pair_index(expert, entry)] * tokens_per_s_;
    if (device == none || calls_per_s <= 0) return;
    const moorage_cluster &cluster = latency_.cluster();
    const uint32_t model = latency_.model_of(expert), own_server = time_.entry_server(entry);
    const uint32_t server = time_.server_of(device);
    visit(device, calls_per_s * time_.call_s(device, model));
    if (server == own_server) return;
    const size_t request_link = size_t{own_server} * servers_ + server,
                 reply_link = size_t{server} * servers_ + own_server;
    const double bytes_per_s =
        calls_per_s * static_cast<double>(latency_.demand().host_hidden_bytes[model]);
    visit(cluster.devices + request_link,
          bytes_per_s / cluster.host_link_bytes_per_s[request_link]);
    visit(cluster.devices + reply_link, bytes_per_s / cluster.host_link_bytes_per_s[reply_link]);
}

inline double state::load_change(uint32_t expert, uint32_t server, uint32_t device, bool keep) {
    load_changes_.clear();
    for (uint32_t entry = 0; entry < entries_; ++entry) {
        const uint32_t serving = serving_[pair_index(expert, entry)],
                       next_serving = serving_device(expert, entry, server, device);
        if (serving == next_serving) continue;
        visit_load(expert, entry, serving, [this](size_t resource, double removed) {
            load_changes_.emplace_back(static_cast<uint32_t>(resource), -removed);
        });
        visit_load(expert, entry, next_serving, [this](size_t resource, double added) {
            load_changes_.emplace_back(static_cast<uint32_t>(resource), added);
        });
    }
    std::stable_sort(load_changes_.begin(), load_changes_.end(),
                     [](const auto &left, const auto &right) { return left.first < right.first; });
    double sum = 0;
    for (size_t index = 0; index < load_changes_.size();) {
        const uint32_t resource = load_changes_[index].first;
        double added = 0;
        for (; index < load_changes_.size() && load_changes_[index].first == resource; ++index)
            added += load_changes_[index].second;
        const double utilisation = std::max(0.0, load_[resource] + added);
        sum += waiting(utilisation) - waiting(load_[resource]);
        if (keep) load_[resource] = utilisation;
    }
    return weights_.load / tokens_per_s_ * sum;
}

// ---- changes ---------------------------------------------------------------------------------

inline double state::change_s(uint32_t expert, uint32_t server, uint32_t device) {
    const uint32_t model = latency_.model_of(expert);
    double sum = copy_cost(expert, device) - copy_cost(expert, device_at(expert, server)),
           remote = 0;
    work_ += 4 + entries_ / 8;
    each_touched(expert, server, device, /*equal=*/false, [&](uint32_t entry) {
        const size_t pair = pair_index(expert, entry);
        if (single_[pair] > 0 || calls_[pair] > 0) {
            const uint32_t serving = serving_device(expert, entry, server, device);
            if (serving != serving_[pair]) {
                sum += alone_cost(pair, model, entry, serving) -
                       alone_cost(pair, model, entry, serving_[pair]);
                remote += remote_calls_of(pair, entry, serving) -
                          remote_calls_of(pair, entry, serving_[pair]);
            }
        }
        if (!extra_.empty() && calls_[pair] > 0 && seen_from(expert, entry, server))
            sum += weights_.latency * (extra_s(expert, entry, server, device) -
                                       extra_[layer_[expert] * size_t{entries_} + entry]);
        if (use_first_[pair] == use_first_[pair + 1] || !seen_from(expert, entry, server)) return;
        const uint32_t pattern = pattern_with(expert, entry, server, device);
        if (pattern == pattern_[pair]) return;
        double part = 0;
        const uint64_t shift = patterns_.code(pattern) - patterns_.code(pattern_[pair]);
        for (size_t use = use_first_[pair]; use < use_first_[pair + 1]; ++use) {
            const set &set = sets_[use_[use]];
            part += set.weight * (set_s(set, set.key + shift, expert, pattern) - set.value_s);
        }
        sum += weights_.latency * part;
        work_ += use_first_[pair + 1] - use_first_[pair];
    });
    sum += remote_cost(remote_ + remote) - remote_cost(remote_);
    return weights_.load > 0 ? sum + load_change(expert, server, device, false) : sum;
}

// Entry by entry for all servers at once, which is fast on a processor. Each sum has the terms of
// change_s() in their order, so it is the same to the bit.
inline void state::changes_s(uint32_t expert, std::span<const uint32_t> device,
                             std::span<double> change_s) {
    bool by_number = true;  // each server has one device
    for (uint32_t server = 0; server <= servers_; ++server)
        by_number = by_number && latency_.device_begin(server) == server;
    if (!nearest_decides() || !by_number || weights_.load > 0) {
        for (uint32_t server = 0; server < servers_; ++server)
            if (device[server] != none)
                change_s[server] = this->change_s(expert, server, device[server]);
        return;
    }
    const uint32_t model = latency_.model_of(expert);
    std::vector<double> remote(servers_, 0);
    for (uint32_t server = 0; server < servers_; ++server) {
        change_s[server] = copy_cost(expert, device[server]);
        if (device[server] != none) work_ += 4 + entries_ / 8;
    }
    for (uint32_t entry = 0; entry < entries_; ++entry) {
        const size_t pair = pair_index(expert, entry);
        const uint32_t serving = serving_[pair], own_server = time_.entry_server(entry);
        if ((single_[pair] <= 0 && calls_[pair] <= 0) || device_at(expert, own_server) != none)
            continue;
        const double *alone_s = time_.alone_s(model, entry);
        const double rate = weights_.latency * single_[pair];
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

inline double state::put(uint32_t expert, uint32_t server, uint32_t device) {
    const uint32_t model = latency_.model_of(expert), old_device = device_at(expert, server);
    if (old_device == device) return 0;
    if (old_device != none)
        free_[old_device] += static_cast<int64_t>(bytes(expert)), --copies_[expert];
    if (device != none) free_[device] -= static_cast<int64_t>(bytes(expert)), ++copies_[expert];
    if (in_bulk_) {
        set_at(expert, server, device);
        return 0;
    }
    settled_ = false;
    double sum = copy_cost(expert, device) - copy_cost(expert, old_device), remote = 0;
    if (weights_.load > 0) sum += load_change(expert, server, device, true);
    work_ += 4 + entries_ / 8;
    each_touched(expert, server, device, /*equal=*/true, [&](uint32_t entry) {
        const size_t pair = pair_index(expert, entry);
        const uint32_t serving = serving_device(expert, entry, server, device);
        if (serving != serving_[pair]) {
            sum += alone_cost(pair, model, entry, serving) -
                   alone_cost(pair, model, entry, serving_[pair]);
            remote += remote_calls_of(pair, entry, serving) -
                      remote_calls_of(pair, entry, serving_[pair]);
            set_serving_device(expert, entry, serving);
        }
        if (!extra_.empty() && calls_[pair] > 0 && seen_from(expert, entry, server)) {
            double &extra = extra_[layer_[expert] * size_t{entries_} + entry];
            const double new_extra = extra_s(expert, entry, server, device);
            sum += weights_.latency * (new_extra - extra);
            extra = new_extra;
        }
        if (use_first_[pair] == use_first_[pair + 1] || !seen_from(expert, entry, server)) return;
        const uint32_t pattern = pattern_with(expert, entry, server, device);
        if (pattern == pattern_[pair]) return;
        double part = 0;
        const uint64_t shift = patterns_.code(pattern) - patterns_.code(pattern_[pair]);
        for (size_t use = use_first_[pair]; use < use_first_[pair + 1]; ++use) {
            set &set = sets_[use_[use]];
            const double new_s = set_s(set, set.key + shift, expert, pattern);
            part += set.weight * (new_s - set.value_s);
            set.value_s = new_s, set.key += shift;
        }
        sum += weights_.latency * part;
        work_ += use_first_[pair + 1] - use_first_[pair];
        pattern_[pair] = pattern;
    });
    set_at(expert, server, device);
    sum += remote_cost(remote_ + remote) - remote_cost(remote_);
    remote_ += remote;
    journal_.push_back({expert, server, old_device});
    total_ += sum;
    return sum;
}

inline void state::rollback(size_t mark) {
    while (journal_.size() > mark) {
        const placement_change last = journal_.back();
        put(last.expert, last.server, last.device);
        journal_.resize(journal_.size() - 2);
    }
}

inline void state::restore(const std::vector<uint32_t> &placement) {
    size_t differ = 0;
    for (size_t index = 0; index < placement_.size(); ++index)
        differ += placement_[index] != placement[index] ? 1 : 0;
    if (differ > 64) begin_bulk();
    for (uint32_t expert = 0; expert < experts_; ++expert)
        for (uint32_t server = 0; server < servers_; ++server)
            if (device_at(expert, server) != placement[size_t{expert} * servers_ + server])
                put(expert, server, placement[size_t{expert} * servers_ + server]);
    if (differ > 64) end_bulk();
    forget();
}

}  // namespace moorage::joint
