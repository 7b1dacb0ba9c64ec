// trace_rows.cpp - reads one token and layer of a trace.
#include "core/source/trace_rows.h"

#include <cmath>

namespace moorage::core {

void route_row(const trace &from, uint64_t row, uint32_t layer, uint32_t *chosen) {
    const uint32_t count = from.top_k();
    for (uint32_t rank = 0; rank < count; ++rank) chosen[rank] = from.expert(row, layer, rank);
}

void weights_row(const trace &from, uint64_t row, uint32_t layer, float *out) {
    const uint32_t count = from.top_k();
    for (uint32_t rank = 0; rank < count; ++rank) out[rank] = from.weight(row, layer, rank);
}

void weigh_row(const trace &from, uint64_t row, uint32_t layer, const uint32_t *chosen,
               float *out) {
    const uint32_t count = from.top_k();
    for (uint32_t place = 0; place < count; ++place) {
        if (!std::isnan(out[place])) continue;
        out[place] = 0;
        if (!from.has_weights()) continue;
        for (uint32_t rank = 0; rank < count; ++rank)
            if (from.expert(row, layer, rank) == chosen[place])
                out[place] = from.weight(row, layer, rank);
    }
}

void predict_row(const trace &from, uint64_t row, uint32_t layer, uint32_t count, uint32_t *experts,
                 float *scores) {
    const auto all = static_cast<float>(from.predictions());
    for (uint32_t rank = 0; rank < count; ++rank) {
        experts[rank] = from.predicted(row, layer, rank);
        scores[rank] = from.has_prediction_scores() ? from.prediction_score(row, layer, rank)
                                                    : 1.0f - static_cast<float>(rank) / all;
    }
}

}  // namespace moorage::core
