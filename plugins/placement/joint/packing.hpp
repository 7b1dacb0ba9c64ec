// packing.hpp - a move of the joint policy that fills a device by an exact knapsack.
//
// The value of an expert is what it alone would save there (SlimCaching, Algorithm 2).
#pragma once

#include <algorithm>
#include <numeric>

#include "search_context.hpp"

namespace moorage::joint {

class device_packing {
public:
    device_packing(search_context &search, uint32_t device)
        : search_(search),
          state_(search.state()),
          device_(device),
          server_(search.server_of(device)) {}

    // Empties the device and fills it. Returns false, and takes it back, if that is too large or
    // gains nothing.
    bool run() {
        for (uint32_t expert = 0; expert < state_.experts(); ++expert)
            if (search_.is_wanted(expert)) unit_ = std::gcd(unit_, state_.bytes(expert));
        if (unit_ == 0) return false;
        const uint64_t units = search_.cluster().host_device_bytes[device_] / unit_;
        if (units * state_.experts() > table_most || units > search_.steps_left()) return false;
        const size_t mark = state_.mark();
        double change_s = 0;
        for (uint32_t expert = 0; expert < state_.experts(); ++expert)
            if (state_.device_at(expert, server_) == device_ && !search_.is_pinned(expert))
                change_s += state_.put(expert, server_, none);
        const auto room = static_cast<size_t>(state_.free_bytes(device_)) / unit_;
        const std::vector<ranked_expert> items = find_items(room);
        fill(items, room, change_s);
        return search_.keep_if_better(mark, change_s);
    }

private:
    static constexpr uint64_t table_most = uint64_t{1} << 27;  // experts times units

    std::vector<ranked_expert> find_items(size_t room) {
        std::vector<ranked_expert> items;
        for (uint32_t expert = 0; expert < state_.experts(); ++expert) {
            if (state_.device_at(expert, server_) != none || !search_.is_wanted(expert) ||
                state_.bytes(expert) > room * unit_)
                continue;
            const double gain_s = -state_.change_s(expert, server_, device_);
            if (gain_s > least_gain_s) items.push_back({gain_s, expert});
        }
        return items;
    }
    // Adds the costs of its copies to change_s.
    void fill(const std::vector<ranked_expert> &items, size_t room, double &change_s) {
        std::vector<double> most(room + 1, 0);
        std::vector<bool> taken(items.size() * (room + 1), false);
        for (size_t item = 0; item < items.size(); ++item) {
            const size_t size_units = state_.bytes(items[item].expert) / unit_;
            for (size_t capacity = room; capacity >= size_units; --capacity)
                if (const double sum = most[capacity - size_units] + items[item].change_s;
                    sum > most[capacity])
                    most[capacity] = sum, taken[item * (room + 1) + capacity] = true;
        }
        size_t left = room;
        for (size_t item = items.size(); item-- > 0;)
            if (taken[item * (room + 1) + left]) {
                change_s += state_.put(items[item].expert, server_, device_);
                left -= state_.bytes(items[item].expert) / unit_;
            }
    }

    search_context &search_;
    placement_state &state_;
    const uint32_t device_, server_;
    uint64_t unit_ = 0;  // common divisor of the sizes, in bytes
};

inline bool pack_device(search_context &search, uint32_t device) {
    return device_packing(search, device).run();
}

inline void pack_all_devices(search_context &search) {
    for (uint32_t device = 0; device < search.cluster().devices && !search.is_spent(); ++device)
        pack_device(search, device);
}

}  // namespace moorage::joint
