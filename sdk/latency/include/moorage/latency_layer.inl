// latency_layer.inl - the time of one layer for one token, for latency.hpp.
#pragma once

#include "latency.hpp"

namespace moorage {

// Time of the experts at positions `served` on one server. Its devices work side by side.
inline double latency_model::compute_s(const missed_experts &missed, uint32_t server,
                                       std::span<const uint32_t> served) const {
    double longest = 0;
    for (size_t i = 0; i < served.size(); ++i) {
        const uint32_t device = device_at(missed, served[i], server);
        double sum = call_s(device, missed.model);
        if (!serial_)
            for (size_t j = 0; j < i; ++j)
                if (device_at(missed, served[j], server) == device)
                    sum += call_s(device, missed.model);
        longest = std::max(longest, sum);
    }
    return longest;
}

inline double latency_model::server_s(const missed_experts &missed, uint32_t server,
                                      std::span<const uint32_t> served) const {
    const size_t link_index = pair(missed.model, missed.entry) * servers_ + server;
    return there_s_[link_index] + compute_s(missed, server, served) +
           (returns_each_ ? static_cast<double>(served.size()) : 1.0) * back_s_[link_index];
}

inline double latency_model::line_s(const missed_experts &missed, uint32_t server,
                                    size_t count) const {
    const size_t link_index = pair(missed.model, missed.entry) * servers_ + server;
    return std::max(there_line_s_[link_index],
                    (returns_each_ ? static_cast<double>(count) : 1.0) * back_line_s_[link_index]);
}

// Time if each expert goes to the allowed holder that is nearest for it alone.
inline double latency_model::nearest_s(const missed_experts &missed, std::span<const uint32_t> rest,
                                       uint64_t allowed) const {
    std::array<uint32_t, 16> chosen{};
    for (size_t i = 0; i < rest.size(); ++i) {
        double best = std::numeric_limits<double>::infinity();
        for (uint64_t left = missed.holders[rest[i]] & allowed; left != 0; left &= left - 1) {
            const auto n = static_cast<uint32_t>(std::countr_zero(left));
            const double alone = server_s(missed, n, rest.subspan(i, 1));
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
        const double part = server_s(missed, chosen[i], {served.data(), count});
        const double line = shared_ ? line_s(missed, chosen[i], count) : 0;
        total = serial_ ? total + part : std::max(total, part - line);
        lines += line;
    }
    return total + lines;
}

// Time of the best set of servers, if each call keeps the others waiting.
inline double latency_model::shared_s(const missed_experts &missed, std::span<const uint32_t> rest,
                                      uint64_t servers) const {
    double best = nearest_s(missed, rest, servers);
    if (std::popcount(servers) > 6) return best;
    for (uint64_t used = (servers - 1) & servers; used != 0; used = (used - 1) & servers) {
        const bool enough =
            std::ranges::all_of(rest, [&](uint32_t i) { return (missed.holders[i] & used) != 0; });
        if (enough) best = std::min(best, nearest_s(missed, rest, used));
    }
    return best;
}

// The least time in which servers serve all of `rest`. The loop adds `servers` one by one and keeps
// the least time for every subset of experts that the servers so far serve.
inline double latency_model::assigned_s(const missed_experts &missed,
                                        std::span<const uint32_t> rest, uint64_t servers) const {
    constexpr double infinity = std::numeric_limits<double>::infinity();
    std::array<double, 256> least, cost;
    const uint32_t full = (1u << rest.size()) - 1;
    std::fill_n(least.begin(), full + 1, infinity);
    least[0] = 0;
    for (uint64_t left = servers; left != 0; left &= left - 1) {
        const auto n = static_cast<uint32_t>(std::countr_zero(left));
        uint32_t has = 0;
        for (size_t i = 0; i < rest.size(); ++i)
            has |= static_cast<uint32_t>(missed.holders[rest[i]] >> n & 1) << i;
        for (uint32_t part = has; part != 0; part = (part - 1) & has) {
            std::array<uint32_t, 8> served{};
            size_t count = 0;
            for (size_t i = 0; i < rest.size(); ++i)
                if ((part >> i & 1) != 0) served[count++] = rest[i];
            cost[part] = server_s(missed, n, {served.data(), count});
        }
        for (uint32_t set = full; set != 0; --set) {
            for (uint32_t part = set & has; part != 0; part = (part - 1) & set & has) {
                const double rest_s = least[set ^ part];
                const double combined =
                    serial_ ? rest_s + cost[part] : std::max(rest_s, cost[part]);
                least[set] = std::min(least[set], combined);
            }
        }
    }
    return least[full];
}

// Returns `servers` without those that another one can replace at no extra time. The other one
// has all their experts, and neither its call nor its way back is longer. The first of two equal
// servers stays. Requires: times add up and a server's devices are equally fast.
inline uint64_t latency_model::worth_calling(const missed_experts &missed,
                                             std::span<const uint32_t> rest,
                                             uint64_t servers) const {
    const double *call = call_fix_s_.data() + pair(missed.model, missed.entry) * servers_;
    const double *back = call_return_s_.data() + pair(missed.model, missed.entry) * servers_;
    std::array<uint32_t, 64> kept, has;
    size_t count = 0;
    for (uint64_t left = servers; left != 0; left &= left - 1) {
        const auto n = static_cast<uint32_t>(std::countr_zero(left));
        uint32_t held = 0;
        for (size_t i = 0; i < rest.size(); ++i)
            held |= static_cast<uint32_t>(missed.holders[rest[i]] >> n & 1) << i;
        bool stays = true;
        size_t kept_count = 0;
        for (size_t k = 0; k < count; ++k) {
            const uint32_t m = kept[k];
            if (call[m] <= call[n] && back[m] <= back[n] && (held & ~has[k]) == 0) stays = false;
            if (!stays) break;
            if (call[n] <= call[m] && back[n] <= back[m] && (has[k] & ~held) == 0) continue;
            kept[kept_count] = m, has[kept_count++] = has[k];
        }
        if (!stays) continue;
        kept[kept_count] = n, has[kept_count] = held;
        count = kept_count + 1;
    }
    uint64_t worthwhile = 0;
    for (size_t k = 0; k < count; ++k) worthwhile |= uint64_t{1} << kept[k];
    return worthwhile;
}

// The same if times add up and a server's devices are equally fast. The loop goes over sets of used
// servers. Each expert then returns from the used holder with the shortest way back.
inline double latency_model::serial_s(const missed_experts &missed, std::span<const uint32_t> rest,
                                      uint64_t servers) const {
    constexpr double infinity = std::numeric_limits<double>::infinity();
    const double *call = call_fix_s_.data() + pair(missed.model, missed.entry) * servers_;
    const double *back = call_return_s_.data() + pair(missed.model, missed.entry) * servers_;
    double best = infinity;
    for (uint64_t used = servers; used != 0; used = (used - 1) & servers) {
        double total = 0;
        for (uint64_t left = used; left != 0; left &= left - 1)
            total += call[std::countr_zero(left)];
        for (const uint32_t i : rest) {
            double shortest = infinity;
            for (uint64_t left = used & missed.holders[i]; left != 0; left &= left - 1)
                shortest = std::min(shortest, back[std::countr_zero(left)]);
            total += shortest;
            if (total >= best) break;
        }
        best = std::min(best, total);
    }
    return best;
}

// The same: tries all sets of few servers, and of many servers those that are worth calling.
inline double latency_model::added_s(const missed_experts &missed, std::span<const uint32_t> rest,
                                     uint64_t servers) const {
    if (std::popcount(servers) > 3) servers = worth_calling(missed, rest, servers);
    return std::popcount(servers) <= 6 ? serial_s(missed, rest, servers)
                                       : assigned_s(missed, rest, servers);
}

// The same if no expert has two holders, so there is no choice.
inline double latency_model::forced_s(const missed_experts &missed, std::span<const uint32_t> rest,
                                      uint64_t servers) const {
    const double *call = call_fix_s_.data() + pair(missed.model, missed.entry) * servers_;
    const double *back = call_return_s_.data() + pair(missed.model, missed.entry) * servers_;
    double total = 0;
    for (uint64_t left = servers; left != 0; left &= left - 1)
        total += call[std::countr_zero(left)];
    for (const uint32_t i : rest) total += back[std::countr_zero(missed.holders[i])];
    return total;
}

// Time of a layer without the home's own messages. Fills `holders` and `found`. Requires: at least
// one expert is missing.
inline double latency_model::layer_s(missed_experts &missed) const {
    const uint32_t own_server = entry_server_[missed.entry];
    std::array<uint32_t, 16> near, rest;
    size_t near_count = 0, rest_count = 0;
    double absent = 0;
    uint64_t servers = 0;
    bool choice = false;
    for (uint32_t i = 0; i < missed.count; ++i) {
        uint64_t holders = holders_[missed.experts[i]];
        if ((missed.deviation.mask >> i & 1) != 0) {
            holders = with_change(holders, missed.deviation);
        }
        holders &= reach_[missed.entry];
        missed.holders[i] = holders;
        if ((holders >> own_server & 1) != 0) {
            near[near_count++] = i;
            missed.found |= uint32_t{found_near} << (2 * i);
        } else if (holders != 0) {
            rest[rest_count++] = i;
            missed.found |= uint32_t{found_far} << (2 * i);
            servers |= holders;
            choice = choice || (holders & (holders - 1)) != 0;
        } else {
            ++absent;
        }
    }
    const bool simple = serial_ && uniform_[missed.model] != 0;
    double total = 0;
    if (near_count != 0)
        total = simple ? call_s(server_device_[own_server], missed.model)
                       : compute_s(missed, own_server, {near.data(), near_count});
    if (rest_count != 0) {
        const std::span<const uint32_t> sought_rest(rest.data(), rest_count);
        double part = 0;
        if (simple && !choice)
            part = forced_s(missed, sought_rest, servers);
        else if (!choice || rest_count > 8)
            part = nearest_s(missed, sought_rest, servers);
        else if (shared_)
            part = shared_s(missed, sought_rest, servers);
        else if (simple)
            part = added_s(missed, sought_rest, servers);
        else
            part = assigned_s(missed, sought_rest, servers);
        total = serial_ ? total + part : std::max(total, part);
    }
    if (absent != 0) {
        const size_t key = pair(missed.model, missed.entry);
        const double part = last_once_s_[key] + absent * last_each_s_[key];
        total = serial_ ? total + part : std::max(total, part);
    }
    return total;
}

inline double latency_model::term_s(uint32_t term, const change &deviation) const {
    const std::span<const uint32_t> set = term_set(term);
    missed_experts missed(model_of(set[0]), terms_[term].entry, set, deviation);
    return layer_s(missed);
}

// Time of an expert that is the only missing one of a layer.
inline latency_model::single latency_model::single_s(uint32_t expert, uint32_t entry,
                                                     const change &deviation) const {
    const uint32_t model = model_of(expert), own_server = entry_server_[entry];
    double best = std::numeric_limits<double>::infinity();
    const auto device_of = [&](uint32_t n) {
        return n == deviation.server ? deviation.device : serving_[size_t{expert} * servers_ + n];
    };
    if (device_of(own_server) != none) return {call_s(device_of(own_server), model), found_near};
    const auto weigh = [&](uint32_t n) {
        const uint32_t device = device_of(n);
        if (device == none) return;
        best = std::min(best, alone_s_[(size_t{model} * devices_ + device) * entries_ + entry]);
    };
    for (size_t word = 0; word < server_words_; ++word)
        for (uint64_t left = holders_[size_t{expert} * server_words_ + word]; left != 0;
             left &= left - 1)
            weigh(static_cast<uint32_t>(word * 64) + static_cast<uint32_t>(std::countr_zero(left)));
    if (deviation.server != none) weigh(deviation.server);
    if (best < std::numeric_limits<double>::infinity()) return {best, found_far};
    const size_t key = pair(model, entry);
    return {last_once_s_[key] + last_each_s_[key], not_found};
}

}  // namespace moorage
