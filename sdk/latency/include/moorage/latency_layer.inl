// latency_layer.inl - the time of one layer for one token, for latency.hpp.
#pragma once

#include "latency.hpp"

namespace moorage {

// Time of the experts at positions `served` on one server. Its devices work side by side.
inline double latency_model::compute_s(const sought &of, uint32_t server,
                                       std::span<const uint32_t> served) const {
    double longest = 0;
    for (size_t i = 0; i < served.size(); ++i) {
        const uint32_t device = device_at(of, served[i], server);
        double sum = call_s(device, of.model);
        if (!serial_)
            for (size_t j = 0; j < i; ++j)
                if (device_at(of, served[j], server) == device) sum += call_s(device, of.model);
        longest = std::max(longest, sum);
    }
    return longest;
}

inline double latency_model::server_s(const sought &of, uint32_t server,
                                      std::span<const uint32_t> served) const {
    const size_t at = pair(of.model, of.entry) * servers_ + server;
    return there_s_[at] + compute_s(of, server, served) +
           (each_ ? static_cast<double>(served.size()) : 1.0) * back_s_[at];
}

inline double latency_model::line_s(const sought &of, uint32_t server, size_t count) const {
    const size_t at = pair(of.model, of.entry) * servers_ + server;
    return std::max(there_line_s_[at],
                    (each_ ? static_cast<double>(count) : 1.0) * back_line_s_[at]);
}

// Time if each expert goes to the allowed holder that is nearest for it alone.
inline double latency_model::nearest_s(const sought &of, std::span<const uint32_t> rest,
                                       uint64_t allowed) const {
    std::array<uint32_t, 16> chosen{};
    for (size_t i = 0; i < rest.size(); ++i) {
        double best = std::numeric_limits<double>::infinity();
        for (uint64_t left = of.holders[rest[i]] & allowed; left != 0; left &= left - 1) {
            const auto n = static_cast<uint32_t>(std::countr_zero(left));
            const double alone = server_s(of, n, rest.subspan(i, 1));
            if (alone < best) best = alone, chosen[i] = n;
        }
    }
    double total = 0, lines = 0;
    std::array<uint32_t, 16> served{};
    for (size_t i = 0; i < rest.size(); ++i) {
        size_t count = 0;
        for (size_t j = 0; j < rest.size(); ++j) {
            if (chosen[j] != chosen[i]) continue;
            if (j < i) break;  // its server is already counted
            served[count++] = rest[j];
        }
        if (count == 0) continue;
        const double part = server_s(of, chosen[i], {served.data(), count});
        const double line = shared_ ? line_s(of, chosen[i], count) : 0;
        total = serial_ ? total + part : std::max(total, part - line);
        lines += line;
    }
    return total + lines;
}

// Time of the best set of servers, if each call keeps the others waiting.
inline double latency_model::shared_s(const sought &of, std::span<const uint32_t> rest,
                                      uint64_t all) const {
    double best = nearest_s(of, rest, all);
    if (std::popcount(all) > 6) return best;
    for (uint64_t used = (all - 1) & all; used != 0; used = (used - 1) & all) {
        const bool enough =
            std::ranges::all_of(rest, [&](uint32_t i) { return (of.holders[i] & used) != 0; });
        if (enough) best = std::min(best, nearest_s(of, rest, used));
    }
    return best;
}

// The least time in which servers serve all of `rest`. The loop adds the servers of `all` one by
// one and keeps the least time for every subset of experts that the servers so far serve.
inline double latency_model::assigned_s(const sought &of, std::span<const uint32_t> rest,
                                        uint64_t all) const {
    constexpr double infinity = std::numeric_limits<double>::infinity();
    std::array<double, 256> least, cost;
    const uint32_t full = (1u << rest.size()) - 1;
    std::fill_n(least.begin(), full + 1, infinity);
    least[0] = 0;
    for (uint64_t left = all; left != 0; left &= left - 1) {
        const auto n = static_cast<uint32_t>(std::countr_zero(left));
        uint32_t has = 0;
        for (size_t i = 0; i < rest.size(); ++i)
            has |= static_cast<uint32_t>(of.holders[rest[i]] >> n & 1) << i;
        for (uint32_t part = has; part != 0; part = (part - 1) & has) {
            std::array<uint32_t, 8> served{};
            size_t count = 0;
            for (size_t i = 0; i < rest.size(); ++i)
                if ((part >> i & 1) != 0) served[count++] = rest[i];
            cost[part] = server_s(of, n, {served.data(), count});
        }
        for (uint32_t set = full; set != 0; --set) {
            for (uint32_t part = set & has; part != 0; part = (part - 1) & set & has) {
                const double before = least[set ^ part];
                const double with = serial_ ? before + cost[part] : std::max(before, cost[part]);
                least[set] = std::min(least[set], with);
            }
        }
    }
    return least[full];
}

// Returns `all` without servers that another one can replace at no extra time. The other one has
// all their experts, and neither its call nor its way back is longer. The first of two equal
// servers stays. Requires: times add up and a server's devices are equally fast.
inline uint64_t latency_model::worth_calling(const sought &of, std::span<const uint32_t> rest,
                                             uint64_t all) const {
    const double *call = call_fix_s_.data() + pair(of.model, of.entry) * servers_;
    const double *back = call_return_s_.data() + pair(of.model, of.entry) * servers_;
    std::array<uint32_t, 64> kept, has;
    size_t count = 0;
    for (uint64_t left = all; left != 0; left &= left - 1) {
        const auto n = static_cast<uint32_t>(std::countr_zero(left));
        uint32_t own = 0;
        for (size_t i = 0; i < rest.size(); ++i)
            own |= static_cast<uint32_t>(of.holders[rest[i]] >> n & 1) << i;
        bool stays = true;
        size_t still = 0;
        for (size_t k = 0; k < count; ++k) {
            const uint32_t m = kept[k];
            if (call[m] <= call[n] && back[m] <= back[n] && (own & ~has[k]) == 0) stays = false;
            if (!stays) break;
            if (call[n] <= call[m] && back[n] <= back[m] && (has[k] & ~own) == 0) continue;
            kept[still] = m, has[still++] = has[k];
        }
        if (!stays) continue;
        kept[still] = n, has[still] = own;
        count = still + 1;
    }
    uint64_t out = 0;
    for (size_t k = 0; k < count; ++k) out |= uint64_t{1} << kept[k];
    return out;
}

// The same if times add up and a server's devices are equally fast. The loop goes over sets of used
// servers. Each expert then returns from the used holder with the shortest way back.
inline double latency_model::serial_s(const sought &of, std::span<const uint32_t> rest,
                                      uint64_t all) const {
    constexpr double infinity = std::numeric_limits<double>::infinity();
    const double *call = call_fix_s_.data() + pair(of.model, of.entry) * servers_;
    const double *back = call_return_s_.data() + pair(of.model, of.entry) * servers_;
    double best = infinity;
    for (uint64_t used = all; used != 0; used = (used - 1) & all) {
        double total = 0;
        for (uint64_t left = used; left != 0; left &= left - 1)
            total += call[std::countr_zero(left)];
        for (const uint32_t i : rest) {
            double shortest = infinity;
            for (uint64_t left = used & of.holders[i]; left != 0; left &= left - 1)
                shortest = std::min(shortest, back[std::countr_zero(left)]);
            total += shortest;
            if (total >= best) break;
        }
        best = std::min(best, total);
    }
    return best;
}

// The same: tries all sets of few servers, and of many servers those that are worth calling.
inline double latency_model::added_s(const sought &of, std::span<const uint32_t> rest,
                                     uint64_t all) const {
    if (std::popcount(all) > 3) all = worth_calling(of, rest, all);
    return std::popcount(all) <= 6 ? serial_s(of, rest, all) : assigned_s(of, rest, all);
}

// The same if no expert has two holders, so there is no choice.
inline double latency_model::forced_s(const sought &of, std::span<const uint32_t> rest,
                                      uint64_t all) const {
    const double *call = call_fix_s_.data() + pair(of.model, of.entry) * servers_;
    const double *back = call_return_s_.data() + pair(of.model, of.entry) * servers_;
    double total = 0;
    for (uint64_t left = all; left != 0; left &= left - 1) total += call[std::countr_zero(left)];
    for (const uint32_t i : rest) total += back[std::countr_zero(of.holders[i])];
    return total;
}

// Time of a layer without the home's own messages. Fills `holders` and `found`. Requires: at least
// one expert is missing.
inline double latency_model::layer_s(sought &of) const {
    const uint32_t at = entry_server_[of.entry];
    std::array<uint32_t, 16> near, rest;
    size_t near_count = 0, rest_count = 0;
    double absent = 0;
    uint64_t all = 0;
    bool choice = false;
    for (uint32_t i = 0; i < of.count; ++i) {
        uint64_t holders = holders_[of.experts[i]];
        if ((of.with.mask >> i & 1) != 0) {
            holders = with_change(holders, of.with);
        }
        holders &= reach_[of.entry];
        of.holders[i] = holders;
        if ((holders >> at & 1) != 0) {
            near[near_count++] = i;
            of.found |= uint32_t{found_near} << (2 * i);
        } else if (holders != 0) {
            rest[rest_count++] = i;
            of.found |= uint32_t{found_far} << (2 * i);
            all |= holders;
            choice = choice || (holders & (holders - 1)) != 0;
        } else {
            ++absent;
        }
    }
    const bool simple = serial_ && uniform_[of.model] != 0;
    double total = 0;
    if (near_count != 0)
        total = simple ? call_s(server_device_[at], of.model)
                       : compute_s(of, at, {near.data(), near_count});
    if (rest_count != 0) {
        const std::span<const uint32_t> sought_rest(rest.data(), rest_count);
        double part = 0;
        if (simple && !choice)
            part = forced_s(of, sought_rest, all);
        else if (!choice || rest_count > 8)
            part = nearest_s(of, sought_rest, all);
        else if (shared_)
            part = shared_s(of, sought_rest, all);
        else if (simple)
            part = added_s(of, sought_rest, all);
        else
            part = assigned_s(of, sought_rest, all);
        total = serial_ ? total + part : std::max(total, part);
    }
    if (absent != 0) {
        const size_t key = pair(of.model, of.entry);
        const double part = last_once_s_[key] + absent * last_each_s_[key];
        total = serial_ ? total + part : std::max(total, part);
    }
    return total;
}

inline double latency_model::term_s(uint32_t term, const change &with) const {
    const std::span<const uint32_t> set = term_set(term);
    sought of(model_of(set[0]), terms_[term].entry, set, with);
    return layer_s(of);
}

// Time of an expert that is the only missing one of a layer.
inline latency_model::single latency_model::single_s(uint32_t expert, uint32_t entry,
                                                     const change &with) const {
    const uint32_t model = model_of(expert), at = entry_server_[entry];
    double best = std::numeric_limits<double>::infinity();
    const auto device_of = [&](uint32_t n) {
        return n == with.server ? with.device : serving_[size_t{expert} * servers_ + n];
    };
    if (device_of(at) != none) return {call_s(device_of(at), model), found_near};
    const auto weigh = [&](uint32_t n) {
        const uint32_t device = device_of(n);
        if (device == none) return;
        best = std::min(best, alone_s_[(size_t{model} * devices_ + device) * entries_ + entry]);
    };
    for (size_t word = 0; word < server_words_; ++word)
        for (uint64_t left = holders_[size_t{expert} * server_words_ + word]; left != 0;
             left &= left - 1)
            weigh(static_cast<uint32_t>(word * 64) + static_cast<uint32_t>(std::countr_zero(left)));
    if (with.server != none) weigh(with.server);
    if (best < std::numeric_limits<double>::infinity()) return {best, found_far};
    const size_t key = pair(model, entry);
    return {last_once_s_[key] + last_each_s_[key], not_found};
}

}  // namespace moorage
