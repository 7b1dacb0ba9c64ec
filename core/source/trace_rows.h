// trace_rows.h - reads a trace's data for one token in the form that sources use.
#pragma once

#include <cstdint>

#include "core/source/trace.h"

namespace moorage::core {

// The chosen experts [k], best first, and their weights [k].
void route_row(const trace &trace, uint64_t row, uint32_t layer, uint32_t *chosen);
void weights_row(const trace &trace, uint64_t row, uint32_t layer, float *weights);
// Weights of a choice [k] that are NaN: those of the row's own experts, otherwise 0.
void weigh_row(const trace &trace, uint64_t row, uint32_t layer, const uint32_t *chosen,
               float *weights);
// The first `count` predicted experts and their scores. If the trace has no scores: 1 - rank /
// count of all predictions. Requires: count <= predictions().
void predict_row(const trace &trace, uint64_t row, uint32_t layer, uint32_t count,
                 uint32_t *experts, float *scores);

}  // namespace moorage::core
