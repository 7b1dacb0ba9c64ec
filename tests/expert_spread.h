// expert_spread.h - how many experts of a layer the tokens of a benchmark reached. Random routers
// may agree on a few experts. Then the benchmark measures only those, and its time is refused.
//
//   expert_spread spread(layers, experts, top_k);
//   run.watch([&](uint32_t layer, auto chosen) { spread.add(layer, chosen); });
//   if (const status sound = spread.check(); !sound) ...
//   std::puts(spread.text().c_str());  // "60 to 60 of 60 experts a layer"
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include "core/base/result.h"
#include "core/base/text.h"

namespace moorage::test {

// Mean number of distinct experts that `tokens` choices of `top_k` out of `experts` reach. Choices
// are independent, and every expert is equally likely: E (1 - (1 - k/E)^T).
inline double uniform_spread(uint32_t experts, uint32_t top_k, uint64_t tokens) {
    const double missed = 1 - static_cast<double>(top_k) / experts;
    return experts * (1 - std::pow(missed, static_cast<double>(tokens)));
}

class expert_spread {
public:
    static constexpr double share_min = 0.8;  // of uniform_spread()

    expert_spread(uint32_t layers, uint32_t experts, uint32_t top_k)
        : experts_(experts), top_k_(top_k), tokens_(layers), reached_(layers) {
        forget();
    }
    // `chosen`: top_k of each token. Ids from `experts` on stand for no expert.
    void add(uint32_t layer, std::span<const uint32_t> chosen) {
        tokens_[layer] += chosen.size() / top_k_;
        for (const uint32_t expert : chosen)
            if (expert < experts_) reached_[layer][expert] = true;
    }
    void forget() {
        std::ranges::fill(tokens_, 0);
        for (std::vector<bool> &layer : reached_) layer.assign(experts_, false);
    }
    uint32_t of_layer(uint32_t layer) const {
        return static_cast<uint32_t>(std::ranges::count(reached_[layer], true));
    }
    uint32_t least() const {
        uint32_t fewest = experts_;
        for (uint32_t layer = 0; layer < reached_.size(); ++layer)
            fewest = std::min(fewest, of_layer(layer));
        return fewest;
    }
    std::string text() const {
        uint32_t most = 0;
        for (uint32_t layer = 0; layer < reached_.size(); ++layer)
            most = std::max(most, of_layer(layer));
        return core::format("{} to {} of {} experts a layer", least(), most, experts_);
    }
    // An error that names the first layer with too few.
    core::status check() const {
        for (uint32_t layer = 0; layer < reached_.size(); ++layer) {
            const double uniform = uniform_spread(experts_, top_k_, tokens_[layer]);
            if (of_layer(layer) >= share_min * uniform) continue;
            return core::error{core::format(
                "no figure: {} tokens reached {} of {} experts of layer {}, less than {:.0f} % of "
                "the "
                "{:.1f} of independent uniform routing; the model's routers do not spread",
                tokens_[layer], of_layer(layer), experts_, layer, 100 * share_min, uniform)};
        }
        return core::success();
    }

private:
    const uint32_t experts_, top_k_;
    std::vector<uint64_t> tokens_;
    std::vector<std::vector<bool>> reached_;
};

}  // namespace moorage::test
