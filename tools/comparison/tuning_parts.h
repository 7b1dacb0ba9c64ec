// tuning_parts.h - shared by searches and frontiers: the places of samples, and trials as columns
// and JSON.
#pragma once

#include <vector>

#include "tools/comparison/text_table.h"
#include "tools/comparison/tuning.h"

namespace moorage::core {

// Spreads `samples` indices below `count` evenly, with the first and the last among them. All
// indices if there are no more. Requires: count above 0, samples above 1.
std::vector<size_t> spread_indices(size_t count, size_t samples);

// A column for each parameter and target. `rows` are trials with figures.
std::vector<table_column> trial_columns(const tuning &found, const std::vector<size_t> &rows);

// {"values", "figures", "fits", "met"}, and "value" and "measured" if there is one of each.
json trial_json(const tuning &found, const trial &trial);

}  // namespace moorage::core
