// home_arrivals.h - when requests come to each home of a cluster, without a run. An emulated run
// would get these requests, and real nodes can be asked the same.
#pragma once

#include <cstdint>
#include <vector>

#include "tools/cluster/arrivals.h"
#include "core/pipeline/run.h"

namespace moorage::core {

struct home_arrival {
    uint32_t home = 0;    // index as in scene; servers come first
    request_times times;  // arrived_ns, lengths and, with a trace, its request
    const trace *request_trace = nullptr;
};

// The arrivals of all homes, by time (ties: by home). At most `requests_max` for each device where
// requests enter, because a cluster may never end. Requires: config.cluster, of one model.
result<std::vector<home_arrival>> arrivals_of_homes(const run_config &config, run_resources &shared,
                                                    const scene &scene, uint32_t requests_max);

}  // namespace moorage::core
