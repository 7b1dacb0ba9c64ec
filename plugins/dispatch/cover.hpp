// cover.hpp - chooses the servers that compute a set of items in the least time.
//
// Calls one after another: the least sum of T over the called servers, exact up to 12 items. It
// takes the cheapest server of every subset and the cheapest partition into subsets. T of two
// subsets on one server is never less than T of both together, so a server that occurs twice costs
// nothing. Calls at once: the least maximum of T, then the least sum, exact up to 8 items, over the
// servers one by one. More items are placed one by one in the given order. Each goes where its
// server is done first, or adds least. Equal choices: as found, servers ascending, larger subsets
// first.
//
// Cost for n items and s servers that have some: O(s 2^n + 3^n); at once O(s 3^n) at worst.
#pragma once

#include <array>
#include <bit>
#include <span>

#include "remote.hpp"

namespace remote {

class cover {
public:
    static constexpr uint32_t serial_max = 12, parallel_max = 8;

    void reserve(const moorage::limits &limits) {
        const size_t sets = size_t{1} << std::min(limits.experts, serial_max);
        part_once_ns_.assign(sets, 0);
        part_more_ns_.assign(sets, 0);
        best_ns_.resize(sets);
        best_server_.resize(sets);
        least_ns_.resize(sets);
        choice_.resize(sets);
        served_by_.resize(size_t{1} << std::min(limits.experts, parallel_max));
        calls_.reserve(limits.experts);
    }

    // Writes the devices of `wanted`. Requires: a server at one of `distances` has each of them.
    void assign(const moorage::items &items, std::span<const uint32_t> wanted, uint32_t distances,
                std::span<uint32_t> item_devices) {
        const bool serial = (items.flags & MOORAGE_ITEMS_SERIAL) != 0;
        if (wanted.size() < 2 || wanted.size() > (serial ? serial_max : parallel_max))
            one_by_one(items, wanted, distances, item_devices);
        else if (serial)
            least_sum(items, wanted, distances, item_devices);
        else
            least_maximum(items, wanted, distances, item_devices);
    }

private:
    void one_by_one(const moorage::items &items, std::span<const uint32_t> wanted,
                    uint32_t distances, std::span<uint32_t> item_devices) {
        calls_.clear();
        for (const uint32_t item : wanted) {
            const uint32_t entry = calls_.best(items, item, distances);
            calls_.add(items, entry);
            item_devices[item] = items.host_remote_devices[entry];
        }
    }

    // Calls visit(server, has) for servers at `distances` that have some of `wanted`, ascending.
    // `has` are bits of positions. part_ns() then gives T of any part of them.
    template <class Each>
    void for_servers(const moorage::items &items, std::span<const uint32_t> wanted,
                     uint32_t distances, Each visit) {
        std::array<entries, serial_max> remaining;
        std::array<uint64_t, serial_max> once{}, added{};
        for (size_t i = 0; i < wanted.size(); ++i) remaining[i] = entries_of(items, wanted[i]);
        for (;;) {
            uint32_t server = moorage::none, has = 0;
            for (size_t i = 0; i < wanted.size(); ++i)
                if (!remaining[i].empty())
                    server = std::min(server, items.host_remote_devices[remaining[i].begin]);
            if (server == moorage::none) return;
            for (size_t i = 0; i < wanted.size(); ++i) {
                const uint32_t entry = remaining[i].begin;
                if (remaining[i].empty() || items.host_remote_devices[entry] != server) continue;
                ++remaining[i].begin;
                if (!within(items, entry, distances)) continue;
                once[i] = once_ns(items, entry);
                added[i] = more_ns(items, entry);
                has |= 1u << i;
            }
            if (has == 0) continue;
            for (uint32_t part = has & -has; part != 0; part = (part - has) & has) {
                const auto i = static_cast<size_t>(std::countr_zero(part));
                const uint32_t rest = part & (part - 1);
                part_once_ns_[part] = std::max(part_once_ns_[rest], once[i]);
                part_more_ns_[part] = part_more_ns_[rest] + added[i];
            }
            visit(server, has);
        }
    }
    uint64_t part_ns(uint32_t part) const { return part_once_ns_[part] + part_more_ns_[part]; }

    void least_sum(const moorage::items &items, std::span<const uint32_t> wanted,
                   uint32_t distances, std::span<uint32_t> item_devices) {
        const uint32_t full = (1u << wanted.size()) - 1;
        std::fill_n(best_ns_.begin(), full + 1, unserved_ns);
        for_servers(items, wanted, distances, [&](uint32_t server, uint32_t has) {
            for (uint32_t part = has; part != 0; part = (part - 1) & has) {
                if (part_ns(part) >= best_ns_[part]) continue;
                best_ns_[part] = part_ns(part);
                best_server_[part] = server;
            }
        });
        // The subset with the set's first item, then the least for the rest. The rest never has the
        // very first item.
        least_ns_[0] = 0;
        for (uint32_t set = 2; set <= full; ++set) {
            if ((set & 1) != 0 && set != full) continue;
            const uint32_t others = set & (set - 1);
            least_ns_[set] = unserved_ns;
            for (uint32_t beside = others;; beside = (beside - 1) & others) {
                const uint32_t part = set ^ others ^ beside, rest = set ^ part;
                const uint64_t sum_ns = best_ns_[part] + least_ns_[rest];
                if (sum_ns < least_ns_[set]) {
                    least_ns_[set] = sum_ns;
                    choice_[set] = part;
                }
                if (beside == 0) break;
            }
        }
        for (uint32_t set = full; set != 0; set ^= choice_[set])
            for (uint32_t left = choice_[set]; left != 0; left &= left - 1)
                item_devices[wanted[static_cast<size_t>(std::countr_zero(left))]] =
                    best_server_[choice_[set]];
    }

    void least_maximum(const moorage::items &items, std::span<const uint32_t> wanted,
                       uint32_t distances, std::span<uint32_t> item_devices) {
        const uint32_t full = (1u << wanted.size()) - 1;
        // Sets descend, so the values that are read do not include the server yet.
        std::fill_n(least_ns_.begin(), full + 1, moorage::never);
        least_ns_[0] = 0;
        for_servers(items, wanted, distances, [&](uint32_t, uint32_t has) {
            for (uint32_t set = full; set != 0; --set)
                for (uint32_t part = set & has; part != 0; part = (part - 1) & set & has)
                    least_ns_[set] =
                        std::min(least_ns_[set], std::max(least_ns_[set ^ part], part_ns(part)));
        });
        const uint64_t limit_ns = least_ns_[full];
        std::fill_n(least_ns_.begin(), full + 1, moorage::never);
        least_ns_[0] = 0;
        for_servers(items, wanted, distances, [&](uint32_t server, uint32_t has) {
            for (uint32_t set = full; set != 0; --set)
                for (uint32_t part = set & has; part != 0; part = (part - 1) & set & has)
                    improve(set, part, server, limit_ns);
        });
        for (size_t i = 0; i < wanted.size(); ++i) item_devices[wanted[i]] = served_by_[full][i];
    }
    // Puts the part on the server and leaves the rest, if that is the least sum so far.
    void improve(uint32_t set, uint32_t part, uint32_t server, uint64_t limit_ns) {
        const uint64_t rest_ns = least_ns_[set ^ part];
        if (rest_ns == moorage::never || part_ns(part) > limit_ns ||
            rest_ns + part_ns(part) >= least_ns_[set])
            return;
        least_ns_[set] = rest_ns + part_ns(part);
        served_by_[set] = served_by_[set ^ part];
        for (uint32_t left = part; left != 0; left &= left - 1)
            served_by_[set][static_cast<size_t>(std::countr_zero(left))] = server;
    }

    // For a subset that no server has completely. No sum reaches it.
    static constexpr uint64_t unserved_ns = uint64_t{1} << 62;

    // By set of positions in the wanted items. T of the current server, in two parts.
    std::vector<uint64_t> part_once_ns_, part_more_ns_;
    std::vector<uint64_t> best_ns_;  // the least T of any server
    std::vector<uint32_t> best_server_;
    std::vector<uint64_t> least_ns_;
    std::vector<uint32_t> choice_;  // for the least sum: the part with the first item
    std::vector<std::array<uint32_t, parallel_max>> served_by_;
    calls calls_;
};

}  // namespace remote
