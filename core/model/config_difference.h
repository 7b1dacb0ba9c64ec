// config_difference.h - compares what two configurations compute.
#pragma once

#include <string>

#include "core/model/model_config.h"

namespace moorage::core {

// The first difference: "norm_topk_prob is 1 and would be 0". Empty: they compute the same.
std::string difference_of(const model_config &source, const model_config &converted);

}  // namespace moorage::core
