// copy_prices.hpp - the cost of copies that the plan in force does not have, for the joint policy.
#pragma once

#include <vector>

#include "terms.hpp"

namespace moorage::joint {

// Copies cost nothing until set().
class copy_prices {
public:
    // `added_s`: [devices] the cost of a byte that is not in `current`.
    void set(std::span<const moorage_copy> current, std::span<const double> added_s,
             uint32_t experts) {
        added_s_.assign(added_s.begin(), added_s.end());
        current_.assign(size_t{experts} * added_s_.size(), 0);
        for (const moorage_copy &copy : current)
            current_[size_t{copy.expert} * added_s_.size() + copy.device] = 1;
    }
    bool is_set() const { return !added_s_.empty(); }
    double cost(uint32_t expert, uint32_t device, uint64_t bytes) const {
        if (device == none || added_s_.empty() ||
            current_[size_t{expert} * added_s_.size() + device] != 0)
            return 0;
        return added_s_[device] * static_cast<double>(bytes);
    }

private:
    std::vector<double> added_s_;   // [devices] of a byte
    std::vector<uint8_t> current_;  // [experts, devices] copies that are there already
};

}  // namespace moorage::joint
