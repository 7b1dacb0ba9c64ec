// prism_definition.h - Prism's Algorithms 1 and 2, its leftover rule and Eq. 2, written naively.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <set>
#include <tuple>
#include <vector>

namespace moorage::test {

// An instance with one model. frequency[server][layer][expert].
struct prism_instance {
    std::vector<std::vector<std::vector<double>>> frequency;
    std::vector<int> slots;
    std::vector<uint64_t> memory;
    int servers() const { return static_cast<int>(frequency.size()); }
    int layers() const { return static_cast<int>(frequency[0].size()); }
    int experts() const { return static_cast<int>(frequency[0][0].size()); }
    double f(int n, int l, int e) const {
        return frequency[static_cast<size_t>(n)][static_cast<size_t>(l)][static_cast<size_t>(e)];
    }
};

using count_table = std::vector<std::vector<int>>;           // [server][layer]
using held_table = std::vector<std::vector<std::set<int>>>;  // [server][layer]

inline double naive_entropy(const std::vector<double> &f) {
    double total = 0, bits = 0;
    for (const double frequency : f) total += frequency;
    for (const double frequency : f)
        if (frequency > 0) bits -= frequency / total * std::log2(frequency / total);
    return bits;
}

inline int naive_total(const count_table &counts, int layer) {
    int sum = 0;
    for (const auto &server : counts) sum += server[static_cast<size_t>(layer)];
    return sum;
}

// Algorithm 1 as we read it; nothing if it has no result.
inline std::optional<count_table> naive_counts(const prism_instance &instance) {
    const int servers = instance.servers(), layers = instance.layers(),
              experts = instance.experts();
    count_table counts(instance.frequency.size(),
                       std::vector<int>(instance.frequency[0].size(), 0));
    const auto count_at = [&](int n, int l) -> int & {
        return counts[static_cast<size_t>(n)][static_cast<size_t>(l)];
    };
    const auto unused = [&](int n) {
        int sum = instance.slots[static_cast<size_t>(n)];
        for (int l = 0; l < layers; ++l) sum -= count_at(n, l);
        return sum;
    };
    for (int n = 0; n < servers; ++n) {
        std::vector<double> v;
        double sum = 0;
        for (const auto &layer : instance.frequency[static_cast<size_t>(n)]) {
            v.push_back(naive_entropy(layer));
            sum += v.back();
        }
        for (int l = 0; l < layers; ++l) {
            const double share = sum > 0 ? v[static_cast<size_t>(l)] / sum : 1.0 / layers;
            count_at(n, l) = std::min(
                experts, static_cast<int>(
                             std::floor(instance.slots[static_cast<size_t>(n)] * share + 1e-9)));
        }
    }
    std::vector<int> order;
    for (int n = 0; n < servers; ++n) order.push_back(n);
    std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
        return instance.memory[static_cast<size_t>(a)] > instance.memory[static_cast<size_t>(b)];
    });
    for (int l = 0; l < layers; ++l)
        while (naive_total(counts, l) < experts) {
            bool moved = false;
            for (const int n : order) {
                if (naive_total(counts, l) >= experts) break;
                int giver = 0;
                for (int candidate = 1; candidate < layers; ++candidate)
                    if (naive_total(counts, candidate) > naive_total(counts, giver))
                        giver = candidate;
                if (naive_total(counts, giver) <= experts || count_at(n, giver) == 0 ||
                    count_at(n, l) >= experts)
                    continue;
                --count_at(n, giver), ++count_at(n, l);
                moved = true;
            }
            if (moved) continue;
            const auto takes = std::find_if(order.begin(), order.end(), [&](int n) {
                return unused(n) > 0 && count_at(n, l) < experts;
            });
            if (takes == order.end()) return std::nullopt;
            ++count_at(*takes, l);
        }
    return counts;
}

inline int naive_copies(const held_table &held, int layer, int expert) {
    int sum = 0;
    for (const auto &server : held)
        sum += static_cast<int>(server[static_cast<size_t>(layer)].count(expert));
    return sum;
}

// Algorithm 2 with the readings.
inline held_table naive_assign(const prism_instance &instance, const count_table &counts) {
    held_table held(instance.frequency.size(),
                    std::vector<std::set<int>>(instance.frequency[0].size()));
    for (int l = 0; l < instance.layers(); ++l) {
        const auto held_at = [&](int n) -> std::set<int> & {
            return held[static_cast<size_t>(n)][static_cast<size_t>(l)];
        };
        for (int n = 0; n < instance.servers(); ++n) {
            std::set<std::tuple<double, int>> ranking;
            for (int e = 0; e < instance.experts(); ++e) ranking.insert({-instance.f(n, l, e), e});
            for (const auto &[f, e] : ranking)
                if (static_cast<int>(held_at(n).size()) <
                    counts[static_cast<size_t>(n)][static_cast<size_t>(l)])
                    held_at(n).insert(e);
        }
        for (;;) {
            std::set<std::tuple<int, int>> servers;  // by duplicates
            bool open = false;
            for (int n = 0; n < instance.servers(); ++n) {
                int duplicates = 0;
                for (const int e : held_at(n)) duplicates += naive_copies(held, l, e) > 1;
                servers.insert({duplicates, n});
            }
            for (const auto &[duplicates, n] : servers) {
                std::set<std::tuple<double, int>> incoming, outgoing;
                for (int e = 0; e < instance.experts(); ++e)
                    if (naive_copies(held, l, e) == 0) incoming.insert({-instance.f(n, l, e), e});
                for (const int e : held_at(n))
                    if (naive_copies(held, l, e) > 1) outgoing.insert({instance.f(n, l, e), -e});
                open = open || !incoming.empty();
                if (incoming.empty() || outgoing.empty()) continue;
                held_at(n).erase(-std::get<1>(*outgoing.begin()));
                held_at(n).insert(std::get<1>(*incoming.begin()));
            }
            if (!open) break;
        }
    }
    return held;
}

// Free places go to the experts that a server asks for most and lacks.
inline void naive_fill(const prism_instance &instance, held_table &held) {
    for (int n = 0; n < instance.servers(); ++n) {
        auto &server_held = held[static_cast<size_t>(n)];
        int used = 0;
        for (const auto &layer : server_held) used += static_cast<int>(layer.size());
        std::set<std::tuple<double, int, int>> missing;
        for (int l = 0; l < instance.layers(); ++l)
            for (int e = 0; e < instance.experts(); ++e)
                if (instance.f(n, l, e) > 0 && server_held[static_cast<size_t>(l)].count(e) == 0)
                    missing.insert({-instance.f(n, l, e), l, e});
        for (const auto &[f, l, e] : missing)
            if (used < instance.slots[static_cast<size_t>(n)]) {
                server_held[static_cast<size_t>(l)].insert(e);
                ++used;
            }
    }
}

inline double naive_remote(const prism_instance &instance, const held_table &held) {
    double sum = 0;
    for (int n = 0; n < instance.servers(); ++n)
        for (int l = 0; l < instance.layers(); ++l)
            for (int e = 0; e < instance.experts(); ++e)
                if (held[static_cast<size_t>(n)][static_cast<size_t>(l)].count(e) == 0)
                    sum += instance.f(n, l, e);
    return sum;
}

}  // namespace moorage::test
