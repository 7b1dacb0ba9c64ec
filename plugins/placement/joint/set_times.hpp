// set_times.hpp - times of the sets of experts that tokens miss together, for the joint policy.
//
// A set costs the same whenever its experts have the same holders. So times are looked up by keys
// (pattern_table.hpp). With more than 8 servers only the 4 nearest holders of an expert count until
// count_all_holders(). A set may then seem to take longer than it does, never less.
#pragma once

#include <algorithm>
#include <array>
#include <vector>

#include "copy_table.hpp"
#include "entry_demand.hpp"
#include "layer_time.hpp"
#include "pattern_table.hpp"

namespace moorage::joint {

struct expert_set {
    uint64_t key;
    double value_s;  // time of the layer
    double weight;
    uint32_t first, count;  // members
    uint32_t context;       // entry * models + model
};

class set_times {
public:
    // The first four are borrowed. With `stride` above 1, one set in `stride` stands for all.
    // Call refresh() before anything else.
    set_times(const latency_model &latency, const call_times &times, const entry_demand &demand,
              const copy_table &copies, uint32_t stride)
        : latency_(latency),
          times_(times),
          demand_(demand),
          copies_(copies),
          models_(latency.demand().models),
          holders_most_(latency.cluster().servers > 8 ? 4 : 64),
          known_(size_t{1} << known_bits) {
        read(stride);
    }

    std::span<const expert_set> sets() const { return sets_; }
    uint32_t entry_of(const expert_set &set) const { return set.context / models_; }
    // Sum of the sets' sizes, and the sets that have the pair's expert.
    uint64_t uses() const { return use_.size(); }
    size_t uses(size_t pair) const { return use_first_[pair + 1] - use_first_[pair]; }
    uint64_t steps() const { return steps_; }

    uint32_t pattern(size_t pair) const { return pattern_[pair]; }
    // Requires: at most 64 servers.
    uint32_t pattern_after(const copy_change &change, uint32_t entry) {
        const uint32_t model = latency_.model_of(change.expert), context = entry * models_ + model;
        const uint32_t own_device = copies_.device_after(change, times_.entry_server(entry));
        if (own_device != none) return patterns_.find(context, {&own_device, 1});
        std::array<uint32_t, 64> devices;
        size_t count = 0;
        copies_.each_holder(change, [&](uint32_t server, uint32_t device) {
            if (times_.is_reached(entry, server)) devices[count++] = device;
        });
        if (count > holders_most_) {
            std::partial_sort(devices.begin(), devices.begin() + holders_most_,
                              devices.begin() + count, [&](uint32_t left, uint32_t right) {
                                  return times_.is_nearer(model, entry, left, right);
                              });
            count = holders_most_;
            std::sort(devices.begin(), devices.begin() + count);
        }
        return patterns_.find(context, {devices.data(), count});
    }

    // Weighted change of the times of the pair's sets if `expert` gets `new_pattern`.
    double change_s(uint32_t expert, size_t pair, uint32_t new_pattern) {
        const uint64_t shift = patterns_.code(new_pattern) - patterns_.code(pattern_[pair]);
        double sum = 0;
        for (size_t use = use_first_[pair]; use < use_first_[pair + 1]; ++use) {
            const expert_set &set = sets_[use_[use]];
            sum += set.weight * (set_s(set, set.key + shift, expert, new_pattern) - set.value_s);
        }
        steps_ += uses(pair);
        return sum;
    }
    // Makes that change.
    double apply(uint32_t expert, size_t pair, uint32_t new_pattern) {
        const uint64_t shift = patterns_.code(new_pattern) - patterns_.code(pattern_[pair]);
        double sum = 0;
        for (size_t use = use_first_[pair]; use < use_first_[pair + 1]; ++use) {
            expert_set &set = sets_[use_[use]];
            const double new_s = set_s(set, set.key + shift, expert, new_pattern);
            sum += set.weight * (new_s - set.value_s);
            set.value_s = new_s, set.key += shift;
        }
        steps_ += uses(pair);
        pattern_[pair] = new_pattern;
        return sum;
    }

    // Computes all anew from the copies.
    void refresh() {
        for (uint32_t expert = 0; expert < latency_.experts(); ++expert)
            for (uint32_t entry = 0; entry < times_.entries(); ++entry) {
                const size_t pair = demand_.pair_index(expert, entry);
                if (uses(pair) != 0) pattern_[pair] = pattern_after(unchanged(expert), entry);
            }
        for (expert_set &set : sets_) {
            const uint32_t entry = entry_of(set);
            set.key = 0;
            for (uint32_t index = set.first; index < set.first + set.count; ++index)
                set.key += patterns_.code(pattern_[demand_.pair_index(members_[index], entry)]);
            set.value_s = set_s(set, set.key, none, none);
        }
        steps_ += uses();
    }
    // Takes effect with refresh().
    void count_all_holders() { holders_most_ = 64; }

private:
    struct known_time {
        uint64_t key = 0;
        double value_s = 0;
    };

    void read(uint32_t stride) {
        uint64_t number = 0;
        const size_t pairs = size_t{latency_.experts()} * times_.entries();
        use_first_.assign(pairs + 1, 0);
        latency_.for_sets([&](uint32_t server, double weight, std::span<const uint32_t> members) {
            if (number++ % stride != 0) return;
            const uint32_t entry = times_.server_entry(server);
            const uint32_t context = entry * models_ + latency_.model_of(members[0]);
            sets_.push_back({0, 0, weight * stride / demand_.batch(entry),
                             static_cast<uint32_t>(members_.size()),
                             static_cast<uint32_t>(members.size()), context});
            members_.insert(members_.end(), members.begin(), members.end());
            for (const uint32_t expert : members)
                ++use_first_[demand_.pair_index(expert, entry) + 1];
        });
        for (size_t index = 1; index < use_first_.size(); ++index)
            use_first_[index] += use_first_[index - 1];
        use_.resize(members_.size());
        pattern_.assign(sets_.empty() ? 0 : pairs, none);
        std::vector<size_t> next(use_first_.begin(), use_first_.end() - 1);
        for (uint32_t set_number = 0; set_number < sets_.size(); ++set_number) {
            const expert_set &set = sets_[set_number];
            for (uint32_t index = set.first; index < set.first + set.count; ++index)
                use_[next[demand_.pair_index(members_[index], entry_of(set))]++] = set_number;
        }
    }

    // Time of a set in which `expert` has `new_pattern`. Its key is then `key`.
    double set_s(const expert_set &set, uint64_t key, uint32_t expert, uint32_t new_pattern) {
        known_time &slot = known_[key >> (64 - known_bits)];
        if (slot.key == key && key != 0) return slot.value_s;
        const uint32_t entry = entry_of(set);
        std::array<holders, 16> member_holders;
        for (uint32_t index = 0; index < set.count; ++index) {
            const uint32_t member = members_[set.first + index];
            member_holders[index] = patterns_.devices_of(
                member == expert ? new_pattern : pattern_[demand_.pair_index(member, entry)]);
        }
        slot.key = key;
        slot.value_s = layer_time(times_, set.context % models_, entry)
                           .seconds({member_holders.data(), set.count});
        steps_ += 8;
        return slot.value_s;
    }

    const latency_model &latency_;
    const call_times &times_;
    const entry_demand &demand_;
    const copy_table &copies_;
    const uint32_t models_;
    std::vector<expert_set> sets_;
    std::vector<uint32_t> members_;  // experts of all sets
    std::vector<size_t> use_first_;  // [experts * entries + 1] sets of a pair
    std::vector<uint32_t> use_;      // numbers of sets
    std::vector<uint32_t> pattern_;  // [experts, entries] of the placement
    size_t holders_most_;
    static constexpr uint32_t known_bits = 18;
    pattern_table patterns_;
    std::vector<known_time> known_;  // by the key's upper bits
    uint64_t steps_ = 0;
};

}  // namespace moorage::joint
