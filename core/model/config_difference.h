// config_difference.h - whether two configurations compute the same.
#pragma once

#include <string>

#include "core/model/model_config.h"

namespace moorage::core {

// "norm_topk_prob is 1 and would be 0": the first thing that two configurations do not agree on;
// empty: they compute the same.
std::string difference_of(const model_config &is, const model_config &made);

}  // namespace moorage::core
