// pattern_table.hpp - numbers and random codes for lists of devices, for the joint policy.
//
// The devices that serve an expert, seen from an entry, are a pattern. Equal patterns have one
// number. The key of a set is the sum of its experts' codes, so a change of one expert changes the
// key by a difference. Two patterns share a code with a probability of 2^-64.
#pragma once

#include <algorithm>
#include <unordered_map>
#include <vector>

#include "terms.hpp"

namespace moorage::joint {

// Mixes the bits of a number: the last step of splitmix64.
inline uint64_t mix_bits(uint64_t bits) {
    bits = (bits ^ bits >> 30) * 0xbf58476d1ce4e5b9ull;
    bits = (bits ^ bits >> 27) * 0x94d049bb133111ebull;
    return bits ^ bits >> 31;
}

class pattern_table {
public:
    // The number of the pattern, which is new or known. `context`: the entry and the model.
    uint32_t find(uint32_t context, holders devices) {
        uint64_t hash = mix_bits(context + 1);
        for (const uint32_t device : devices) hash = mix_bits(hash ^ (device + 1));
        for (;; ++hash) {
            const auto [position, fresh] =
                ids_.try_emplace(hash, static_cast<uint32_t>(patterns_.size()));
            if (fresh) {
                patterns_.push_back({pool_.size(), context, static_cast<uint32_t>(devices.size()),
                                     mix_bits(hash + 0x9e3779b97f4a7c15ull)});
                pool_.insert(pool_.end(), devices.begin(), devices.end());
                return position->second;
            }
            const pattern &known = patterns_[position->second];
            if (known.context == context &&
                std::ranges::equal(devices_of(position->second), devices))
                return position->second;
        }
    }
    holders devices_of(uint32_t id) const {
        return {pool_.data() + patterns_[id].first, patterns_[id].count};
    }
    uint64_t code(uint32_t id) const { return patterns_[id].code; }

private:
    struct pattern {
        size_t first;  // in pool_
        uint32_t context, count;
        uint64_t code;
    };
    std::vector<pattern> patterns_;
    std::vector<uint32_t> pool_;                  // devices
    std::unordered_map<uint64_t, uint32_t> ids_;  // only looked up, its order is never used
};

}  // namespace moorage::joint
