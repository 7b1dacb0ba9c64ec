// remote.hpp - the servers that have an absent expert, and the times of calls to them.
//
// A server that computes several items of a step takes T = the largest of their `once` + the sum of
// their (remote - once), as dispatch.h says. If servers are called at once, the step waits for the
// largest T. If they are called one after another (MOORAGE_ITEMS_SERIAL), it waits for the sum.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include <moorage/moorage.hpp>

namespace remote {

// Entries of one item in the host_remote_* arrays; none without servers.
struct entries {
    uint32_t begin, end;
    bool empty() const { return begin == end; }
};
inline entries entries_of(const moorage::items &items, uint32_t item) {
    if (!items.host_remote_first) return {0, 0};
    return {items.host_remote_first[item], items.host_remote_first[item + 1]};
}

// Whether GPU or CPU of this host can compute the item: it is here or can be loaded.
inline bool runs_here(const moorage::items &items, uint32_t item) {
    return items.host_missing[item] == 0 || items.host_load_ns[item] != moorage::never;
}

// The entry with the least time for the item alone; ties: smaller server. None if there is none.
inline uint32_t nearest(const moorage::items &items, uint32_t item) {
    uint32_t best = moorage::none;
    const entries holders = entries_of(items, item);
    for (uint32_t entry = holders.begin; entry < holders.end; ++entry)
        if (best == moorage::none || items.host_remote_ns[entry] < items.host_remote_ns[best])
            best = entry;
    return best;
}

// The device of an item that does not run here. Its own device if no server has it: no advice would
// help then.
inline uint32_t nearest_device(const moorage::items &items, uint32_t item) {
    const uint32_t entry = nearest(items, item);
    return entry == moorage::none ? items.own(item) : items.host_remote_devices[entry];
}

// A set of distances is a mask of (1 << MOORAGE_DISTANCE_*).
inline constexpr uint32_t any_distance = ~0u;
inline bool within(const moorage::items &items, uint32_t entry, uint32_t distances) {
    const uint32_t distance = items.host_devices[items.host_remote_devices[entry]].distance;
    return (distances >> std::min<uint32_t>(distance, MOORAGE_DISTANCE_CLOUD) & 1) != 0;
}

// An entry's time in two parts. Neither is above 13 days, so sums stay in 64 bits.
inline constexpr uint64_t longest_ns = uint64_t{1} << 50;
inline uint64_t once_ns(const moorage::items &items, uint32_t entry) {
    return std::min(items.host_once_ns[entry], longest_ns);
}
inline uint64_t more_ns(const moorage::items &items, uint32_t entry) {
    const uint64_t total = items.host_remote_ns[entry], once = items.host_once_ns[entry];
    return total > once ? std::min(total - once, longest_ns) : 0;
}

// The calls so far, item by item.
class calls {
public:
    void reserve(uint32_t items) { calls_.reserve(items); }
    void clear() {
        calls_.clear();
        total_ns_ = 0;
    }
    // The time of all calls together.
    uint64_t total_ns() const { return total_ns_; }

    // T of the entry's server, without the item and with it.
    struct change {
        uint64_t before_ns, after_ns;
        uint64_t adds_ns() const { return after_ns - before_ns; }
    };
    change after_adding(const moorage::items &items, uint32_t entry) const {
        const uint64_t once = once_ns(items, entry), added = more_ns(items, entry);
        for (const call &call : calls_)
            if (call.server == items.host_remote_devices[entry])
                return {call.once_ns + call.more_ns,
                        std::max(call.once_ns, once) + call.more_ns + added};
        return {0, once + added};
    }
    void add(const moorage::items &items, uint32_t entry) {
        total_ns_ += after_adding(items, entry).adds_ns();
        const uint64_t once = once_ns(items, entry), added = more_ns(items, entry);
        for (call &call : calls_) {
            if (call.server != items.host_remote_devices[entry]) continue;
            call.once_ns = std::max(call.once_ns, once);
            call.more_ns += added;
            return;
        }
        calls_.push_back({items.host_remote_devices[entry], once, added});
    }

    // The entry whose server would be done first with the item. If servers are called one after
    // another, the entry that adds least. Ties: smaller server. None if no distance fits.
    uint32_t best(const moorage::items &items, uint32_t item, uint32_t distances) const {
        const bool serial = (items.flags & MOORAGE_ITEMS_SERIAL) != 0;
        uint64_t least_ns = moorage::never;
        uint32_t best = moorage::none;
        const entries holders = entries_of(items, item);
        for (uint32_t entry = holders.begin; entry < holders.end; ++entry) {
            if (!within(items, entry, distances)) continue;
            const change change = after_adding(items, entry);
            const uint64_t takes_ns = serial ? change.adds_ns() : change.after_ns;
            if (takes_ns >= least_ns) continue;
            least_ns = takes_ns;
            best = entry;
        }
        return best;
    }

private:
    struct call {
        uint32_t server;
        uint64_t once_ns, more_ns;
    };
    std::vector<call> calls_;
    uint64_t total_ns_ = 0;
};

// Order in which items are placed one by one: most tokens first, ties by smaller expert.
inline void sort_by_tokens(const moorage::items &items, std::vector<uint32_t> &list) {
    std::sort(list.begin(), list.end(), [&](uint32_t a, uint32_t b) {
        if (items.host_tokens[a] != items.host_tokens[b])
            return items.host_tokens[a] > items.host_tokens[b];
        return items.host_experts[a] < items.host_experts[b];
    });
}

}  // namespace remote
