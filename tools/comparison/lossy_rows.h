// lossy_rows.h - the changes by lossy routers in the rows of a comparison.
#pragma once

#include <string>

#include "tools/comparison/comparison.h"
#include "core/report/substitution.h"

namespace moorage::core {

// As in substitution.h, for a row: the means of its repeats, if it has some.
double substituted_share(const comparison_row &row);
std::string perplexity_change(const comparison_row &row);

bool any_lossy(const comparison &compared);
// The effect of the rows that change the routing. "": none does.
std::string lossy_sentence(const comparison &compared, const comparison_view &view);

}  // namespace moorage::core
