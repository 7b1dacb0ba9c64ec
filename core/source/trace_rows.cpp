// trace_rows.cpp - reads one token and layer of a trace.
#include "core/source/trace_rows.h"

#include <cmath>

namespace moorage::core {

void route_row(const trace &trace, uint64_t row, uint32_t layer, uint32_t *chosen) {
    const uint32_t count = trace.top_k();
    for (uint32_t rank = 0; rank < count; ++rank) chosen[rank] = trace.expert(row, layer, rank);
}

void weights_row(const trace &trace, uint64_t row, uint32_t layer, float *weights) {
    const uint32_t count = trace.top_k();
    for (uint32_t rank = 0; rank < count; ++rank) weights[rank] = trace.weight(row, layer, rank);
}

void weigh_row(const trace &trace, uint64_t row, uint32_t layer, const uint32_t *chosen,
               float *weights) {
    const uint32_t count = trace.top_k();
    for (uint32_t place = 0; place < count; ++place) {
        if (!std::isnan(weights[place])) continue;
        weights[place] = 0;
        if (!trace.has_weights()) continue;
        for (uint32_t rank = 0; rank < count; ++rank)
            if (trace.expert(row, layer, rank) == chosen[place])
                weights[place] = trace.weight(row, layer, rank);
    }
}

void predict_row(const trace &trace, uint64_t row, uint32_t layer, uint32_t count,
                 uint32_t *experts, float *scores) {
    const auto prediction_count = static_cast<float>(trace.predictions());
    for (uint32_t rank = 0; rank < count; ++rank) {
        experts[rank] = trace.predicted(row, layer, rank);
        scores[rank] = trace.has_prediction_scores()
                           ? trace.prediction_score(row, layer, rank)
                           : 1.0f - static_cast<float>(rank) / prediction_count;
    }
}

}  // namespace moorage::core
