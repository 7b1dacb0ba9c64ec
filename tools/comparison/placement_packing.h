// placement_packing.h - the fields of a plan and its figures that own memory, for base/packing.h.
#pragma once

#include "core/base/fact_packing.h"
#include "core/base/packing.h"
#include "tools/placement/plan.h"
#include "moorage/latency.hpp"

namespace moorage::core {

void each_field(auto &value, auto &&visit) requires packed_as<decltype(value), plan> {
    auto &[policy, copies, facts, seconds] = value;
    visit(policy, copies, facts, seconds);
}

void each_field(auto &value, auto &&visit) requires packed_as<decltype(value), latency_figures> {
    auto &[token_s, empty_s, saved_s, batch_token_s, home_token_s, home_local_ratio, calls_per_s,
           remote_calls_per_s, local_ratio, absent] = value;
    visit(token_s, empty_s, saved_s, batch_token_s, home_token_s, home_local_ratio, calls_per_s,
          remote_calls_per_s, local_ratio, absent);
}

}  // namespace moorage::core
