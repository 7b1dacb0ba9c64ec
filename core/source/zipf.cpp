// zipf.cpp - weights with arithmetic that rounds alike everywhere; alias table in integers.
#include "core/source/zipf.h"

#include <cassert>
#include <numeric>

#include "core/base/portable_math.h"

namespace moorage::core {

namespace {

double weight_of(uint32_t rank, double a, double b) {
    const double base = rank + 1 + b;
    if (a == 0) return 1;
    return a == 1 ? 1 / base : portable_exp(-a * portable_log(base));
}

}  // namespace

zipf::zipf(uint32_t count, double a, double b) : chances_(count), aliases_(count), weights_(count) {
    assert(count > 0 && a >= 0 && b > -1);
    // The first rank has the largest weight, and no rank is impossible.
    const double heaviest = weight_of(0, a, b);
    for (uint32_t rank = 0; rank < count; ++rank)
        weights_[rank] = 1 + static_cast<uint64_t>(weight_of(rank, a, b) / heaviest * 0x1p40);

    // In units of total / count per column, multiplied by count to stay integers.
    const uint64_t total = std::accumulate(weights_.begin(), weights_.end(), uint64_t{0});
    std::vector<uint64_t> left(count);
    std::vector<uint32_t> small, large;
    for (uint32_t rank = 0; rank < count; ++rank) {
        left[rank] = weights_[rank] * count;
        (left[rank] < total ? small : large).push_back(rank);
    }
    while (!small.empty() && !large.empty()) {
        const uint32_t giver = large.back(), taker = small.back();
        small.pop_back();
        chances_[taker] = static_cast<uint64_t>((static_cast<uint128>(left[taker]) << 32) / total);
        aliases_[taker] = giver;
        left[giver] -= total - left[taker];
        if (left[giver] >= total) continue;
        large.pop_back();
        small.push_back(giver);
    }
    for (const std::vector<uint32_t> &rest : {small, large})
        for (const uint32_t rank : rest) chances_[rank] = uint64_t{1} << 32, aliases_[rank] = rank;
}

double zipf::share(uint32_t rank) const {
    const uint64_t total = std::accumulate(weights_.begin(), weights_.end(), uint64_t{0});
    return static_cast<double>(weights_[rank]) / static_cast<double>(total);
}

uint32_t zipf::draw_free(random_stream &random, std::span<const uint8_t> taken) const {
    // Drawing again until a rank is free gives the right probabilities. If the taken ranks have
    // almost all of the weight, the free ones are summed up instead, with the same result.
    for (int attempt = 0; attempt < 8; ++attempt) {
        const uint32_t rank = draw(random);
        if (!taken[rank]) return rank;
    }
    uint64_t total = 0;
    for (uint32_t rank = 0; rank < count(); ++rank) total += taken[rank] ? 0 : weights_[rank];
    assert(total > 0);
    uint64_t remaining = random.below(total);
    for (uint32_t rank = 0;; ++rank) {
        if (taken[rank]) continue;
        if (remaining < weights_[rank]) return rank;
        remaining -= weights_[rank];
    }
}

}  // namespace moorage::core
