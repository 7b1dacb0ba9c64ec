// next_gate.cpp - fetches the experts that the next layer's gate is predicted to choose.
//
// The prediction applies the next layer's router to this layer's activations (mixtral-offloading,
// Pre-gated MoE and MoEpic use the same signal). It comes from the model or from a trace. The best
// predicted come first, at most `experts` of them. The host skips experts that are resident or
// under way; they do not count. With `fit_window`, the policy orders only as many as the link can
// load before the next layer is routed. Cost per call: O(experts of a layer).

#include <moorage/moorage.hpp>

#include <algorithm>

namespace {

class next_gate {
public:
    static constexpr moorage::about about{
        .name = "next_gate",
        .summary = "fetches what the next layer's gate is predicted to choose",
        .source = "Fast Inference of MoE Language Models with Offloading, speculative loading",
        .needs = MOORAGE_NEEDS_PREDICTIONS,
    };
    static constexpr moorage::param params[] = {
        moorage::integer("experts", 0, 0, 4096,
                         "first predicted experts to fetch; 0: the model's top-k"),
        moorage::flag("fit_window", false,
                      "fetch no more than arrives before the next layer is routed"),
    };

    explicit next_gate(const moorage::setup &setup)
        : host_(setup.host),
          experts_(static_cast<uint32_t>(setup.integer("experts"))),
          fit_window_(setup.flag("fit_window")) {}

    void activate(const moorage::limits &limits) {
        depth_ = experts_ ? experts_ : limits.top_k;
        state_ = host_.residency()->host_state;
    }
    void reset() {}
    uint32_t horizon() { return 1; }

    void plan(const moorage::step &step, const moorage::forecast &forecast,
              moorage::orders &orders) {
        uint64_t room = moorage::none;
        if (const moorage_costs *costs = host_.costs(); fit_window_ && costs && costs->load_ns) {
            const uint64_t window_ns = forecast.window_ns;
            const uint64_t free_ns =
                window_ns > forecast.backlog_ns ? window_ns - forecast.backlog_ns : 0;
            room = free_ns / costs->load_ns;
        }
        const std::span<const uint32_t> predicted = forecast.experts(0);
        const size_t depth = std::min<size_t>(depth_, predicted.size());
        for (size_t i = 0; i < depth && room > 0; ++i) {
            const uint32_t page = forecast.host_layers[0] * step.experts + predicted[i];
            if (state_[page] & (MOORAGE_STATE_RESIDENT | MOORAGE_STATE_IN_FLIGHT)) continue;
            orders.push(page);
            --room;
        }
    }

private:
    moorage::host host_;
    uint32_t experts_, depth_ = 0;
    bool fit_window_;
    const uint32_t *state_ = nullptr;
};

}  // namespace

MOORAGE_POLICIES("org.moorage.next_gate", "1.0.0", next_gate)
