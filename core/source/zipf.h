// zipf.h - draws ranks with weights 1 / (rank + b)^a, in integers, so that all machines agree.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/base/random.h"

namespace moorage::core {

class zipf {
public:
    // Ranks are 0 .. count - 1; the formula counts from 1. Requires: count > 0, a >= 0, b > -1.
    zipf(uint32_t count, double a, double b);

    uint32_t count() const { return static_cast<uint32_t>(weights_.size()); }
    // A rank's share of all weights.
    double share(uint32_t rank) const;
    // Draws a rank by weight, in constant time.
    uint32_t draw(random_stream &random) const {
        const uint64_t bits = random.next();
        const uint32_t column = static_cast<uint32_t>((bits >> 32) * count() >> 32);
        return static_cast<uint32_t>(bits) < chances_[column] ? column : aliases_[column];
    }
    // Draws a rank that is not taken, by weight. Requires: taken[count], at least one is 0.
    uint32_t draw_free(random_stream &random, std::span<const uint8_t> taken) const;

private:
    // Walker's alias method: a column gives its own rank with this chance out of 2^32, otherwise
    // its alias.
    std::vector<uint64_t> chances_;
    std::vector<uint32_t> aliases_;
    std::vector<uint64_t> weights_;  // the largest is about 2^40
};

}  // namespace moorage::core
