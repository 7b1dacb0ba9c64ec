// home_arrivals.cpp - each home's source at the end of time, when all has arrived.
#include "tools/cluster/home_arrivals.h"

#include <algorithm>

#include "tools/cluster/home_requests.h"

namespace moorage::core {

result<std::vector<home_arrival>> arrivals_of_homes(const run_config &config, run_resources &shared,
                                                    const scene &scene, uint32_t requests_max) {
    run_config at_once = config;
    at_once.batch = requests_max;
    // Nodes in the order of an emulated run: devices, then homes that compute side by side.
    std::vector<std::pair<home_place, request_share>> nodes;
    const cluster_arrays &cluster = scene.cluster;
    std::vector<uint32_t> gpus(cluster.servers, 0), next_part(cluster.servers, 0);
    for (uint32_t device = 0; device < cluster.devices(); ++device)
        if (!scene.hardware[device].id.empty()) ++gpus[cluster.device_server[device]];
    const auto add = [&](const home_place &place, uint32_t part, uint32_t parts) {
        nodes.push_back({place, {static_cast<uint32_t>(nodes.size()), part, parts}});
    };
    for (uint32_t device = 0; device < cluster.devices(); ++device) {
        const uint32_t server = cluster.device_server[device];
        if (!scene.hardware[device].id.empty())
            add({device, server, 0}, next_part[server]++, gpus[server]);
    }
    for (uint32_t home = 0; home < cluster.homes; ++home)
        if (scene.home_workload[home] != no_workload &&
            (home >= cluster.servers || gpus[home] == 0))
            add({MOORAGE_NONE, home, 0}, 0, 1);
    std::vector<home_arrival> arrivals;
    for (const auto &[place, share] : nodes) {
        if (scene.home_workload[place.home] == no_workload) continue;
        const uint64_t at_the_end = MOORAGE_NEVER - 1;
        auto source = make_requests({at_once, scene, shared}, place, share, &at_the_end);
        if (!source) return source.failure();
        pass first;
        (*source)->next(first);
        const cluster_workload &workload =
            config.cluster->workloads[scene.home_workload[place.home]];
        const trace *trace = nullptr;
        if (!workload.trace.empty())
            if (const auto opened = shared.open(workload.trace); opened) trace = *opened;
        for (const request_times &times : (*source)->requests())
            arrivals.push_back({place.home, times, trace});
    }
    std::ranges::stable_sort(arrivals, {}, [](const home_arrival &arrival) {
        return std::pair(arrival.times.arrived_ns, arrival.home);
    });
    return arrivals;
}

}  // namespace moorage::core
