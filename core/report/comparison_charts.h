// comparison_charts.h - which plots a comparison gives, and what is in them.
#pragma once

#include <string>
#include <vector>

#include "core/report/chart.h"
#include "core/report/comparison.h"

namespace moorage::core {

// TPOT against cache size, a figure per profile.
std::vector<chart_figure> tpot_figures(const comparison &compared, const comparison_view &view);
// Miss rate against cache size with the offline optimum below; one figure where the profiles agree
// (time does not change what is cached unless a policy looks at it), else one per profile.
std::vector<chart_figure> miss_figures(const comparison &compared, const comparison_view &view);
// Misses over the optimum's; empty where no optimum is known.
std::vector<chart_figure> optimum_figures(const comparison &compared, const comparison_view &view);

// Hit rate by policy and layer, a map per size (the middle size only where all would be too many),
// and the scale they share.
struct heat_figures {
    std::string scale;
    std::vector<chart_figure> maps;
};
heat_figures layer_figures(const comparison &compared, const comparison_view &view);

// "360 experts (25.0 %)"
std::string size_text(const comparison_view &view, size_t row);

}  // namespace moorage::core
