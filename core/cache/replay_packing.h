// replay_packing.h - the fields of a replay's result, for base/packing.h.
#pragma once

#include "core/base/packing.h"
#include "core/cache/replay.h"

namespace moorage::core {

void each_field(auto &record, auto &&visit) requires packed_as<decltype(record), replay_result> {
    auto &[requests, hits, misses, bypasses, layer_misses, faults, seconds, fast, parameters] =
        record;
    visit(requests, hits, misses, bypasses, layer_misses, faults, seconds, fast, parameters);
}

}  // namespace moorage::core
