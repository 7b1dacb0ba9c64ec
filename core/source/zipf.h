// zipf.h - draws ranks with weights 1 / (rank + b)^a, in integers so that every machine agrees.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/base/random.h"

namespace moorage::core {

class zipf {
public:
    // Ranks 0 .. count - 1; the formula counts them from 1. Requires: count > 0, a >= 0, b > -1.
    zipf(uint32_t count, double a, double b);

    uint32_t count() const { return static_cast<uint32_t>(weights_.size()); }
    // Share of a rank's weight in all weights.
    double share(uint32_t rank) const;
    // One rank, by weight. Constant time.
    uint32_t draw(random_stream &random) const {
        const uint64_t bits = random.next();
        const uint32_t at = static_cast<uint32_t>((bits >> 32) * count() >> 32);
        return static_cast<uint32_t>(bits) < chances_[at] ? at : others_[at];
    }
    // One rank among those that are not taken, by weight. Requires: taken[count], one is 0.
    uint32_t draw_free(random_stream &random, std::span<const uint8_t> taken) const;

private:
    // Walker's alias method: each column is a rank with this chance of 2^32, else the other rank.
    std::vector<uint64_t> chances_;
    std::vector<uint32_t> others_;
    std::vector<uint64_t> weights_;  // the heaviest is about 2^40
};

}  // namespace moorage::core
