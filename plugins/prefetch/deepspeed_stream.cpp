// deepspeed_stream.cpp - streams layer after layer: all experts of the next layer, in their order.
//
// DeepSpeed-Inference with offloaded parameters works like this (Aminabadi et al., SC 2022; the
// baseline of SMoE, Section VI-A). It loads whole layers to the GPU in the order of the model, each
// while the one before computes, whatever the gate will choose. A layer begins when all of it is
// there. The transfer buffer should hold two layers: set `[memory] buffer_experts` to twice the
// experts of a layer. Cost per call: O(experts of a layer).

#include <moorage/moorage.hpp>

namespace {

class deepspeed_stream {
public:
    static constexpr moorage::about about{
        .name = "deepspeed_stream",
        .summary = "fetches all experts of the next layer",
        .source = "DeepSpeed-Inference (arXiv 2207.00032), layer-wise offloading",
        .needs = MOORAGE_NEEDS_LAYER_BUFFER,
    };

    explicit deepspeed_stream(const moorage::setup &setup) : host_(setup.host) {}
    void activate(const moorage::limits &) { state_ = host_.residency()->host_state; }
    void reset() {}
    uint32_t horizon() { return 1; }

    void plan(const moorage::step &step, const moorage::forecast &forecast,
              moorage::orders &orders) {
        const uint32_t first = forecast.host_layers[0] * step.experts;
        for (uint32_t page = first; page < first + step.experts; ++page)
            if ((state_[page] & (MOORAGE_STATE_RESIDENT | MOORAGE_STATE_IN_FLIGHT)) == 0)
                orders.push(page);
        orders.complete();
    }

private:
    moorage::host host_;
    const uint32_t *state_ = nullptr;
};

}  // namespace

MOORAGE_POLICIES("org.moorage.deepspeed_stream", "1.0.0", deepspeed_stream)
