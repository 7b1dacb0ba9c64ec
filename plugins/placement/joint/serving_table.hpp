// serving_table.hpp - the device that serves each expert alone, by entry, for the joint policy.
//
// The entry's own server serves whatever it has. Otherwise the nearest device serves.
#pragma once

#include <algorithm>
#include <array>
#include <vector>

#include "call_times.hpp"
#include "copy_table.hpp"

namespace moorage::joint {

class serving_table {
public:
    // All are borrowed.
    serving_table(const latency_model &latency, const call_times &times, const copy_table &copies)
        : latency_(latency),
          times_(times),
          copies_(copies),
          entries_(times.entries()),
          device_(size_t{latency.experts()} * entries_, none),
          rank_(device_.size(), none) {}

    uint32_t device(size_t pair) const { return device_[pair]; }
    void set(uint32_t expert, uint32_t entry, uint32_t device) {
        const size_t pair = size_t{expert} * entries_ + entry;
        device_[pair] = device;
        rank_[pair] = times_.rank(latency_.model_of(expert), entry, device);
    }
    // Computes all anew from the copies.
    void refresh() {
        for (uint32_t expert = 0; expert < latency_.experts(); ++expert)
            for (uint32_t entry = 0; entry < entries_; ++entry)
                set(expert, entry, find_nearest(unchanged(expert), entry));
    }

    // The device that serves the change's expert after the change.
    uint32_t device_after(const copy_change &change, uint32_t entry) const {
        const uint32_t serving = device_[size_t{change.expert} * entries_ + entry],
                       own_server = times_.entry_server(entry);
        if (own_server == change.server && change.device != none) return change.device;
        if (serving != none && times_.server_of(serving) == change.server)
            return find_nearest(change, entry);
        if (change.device == none || !times_.is_reached(entry, change.server)) return serving;
        if (serving != none && times_.server_of(serving) == own_server) return serving;
        const uint32_t model = latency_.model_of(change.expert);
        return serving == none || times_.is_nearer(model, entry, change.device, serving)
                   ? change.device
                   : serving;
    }

    // Calls `call(entry)`, ascending, for all entries that the changed device serves better, or as
    // well with `equal`, or that its server serves now. These are few of hundreds of entries.
    template <class Each>
    void each_touched(const copy_change &change, bool equal, Each call) const {
        static constexpr std::array<uint32_t, block> nowhere = [] {
            std::array<uint32_t, block> filled{};
            filled.fill(none);
            return filled;
        }();
        const uint32_t first = latency_.device_begin(change.server),
                       count = latency_.device_begin(change.server + 1) - first;
        const uint32_t *ranks = change.device == none
                                    ? nullptr
                                    : times_.ranks(latency_.model_of(change.expert), change.device);
        const uint32_t tolerance = equal ? 1 : 0;
        for (uint32_t begin = 0; begin < entries_; begin += block) {
            const uint32_t size = std::min(block, entries_ - begin);
            const size_t pair = size_t{change.expert} * entries_ + begin;
            const uint32_t *serving = &device_[pair], *serving_rank = &rank_[pair];
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

private:
    static constexpr uint32_t block = 16;  // entries that are skipped together

    uint32_t find_nearest(const copy_change &change, uint32_t entry) const {
        const uint32_t model = latency_.model_of(change.expert);
        const uint32_t own_device = copies_.device_after(change, times_.entry_server(entry));
        if (own_device != none) return own_device;
        uint32_t best = none;
        copies_.each_holder(change, [&](uint32_t server, uint32_t device) {
            if (!times_.is_reached(entry, server)) return;
            if (best == none || times_.is_nearer(model, entry, device, best)) best = device;
        });
        return best;
    }

    const latency_model &latency_;
    const call_times &times_;
    const copy_table &copies_;
    const uint32_t entries_;
    std::vector<uint32_t> device_;  // [experts, entries]
    std::vector<uint32_t> rank_;    // [experts, entries] of that device
};

}  // namespace moorage::joint
