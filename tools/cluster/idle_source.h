// idle_source.h - the source of a device where no requests enter: it only computes for others.
#pragma once

#include "core/source/source.h"

namespace moorage::core {

class idle_source final : public source {
public:
    idle_source(uint32_t layers, uint32_t experts, uint32_t top_k)
        : layers_(layers), experts_(experts), top_k_(top_k) {}
    uint32_t layers() const override { return layers_; }
    uint32_t experts() const override { return experts_; }
    uint32_t top_k() const override { return top_k_; }
    uint32_t tokens_max() const override { return 1; }
    uint32_t streams() const override { return 1; }
    uint32_t predictions_max() const override { return 0; }
    uint32_t offers() const override { return ~0u & ~uint32_t{MOORAGE_NEEDS_FUTURE}; }
    bool idle() override { return true; }
    bool scored_predictions() const override { return false; }
    bool next(pass &) override { return false; }
    // Never asked: there is no pass.
    void route(const pass &, uint32_t, uint32_t *) override {}
    void weights(const pass &, uint32_t, float *) override {}
    void gate_scores(const pass &, uint32_t, float *) override {}
    void weigh(const pass &, uint32_t, const uint32_t *, float *) override {}
    uint32_t predict(uint64_t, uint32_t, uint32_t *, float *) override { return 0; }

private:
    uint32_t layers_, experts_, top_k_;
};

}  // namespace moorage::core
