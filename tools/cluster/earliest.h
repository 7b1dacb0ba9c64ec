// earliest.h - finds the earliest of many times: a tournament. After a change, only the matches of
// the changed one are played again.
#pragma once

#include <bit>
#include <cstdint>
#include <vector>

#include "moorage/base.h"

namespace moorage::core {

class earliest {
public:
    explicit earliest(uint32_t count)
        : leaves_(std::bit_ceil(count < 2 ? 2u : count)),
          times_(leaves_, MOORAGE_NEVER),
          winner_(2 * size_t{leaves_}) {
        for (uint32_t i = 0; i < leaves_; ++i) winner_[leaves_ + i] = i;
        for (uint32_t i = leaves_ - 1; i > 0; --i) winner_[i] = winner_[2 * i];
    }

    void set(uint32_t which, uint64_t time) {
        if (times_[which] == time) return;
        times_[which] = time;
        for (uint32_t i = (leaves_ + which) / 2; i > 0; i /= 2) {
            const uint32_t left = winner_[2 * i], right = winner_[2 * i + 1];
            winner_[i] = times_[right] < times_[left] ? right : left;
        }
    }
    // If times are equal, the smallest number.
    uint32_t first() const { return winner_[1]; }
    uint64_t time() const { return times_[winner_[1]]; }

private:
    uint32_t leaves_;
    std::vector<uint64_t> times_;
    std::vector<uint32_t> winner_;  // winner of each match; 1 is the final, leaves follow
};

}  // namespace moorage::core
