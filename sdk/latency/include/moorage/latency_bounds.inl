// latency_bounds.inl - upper bounds of gains, for latency.hpp.
#pragma once

#include "latency.hpp"

namespace moorage {

// The rise is a second difference: what a copy of x on n and one of y on m save together, beyond
// what each saves alone. Take their sets one by one, as sums over called servers.
// - Nothing changes for an entry for which x is near or which does not reach n.
// - On n itself x and y share a call. This saves at most the longest time of a server, far_s.
// - If y is now alone at the last resort, y can save that resort's once as well.
// - If no other expert of the set is on n, x is served there apart from the others, or not at all.
//   If x was nowhere, it adds the same to both sums. Otherwise x leaves a shared call. Then y can
//   save at most the time by which x alone takes longer at its old place than on n.
// - If y is nowhere and no expert of the set is on m, y is apart in the same way.
template <class Each>
void latency_model::for_raised(uint32_t expert, uint32_t device, Each visit) const {
    if (use_first_[expert] == use_first_[expert + 1]) return;
    const uint32_t n = server_of(device);
    const uint64_t server_bit = uint64_t{1} << n;
    const double *alone =
        alone_s_.data() + (size_t{model_of(expert)} * devices_ + device) * entries_;
    for (uint64_t u = use_first_[expert]; u < use_first_[expert + 1]; ++u) {
        const missed_set &missed = terms_[use_term_[u]];
        const std::span<const uint32_t> set = term_set(use_term_[u]);
        const uint32_t found_state = missed.found >> (2 * use_position_[u]) & 3;
        const bool is_local = entry_server_[missed.entry] == n;
        if (!is_local && (found_state == found_near || (reach_[missed.entry] & server_bit) == 0))
            continue;
        uint64_t others = 0;
        for (const uint32_t y : set)
            if (y != expert) others |= holders_[y];
        const uint64_t held = others | holders_[expert];
        const size_t key = pair(model_of(expert), missed.entry);
        const bool nearest = set.size() > 8;  // beyond 8 experts each takes its nearest holder,
                                              // which is not the least time
        double apart_s = far_s_[key];
        if (found_state == not_found && (is_local || (others & server_bit) == 0))
            apart_s = 0;
        else if (!is_local && (others & server_bit) == 0)
            apart_s = std::clamp(
                single_s_[size_t{expert} * entries_ + missed.entry] - alone[missed.entry], 0.0,
                far_s_[key]);
        if (nearest) apart_s = far_s_[key];
        const uint32_t nowhere = nowhere_of(missed.found, set.size());
        for (uint32_t i = 0; i < set.size(); ++i) {
            const uint32_t state = missed.found >> (2 * i) & 3;
            if (set[i] == expert || state == found_near) continue;
            visit(set[i], server_bit, missed.weight * far_s_[key]);
            if (apart_s > 0)
                visit(set[i], state == not_found && !nearest ? held & ~server_bit : all_servers,
                      missed.weight * apart_s);
            if (found_state == not_found && nowhere == (1u << 2 * use_position_[u] | 1u << 2 * i))
                visit(set[i], all_servers, missed.weight * last_once_s_[key]);
        }
    }
}

inline double latency_model::gain_first(uint32_t expert, uint32_t device) const {
    const uint32_t model = model_of(expert);
    double sum = 0;
    for (uint32_t e = 0; e < entries_; ++e) {
        const double alone = alone_s_[(size_t{model} * devices_ + device) * entries_ + e];
        if (alone == std::numeric_limits<double>::infinity()) continue;
        const size_t key = pair(model, e), index = size_t{expert} * entries_ + e;
        sum += asked_weight_[index] * (last_each_s_[key] - alone) +
               single_weight_[index] * last_once_s_[key];
    }
    return sum;
}

inline double latency_model::gain_most(uint32_t expert) const {
    double sum = 0;
    for (uint32_t e = 0; e < entries_; ++e)
        sum += asked_weight_[size_t{expert} * entries_ + e] * trip_s_[pair(model_of(expert), e)];
    return sum;
}

// One walk for all servers. In a set, a copy elsewhere saves at most what the expert costs now
// (`worth`): the time with it less the time without it. From this, subtract the expert's time alone
// if no other expert of the set is on the server. If another one is there, subtract the way back
// only.
inline void latency_model::gains_most(uint32_t expert, std::vector<double> &most_s) const {
    const uint32_t model = model_of(expert);
    const double *weight = single_weight_.data() + size_t{expert} * entries_;
    const double *now = single_s_.data() + size_t{expert} * entries_;
    most_s.assign(servers_, 0);
    const auto apart = [&](uint32_t e, uint32_t n) {
        return alone_s_[(size_t{model} * devices_ + server_device_[n]) * entries_ + e];
    };
    for (uint32_t e = 0; e < entries_; ++e) {
        if (weight[e] <= 0 || single_found_[size_t{expert} * entries_ + e] == found_near) continue;
        for (uint32_t n = 0; n < servers_; ++n)
            if (server_device_[n] < server_device_[n + 1])
                most_s[n] += weight[e] * std::max(0.0, now[e] - apart(e, n));
    }
    const uint64_t *codes = code_.data() + size_t{expert} * entries_;
    for (uint64_t u = use_first_[expert], end = use_first_[expert + 1]; u < end; ++u) {
        if (u + 8 < end) {  // with many known times a lookup misses the processor's cache
            const missed_set &next = terms_[use_term_[u + 8]];
            const uint64_t code = codes[next.entry] * place_code_[use_position_[u + 8]];
            __builtin_prefetch(&known_[(next.key - code) >> known_shift_]);
        }
        const uint32_t term = use_term_[u], position = use_position_[u];
        const missed_set &missed = terms_[term];
        const uint32_t found_state = missed.found >> (2 * position) & 3;
        if (found_state == found_near) continue;
        const std::span<const uint32_t> set = term_set(term);
        uint64_t held = 0;
        if (missed.found != 0)
            for (const uint32_t y : set) held |= holders_[y];
        const size_t key = pair(model, missed.entry);
        const uint32_t nowhere = nowhere_of(missed.found, set.size());
        const bool last = nowhere == 1u << 2 * position;
        double worth = last_each_s_[key] + (last ? last_once_s_[key] : 0);
        if (found_state == found_far) {
            // The time without it: as if the expert were nowhere, less the cost of that.
            const uint64_t without = missed.key - codes[missed.entry] * place_code_[position];
            worth += (nowhere == 0 ? last_once_s_[key] : 0) + missed.seconds -
                     known_s(term, without, {none, none, 1u << position});
        }
        const double *call = call_fix_s_.data() + key * servers_;
        const double *back = call_return_s_.data() + key * servers_;
        double *most = most_s.data();
        for (uint32_t n = 0; n < servers_; ++n)
            most[n] += missed.weight * std::max(0.0, worth - call[n] - back[n]);
        for (uint64_t left = held; left != 0; left &= left - 1) {
            const auto n = static_cast<uint32_t>(std::countr_zero(left));
            most[n] += missed.weight *
                       (std::max(0.0, worth - back[n]) - std::max(0.0, worth - call[n] - back[n]));
        }
    }
}

}  // namespace moorage
