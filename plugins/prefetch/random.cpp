// random.cpp - fetches uniformly random experts of the next layer, whatever is predicted.
//
// Source: MoEpic, section 4.4, "w/o SP": a speculative prefetch without its prediction. Like
// MoEpic's, it loads the bottom if the top is cached, else the whole expert, as many as the
// transfer buffer takes. The host stops them when the layer is routed. Random numbers come from the
// host's random service. Cost per call: O(experts of a layer) at worst.

#include <moorage/moorage.hpp>

#include <numeric>
#include <utility>
#include <vector>

namespace {

class random_prefetch {
public:
    static constexpr moorage::about about{
        .name = "random",
        .summary = "fetches uniformly random experts of the next layer",
        .source = "MoEpic, section 4.4 (ablation without speculative prefetch)",
        .flags = MOORAGE_POLICY_RANDOMISED | MOORAGE_POLICY_SEGMENTS,
    };

    explicit random_prefetch(const moorage::setup &setup) : host_(setup.host) {}

    void activate(const moorage::limits &limits) {
        state_ = host_.residency()->host_state;
        experts_.resize(limits.experts);
        reset();
    }
    void reset() { std::iota(experts_.begin(), experts_.end(), 0u); }
    uint32_t horizon() { return 1; }

    // The first places of a random permutation, made only as far as needed.
    void plan(const moorage::step &, const moorage::forecast &forecast, moorage::orders &orders) {
        if (forecast.target_count == 0) return;
        const auto count = static_cast<uint32_t>(experts_.size());
        for (uint32_t i = 0; i < count; ++i) {
            if (orders.full() || orders.size() == forecast.buffer_free) break;
            std::swap(experts_[i], experts_[i + host_.random_below(count - i)]);
            const uint32_t page = forecast.host_layers[0] * count + experts_[i];
            const uint8_t missing = moorage::missing(state_[page]);
            if (missing != 0) orders.push(page, missing);
        }
    }

private:
    moorage::host host_;
    const uint32_t *state_ = nullptr;
    std::vector<uint32_t> experts_;  // a permutation; any order is a good start
};

}  // namespace

MOORAGE_POLICIES("org.moorage.random_prefetch", "1.0.0", random_prefetch)
