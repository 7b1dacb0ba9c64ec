// latency.inl - definitions of latency.hpp: the demand, the placement, changes of it.
#pragma once

#include "latency.hpp"
#include "latency_block.inl"
#include "latency_bounds.inl"
#include "latency_figures.inl"
#include "latency_known.inl"
#include "latency_layer.inl"

namespace moorage {

inline latency_model::latency_model(const moorage_cluster &cluster, const moorage_demand &demand)
    : cluster_(cluster),
      demand_(demand),
      servers_(cluster.servers),
      devices_(cluster.devices),
      experts_(demand.host_model_first[demand.models]),
      server_words_((size_t{servers_} + 63) / 64),
      device_words_((size_t{devices_} + 63) / 64),
      serial_((cluster.flags & MOORAGE_CALLS_SERIAL) != 0),
      returns_each_((cluster.flags & MOORAGE_RETURNS_EACH) != 0),
      shared_((cluster.flags & MOORAGE_LINKS_SHARED) != 0 && !serial_),
      grouped_(demand.calls != 0 && servers_ <= 64),
      messages_dominate_(serial_ && returns_each_) {
    server_device_.assign(size_t{servers_} + 1, 0);
    for (uint32_t d = 0; d < devices_; ++d) ++server_device_[server_of(d) + 1];
    for (uint32_t n = 0; n < servers_; ++n) server_device_[n + 1] += server_device_[n];
    server_entry_.assign(servers_, none);
    for (uint32_t h = 0; h < cluster.homes; ++h) server_entry_[cluster.host_home_server[h]] = 0;
    for (uint32_t n = 0; n < servers_; ++n) {
        if (server_entry_[n] == none) continue;
        server_entry_[n] = entries_++;
        entry_server_.push_back(n);
    }
    for (uint32_t m = 0; m < demand.models; ++m)
        expert_model_.resize(demand.host_model_first[m + 1], m);
    read_timing();
    read_demand();
    begin_known();
    clear();
    empty_s_ = token_s();
}

inline void latency_model::read_timing() {
    const size_t pairs = size_t{cluster_.models} * entries_;
    there_s_.resize(pairs * servers_), back_s_.resize(pairs * servers_);
    call_fix_s_.resize(pairs * servers_), call_return_s_.resize(pairs * servers_);
    alone_s_.resize(size_t{cluster_.models} * devices_ * entries_);
    last_once_s_.resize(pairs), last_each_s_.resize(pairs);
    if (shared_) there_line_s_.resize(pairs * servers_), back_line_s_.resize(pairs * servers_);
    reach_.assign(entries_, 0);
    trip_s_.resize(pairs), far_s_.resize(pairs);
    for (uint32_t m = 0; m < cluster_.models; ++m) {
        const auto bytes = static_cast<double>(demand_.host_hidden_bytes[m]);
        double longest_s = 0;
        for (uint32_t e = 0; e < entries_; ++e) {
            const uint32_t own_server = entry_server_[e];
            for (uint32_t n = 0; n < servers_; ++n) {
                const size_t there_link = size_t{own_server} * servers_ + n,
                             back_link = size_t{n} * servers_ + own_server;
                double &there_s = there_s_[pair(m, e) * servers_ + n];
                double &back_s = back_s_[pair(m, e) * servers_ + n];
                if (n == own_server) {
                    there_s = back_s = 0;
                } else {
                    there_s = message_s(bytes, cluster_.host_link_bytes_per_s[there_link],
                                        cluster_.host_link_s[there_link]);
                    back_s = message_s(bytes, cluster_.host_link_bytes_per_s[back_link],
                                       cluster_.host_link_s[back_link]);
                }
                if (shared_ && n != own_server) {
                    there_line_s_[pair(m, e) * servers_ + n] =
                        message_s(bytes, cluster_.host_link_bytes_per_s[there_link], 0);
                    back_line_s_[pair(m, e) * servers_ + n] =
                        message_s(bytes, cluster_.host_link_bytes_per_s[back_link], 0);
                }
                const bool reached = there_s + back_s < std::numeric_limits<double>::infinity();
                if (reached && n < 64) reach_[e] |= uint64_t{1} << n;
                if (server_device_[n] < server_device_[n + 1])
                    call_fix_s_[pair(m, e) * servers_ + n] =
                        there_s + call_s(server_device_[n], m) + (returns_each_ ? 0 : back_s);
                call_return_s_[pair(m, e) * servers_ + n] = returns_each_ ? back_s : 0;
                for (uint32_t d = server_device_[n]; d < server_device_[n + 1]; ++d) {
                    const double alone = there_s + call_s(d, m) + back_s;
                    alone_s_[(size_t{m} * devices_ + d) * entries_ + e] = alone;
                    if (reached) longest_s = std::max(longest_s, alone);
                }
            }
        }
        bool uniform = true;
        for (uint32_t d = 1; d < devices_; ++d)
            uniform =
                uniform && (server_of(d) != server_of(d - 1) || call_s(d, m) == call_s(d - 1, m));
        uniform_.push_back(uniform ? 1 : 0);
        absent_s_.push_back(longest_s > 0 ? 2 * longest_s : 1);
        for (uint32_t e = 0; e < entries_; ++e) read_trips(m, e);
    }
}

// The way of last resort, the longest time that an expert can take alone, and how the parts of such
// times compare.
inline void latency_model::read_trips(uint32_t model, uint32_t entry) {
    const size_t key = pair(model, entry);
    last_each_s_[key] = absent_s_[model];
    if (has_cloud()) {
        const uint32_t own_server = entry_server_[entry];
        const auto bytes = static_cast<double>(demand_.host_hidden_bytes[model]);
        const double s = cluster_.host_cloud_s[own_server];
        const double back = message_s(bytes, cluster_.host_cloud_down_bytes_per_s[own_server], s);
        last_once_s_[key] = message_s(bytes, cluster_.host_cloud_up_bytes_per_s[own_server], s) +
                            cluster_.host_cloud_call_s[model] + (returns_each_ ? 0 : back);
        last_each_s_[key] = returns_each_ ? back : 0;
    }
    const double last = last_each_s_[key];
    double longest = last_once_s_[key] + last_each_s_[key];
    for (uint32_t d = 0; d < devices_; ++d) {
        const uint32_t n = server_of(d);
        const double alone = alone_s_[(size_t{model} * devices_ + d) * entries_ + entry];
        const double back = back_s_[key * servers_ + n];
        if (alone == std::numeric_limits<double>::infinity()) continue;
        longest = std::max(longest, alone);
        far_s_[key] = std::max(far_s_[key], alone);
        messages_dominate_ = messages_dominate_ && alone <= last;
        for (uint32_t near = server_device_[entry_server_[entry]];
             n != entry_server_[entry] && near < server_device_[entry_server_[entry] + 1]; ++near)
            messages_dominate_ = messages_dominate_ && call_s(near, model) <= back;
    }
    messages_dominate_ = messages_dominate_ && uniform_[model] != 0;
    trip_s_[key] = longest;
}

inline void latency_model::read_demand() {
    single_weight_.assign(size_t{experts_} * entries_, 0);
    asked_weight_.assign(size_t{experts_} * entries_, 0);
    double tokens_per_s = 0;
    for (uint32_t h = 0; h < demand_.homes; ++h) tokens_per_s += demand_.host_home_tokens_per_s[h];
    std::vector<uint32_t> missing;
    for (uint32_t h = 0; h < demand_.homes; ++h) {
        home_weight_.push_back(tokens_per_s > 0 ? demand_.host_home_tokens_per_s[h] / tokens_per_s
                                                : 1.0 / demand_.homes);
        if (grouped_)
            read_calls(h, home_weight_.back(), missing);
        else
            read_constant(h, home_weight_.back());
    }
    for (uint32_t x = 0; !grouped_ && x < experts_; x += block_experts)
        for (uint32_t h = 0; h < demand_.homes; ++h)
            read_frequencies(h, x, std::min(experts_, x + block_experts));
    index_terms();
}

// Time between a home and its server if the home misses that many experts of a layer.
inline double latency_model::base_s(uint32_t home, uint32_t model, size_t missing) const {
    const auto bytes = static_cast<double>(demand_.host_hidden_bytes[model]);
    return bytes / cluster_.host_home_up_bytes_per_s[home] +
           (returns_each_ ? static_cast<double>(missing) : 1.0) * bytes /
               cluster_.host_home_down_bytes_per_s[home];
}

inline void latency_model::read_calls(uint32_t home, double weight,
                                      std::vector<uint32_t> &missing) {
    const uint32_t entry = server_entry_[cluster_.host_home_server[home]];
    for (uint64_t c = demand_.host_home_first_call[home];
         c < demand_.host_home_first_call[home + 1]; ++c) {
        const uint32_t group = demand_.host_call_group[c];
        const double share = weight * demand_.host_call_share[c];
        const uint64_t begin = demand_.host_group_first[group];
        const uint64_t end = demand_.host_group_first[group + 1];
        if (begin == end) continue;
        missing.clear();
        for (uint64_t i = begin; i < end; ++i)
            if (!held(home, demand_.host_group_experts[i]))
                missing.push_back(demand_.host_group_experts[i]);
        const uint32_t model = model_of(demand_.host_group_experts[begin]);
        if (missing.empty()) {
            constant_s_ +=
                share * cluster_.host_home_call_s[size_t{home} * cluster_.models + model];
            continue;
        }
        constant_s_ += share * base_s(home, model, missing.size());
        for (const uint32_t expert : missing)
            asked_weight_[size_t{expert} * entries_ + entry] += share;
        if (missing.size() > 1 && missing.size() <= 16) {
            add_term(entry, missing, share);
            continue;
        }
        for (const uint32_t expert : missing)
            single_weight_[size_t{expert} * entries_ + entry] += share;
    }
}

// The part that no placement changes.
inline void latency_model::read_constant(uint32_t home, double weight) {
    const double *frequency = demand_.host_frequency + size_t{home} * experts_;
    double sum = constant_s_;
    for (uint32_t m = 0; m < demand_.models; ++m) {
        const double alone_s = cluster_.host_home_call_s[size_t{home} * cluster_.models + m];
        const double base = base_s(home, m, 1);
        for (uint32_t x = demand_.host_model_first[m]; x < demand_.host_model_first[m + 1]; ++x) {
            if (frequency[x] <= 0) continue;
            const double share = weight * frequency[x];
            sum += held(home, x) ? share * alone_s / std::max(1u, demand_.host_model_top_k[m])
                                 : share * base;
        }
    }
    constant_s_ = sum;
}

inline void latency_model::read_frequencies(uint32_t home, uint32_t begin, uint32_t end) {
    const double *frequency = demand_.host_frequency + size_t{home} * experts_;
    const uint32_t entry = server_entry_[cluster_.host_home_server[home]];
    for (uint32_t x = begin; x < end; ++x) {
        if (frequency[x] <= 0 || held(home, x)) continue;
        const double share = home_weight_[home] * frequency[x];
        single_weight_[size_t{x} * entries_ + entry] += share;
        asked_weight_[size_t{x} * entries_ + entry] += share;
    }
}

// The place of the set in the table of terms, whether it is there or not (linear probing).
inline size_t latency_model::term_slot(uint32_t entry, std::span<const uint32_t> missing) const {
    uint64_t hash = entry;
    for (const uint32_t expert : missing) hash = (hash ^ expert) * 0x9e3779b97f4a7c15ull;
    size_t slot = (hash ^ hash >> 32) & (term_slots_.size() - 1);
    for (; term_slots_[slot] != none; slot = (slot + 1) & (term_slots_.size() - 1)) {
        const uint32_t term = term_slots_[slot];
        if (terms_[term].entry == entry && std::ranges::equal(term_set(term), missing)) break;
    }
    return slot;
}

inline void latency_model::grow_slots() {
    term_slots_.assign(std::max<size_t>(1024, 4 * std::bit_ceil(terms_.size() + 1)), none);
    for (uint32_t t = 0; t < terms_.size(); ++t)
        term_slots_[term_slot(terms_[t].entry, term_set(t))] = t;
}

// Homes that enter through one server and miss the same experts differ in weight only.
inline void latency_model::add_term(uint32_t entry, std::span<const uint32_t> missing,
                                    double weight) {
    if (term_slots_.size() < 2 * (terms_.size() + 1)) grow_slots();
    const size_t slot = term_slot(entry, missing);
    if (term_slots_[slot] != none) {
        terms_[term_slots_[slot]].weight += weight;
        return;
    }
    term_slots_[slot] = static_cast<uint32_t>(terms_.size());
    terms_.push_back({.weight = weight, .entry = entry});
    term_experts_.insert(term_experts_.end(), missing.begin(), missing.end());
    term_first_.push_back(term_experts_.size());
}

// Puts the sets of one layer side by side: they are used together, and there are many.
inline void latency_model::sort_terms() {
    std::vector<uint32_t> layer_of;  // [X]
    uint32_t layers = 0;
    for (uint32_t m = 0; m < demand_.models; ++m)
        for (uint32_t l = 0; l < demand_.host_model_layers[m]; ++l, ++layers)
            layer_of.resize(layer_of.size() + demand_.host_model_experts[m], layers);
    const auto count = static_cast<uint32_t>(terms_.size());
    std::vector<uint32_t> next(layers + 1, 0), order(count);
    for (uint32_t t = 0; t < count; ++t) ++next[layer_of[term_experts_[term_first_[t]]] + 1];
    for (uint32_t l = 0; l < layers; ++l) next[l + 1] += next[l];
    for (uint32_t t = 0; t < count; ++t) order[next[layer_of[term_experts_[term_first_[t]]]]++] = t;
    std::vector<uint64_t> first{0};
    std::vector<uint32_t> experts;
    std::vector<missed_set> sorted;
    first.reserve(count + 1), sorted.reserve(count);
    experts.reserve(term_experts_.size());
    for (const uint32_t t : order) {
        const std::span<const uint32_t> set = term_set(t);
        experts.insert(experts.end(), set.begin(), set.end());
        first.push_back(experts.size());
        sorted.push_back(terms_[t]);
    }
    term_first_.swap(first), term_experts_.swap(experts), terms_.swap(sorted);
}

inline void latency_model::index_terms() {
    term_slots_ = {};
    sort_terms();
    use_first_.assign(size_t{experts_} + 1, 0);
    for (const uint32_t expert : term_experts_) ++use_first_[expert + 1];
    for (uint32_t x = 0; x < experts_; ++x) use_first_[x + 1] += use_first_[x];
    use_term_.resize(term_experts_.size()), use_position_.resize(term_experts_.size());
    std::vector<uint64_t> next(use_first_.begin(), use_first_.end() - 1);
    for (uint32_t t = 0; t < terms_.size(); ++t) {
        for (uint64_t i = term_first_[t]; i < term_first_[t + 1]; ++i) {
            const uint64_t use = next[term_experts_[i]]++;
            use_term_[use] = t;
            use_position_[use] = static_cast<uint32_t>(i - term_first_[t]);
        }
    }
}

template <class Each>
void latency_model::for_sets(Each visit) const {
    for (uint32_t t = 0; t < terms_.size(); ++t)
        visit(entry_server_[terms_[t].entry], terms_[t].weight, term_set(t));
}

// ---- the placement ---------------------------------------------------------------------------

inline void latency_model::clear() {
    copies_.assign(experts_ * device_words_, 0);
    holders_.assign(experts_ * server_words_, 0);
    serving_.assign(size_t{experts_} * servers_, none);
    single_s_.resize(size_t{experts_} * entries_);
    single_found_.resize(single_s_.size());
    for (uint32_t x = 0; x < experts_; ++x) set_singles(x);
    if (grouped_) code_.assign(single_s_.size(), 0);
    for (uint32_t t = 0; t < terms_.size(); ++t) {  // no expert is placed
        const std::span<const uint32_t> set = term_set(t);
        const size_t key = pair(model_of(set[0]), terms_[t].entry);
        terms_[t].seconds = last_once_s_[key] + static_cast<double>(set.size()) * last_each_s_[key];
        terms_[t].key = mixed(key * 17 + set.size());
        terms_[t].found = 0;
    }
}

inline uint32_t latency_model::fastest_copy(uint32_t expert, uint32_t server,
                                            uint32_t except) const {
    uint32_t best = none;
    for (uint32_t d = server_device_[server]; d < server_device_[server + 1]; ++d)
        if (d != except && has_copy(expert, d) && better(d, best, model_of(expert))) best = d;
    return best;
}

// single_s() of every entry. The loop goes over holders, so memory is read in order.
inline void latency_model::set_singles(uint32_t expert) {
    const uint32_t model = model_of(expert);
    const uint32_t *serving = serving_.data() + size_t{expert} * servers_;
    double *now = single_s_.data() + size_t{expert} * entries_;
    uint8_t *found = single_found_.data() + size_t{expert} * entries_;
    std::fill_n(now, entries_, std::numeric_limits<double>::infinity());
    for (size_t word = 0; word < server_words_; ++word)
        for (uint64_t left = holders_[size_t{expert} * server_words_ + word]; left != 0;
             left &= left - 1) {
            const size_t n = word * 64 + static_cast<size_t>(std::countr_zero(left));
            const double *alone =
                alone_s_.data() + (size_t{model} * devices_ + serving[n]) * entries_;
            for (uint32_t e = 0; e < entries_; ++e) now[e] = std::min(now[e], alone[e]);
        }
    for (uint32_t e = 0; e < entries_; ++e) {
        const uint32_t near = serving[entry_server_[e]];
        const size_t key = pair(model, e);
        found[e] = near != none ? found_near : found_far;
        if (near != none) {
            now[e] = call_s(near, model);
        } else if (!(now[e] < std::numeric_limits<double>::infinity())) {
            now[e] = last_once_s_[key] + last_each_s_[key];
            found[e] = not_found;
        }
    }
}

// Called after a change of the expert's holders.
inline void latency_model::refresh(uint32_t expert) {
    set_singles(expert);
    if (use_first_[expert] != use_first_[expert + 1]) move_terms(expert, /*at_once=*/true);
}

inline void latency_model::add(uint32_t expert, uint32_t device) {
    assert(expert < experts_ && device < devices_);
    const uint32_t n = server_of(device);
    uint32_t &serving = serving_[size_t{expert} * servers_ + n];
    copies_[size_t{expert} * device_words_ + device / 64] |= uint64_t{1} << (device % 64);
    if (!better(device, serving, model_of(expert))) return;
    serving = device;
    holders_[size_t{expert} * server_words_ + n / 64] |= uint64_t{1} << (n % 64);
    refresh(expert);
}

inline void latency_model::remove(uint32_t expert, uint32_t device) {
    assert(expert < experts_ && device < devices_);
    const uint32_t n = server_of(device);
    uint32_t &serving = serving_[size_t{expert} * servers_ + n];
    copies_[size_t{expert} * device_words_ + device / 64] &= ~(uint64_t{1} << (device % 64));
    if (serving != device) return;
    serving = fastest_copy(expert, n, device);
    if (serving == none)
        holders_[size_t{expert} * server_words_ + n / 64] &= ~(uint64_t{1} << (n % 64));
    refresh(expert);
}

// Sets the holders first, then once per expert what follows from them.
inline void latency_model::assign(std::span<const moorage_copy> copies) {
    clear();
    std::vector<uint8_t> moved(experts_, 0);
    for (const moorage_copy &copy : copies) {
        assert(copy.expert < experts_ && copy.device < devices_);
        const uint32_t n = server_of(copy.device);
        uint32_t &serving = serving_[size_t{copy.expert} * servers_ + n];
        copies_[size_t{copy.expert} * device_words_ + copy.device / 64] |= uint64_t{1}
                                                                           << (copy.device % 64);
        if (!better(copy.device, serving, model_of(copy.expert))) continue;
        serving = copy.device, moved[copy.expert] = 1;
        holders_[size_t{copy.expert} * server_words_ + n / 64] |= uint64_t{1} << (n % 64);
    }
    for (uint32_t x = 0; x < experts_; ++x) {
        if (moved[x] == 0) continue;
        set_singles(x);
        if (use_first_[x] != use_first_[x + 1]) move_terms(x, /*at_once=*/false);
    }
    for (uint32_t t = 0; t < terms_.size(); ++t) terms_[t].seconds = known_s(t, terms_[t].key, {});
}

inline std::vector<moorage_copy> latency_model::copies() const {
    std::vector<moorage_copy> list;
    for (uint32_t x = 0; x < experts_; ++x)
        for (size_t word = 0; word < device_words_; ++word)
            for (uint64_t left = copies_[x * device_words_ + word]; left != 0; left &= left - 1)
                list.push_back({x, static_cast<uint32_t>(word * 64) +
                                       static_cast<uint32_t>(std::countr_zero(left))});
    return list;
}

inline double latency_model::token_s() const {
    double sum = constant_s_;
    for (size_t i = 0; i < single_weight_.size(); ++i)
        if (single_weight_[i] > 0) sum += single_weight_[i] * single_s_[i];
    for (size_t t = 0; t < terms_.size(); ++t) sum += terms_[t].weight * terms_[t].seconds;
    return sum;
}

// ---- changes ---------------------------------------------------------------------------------

// Seconds that the change saves in layers that miss this expert alone.
inline double latency_model::singles_difference(uint32_t expert, const change &deviation) const {
    const double *weight = single_weight_.data() + size_t{expert} * entries_;
    const double *now = single_s_.data() + size_t{expert} * entries_;
    double sum = 0;
    // One more copy, or a faster one: the holders so far can still serve.
    if (deviation.device != none &&
        better(deviation.device, serving_[size_t{expert} * servers_ + deviation.server],
               model_of(expert))) {
        const double *alone =
            alone_s_.data() + (size_t{model_of(expert)} * devices_ + deviation.device) * entries_;
        const uint8_t *found = single_found_.data() + size_t{expert} * entries_;
        for (uint32_t e = 0; e < entries_; ++e) {
            // An expert found near stays so, except if this server gets a faster device.
            const bool is_local = entry_server_[e] == deviation.server;
            if (weight[e] <= 0 || (found[e] == found_near && !is_local)) continue;
            const bool kept = found[e] == found_far && !is_local;
            const double new_s = kept ? std::min(now[e], alone[e]) : alone[e];
            if (new_s < std::numeric_limits<double>::infinity())
                sum += weight[e] * (now[e] - new_s);
        }
        return sum;
    }
    for (uint32_t e = 0; e < entries_; ++e)
        if (weight[e] > 0) sum += weight[e] * (now[e] - single_s(expert, e, deviation).seconds);
    return sum;
}

// Seconds that a set saves if its expert at `position` comes to a server that lacks it, in the
// plain case: the expert was nowhere, and no other server computes for the set. Most cases of a
// search are plain. The result is NaN for the others.
inline double latency_model::plain_difference(uint32_t term, uint32_t position,
                                              uint32_t server) const {
    constexpr uint64_t near_bits = 0xaaaaaaaa, far_bits = 0x55555555;
    const missed_set &set = terms_[term];
    const uint32_t entry = set.entry, found = set.found;
    const uint32_t found_state = found >> (2 * position) & 3;
    const bool is_local = entry_server_[entry] == server;
    if (!is_local && (found_state == found_near || (reach_[entry] >> server & 1) == 0)) return 0;
    if (found_state != not_found || (!is_local && (found & far_bits) != 0))
        return std::numeric_limits<double>::quiet_NaN();
    const uint32_t model = model_of(term_experts_[term_first_[term]]);
    const size_t key = pair(model, entry);
    const bool only = nowhere_of(found, term_set(term).size()) == 1u << 2 * position;
    const double saved = last_each_s_[key] + (only ? last_once_s_[key] : 0);
    if (!is_local)
        return saved - call_fix_s_[key * servers_ + server] -
               call_return_s_[key * servers_ + server];
    return saved - ((found & near_bits) == 0 ? call_s(server_device_[server], model) : 0);
}

inline double latency_model::terms_difference(uint32_t expert, const change &deviation) const {
    if (use_first_[expert] == use_first_[expert + 1]) return 0;
    double sum = 0;
    const bool plain = serial_ && uniform_[model_of(expert)] != 0 && deviation.device != none &&
                       !holds(expert, deviation.server);
    std::array<uint64_t, 64> shift{};
    for (uint32_t e = 0; e < entries_; ++e)
        shift[e] = code_with(expert, e, deviation) - code_[size_t{expert} * entries_ + e];
    // With many known times, a lookup misses the processor's cache. So the time of the eighth set
    // ahead is fetched early.
    const uint64_t end = use_first_[expert + 1];
    const uint64_t fetched = known_.size() > size_t{1} << 17 && end > 8 ? end - 8 : 0;
    const uint32_t *const terms = use_term_.data(), *const positions = use_position_.data();
    const missed_set *const sets = terms_.data();
    for (uint64_t u = use_first_[expert]; u < end; ++u) {
        const uint32_t position = positions[u];
        const missed_set &set = sets[terms[u]];
        if (u < fetched) {
            const missed_set &next = sets[terms[u + 8]];
            const uint64_t key = next.key + shift[next.entry] * place_code_[positions[u + 8]];
            __builtin_prefetch(&known_[key >> known_shift_]);
        }
        if (plain) {
            const double saved = plain_difference(terms[u], position, deviation.server);
            if (saved == saved) {
                sum += set.weight * saved;
                continue;
            }
        }
        const uint64_t moved = shift[set.entry];
        if (moved == 0) continue;
        change set_deviation = deviation;
        set_deviation.mask = 1u << position;
        const uint64_t key = set.key + moved * place_code_[position];
        sum += set.weight * (set.seconds - known_s(terms[u], key, set_deviation));
    }
    return sum;
}

inline double latency_model::gain(uint32_t expert, uint32_t device) const {
    const uint32_t n = server_of(device);
    if (!better(device, serving_[size_t{expert} * servers_ + n], model_of(expert))) return 0;
    const change deviation{n, device, 0};
    return singles_difference(expert, deviation) + terms_difference(expert, deviation);
}

inline double latency_model::loss(uint32_t expert, uint32_t device) const {
    const uint32_t n = server_of(device);
    if (serving_[size_t{expert} * servers_ + n] != device) return 0;
    const change deviation{n, fastest_copy(expert, n, device), 0};
    return -(singles_difference(expert, deviation) + terms_difference(expert, deviation));
}

inline double latency_model::gain_last(uint32_t expert, uint32_t device) const {
    const uint32_t n = server_of(device);
    if (!better(device, serving_[size_t{expert} * servers_ + n], model_of(expert))) return 0;
    double sum = singles_difference(expert, {n, device, 0});
    for (uint64_t u = use_first_[expert]; u < use_first_[expert + 1]; ++u) {
        const uint32_t term = use_term_[u];
        const uint32_t full_mask = (1u << term_set(term).size()) - 1;
        const change without_copy{n, device, full_mask & ~(1u << use_position_[u])},
            with_copy{n, device, full_mask};
        sum += terms_[term].weight * (term_s(term, without_copy) - term_s(term, with_copy));
    }
    return sum;
}

}  // namespace moorage
