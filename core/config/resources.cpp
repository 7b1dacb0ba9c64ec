// resources.cpp - which figures of a profile a resource is.
#include "core/config/resources.h"

#include <cmath>

namespace moorage::core {

void speed_up(hardware_profile &of, const resource_factors &by) {
    device_profile &device = of.device;
    device.flops_per_s *= by[resource::gpu_compute];
    for (double *rate :
         {&device.memory_bytes_per_s, &device.context_bytes_per_s, &device.cache_bytes_per_s})
        *rate *= by[resource::gpu_memory];
    for (uint64_t *fixed : {&device.launch_ns, &device.sync_ns, &device.layer_ns, &device.expert_ns,
                            &device.token_ns, &device.pass_ns, &of.node.cpu_issue_ns})
        *fixed =
            static_cast<uint64_t>(std::round(static_cast<double>(*fixed) / by[resource::launches]));
    for (link_profile *link : {&of.link, &of.peer}) {
        link->h2d_bytes_per_s *= by[resource::link];
        link->d2h_bytes_per_s *= by[resource::link];
    }
    of.node.cpu_bytes_per_s *= by[resource::cpu];
    of.node.cpu_flops_per_s *= by[resource::cpu];
    of.node.memory_bytes_per_s *= by[resource::host_memory];
    of.disk.read_bytes_per_s *= by[resource::disk];
}

}  // namespace moorage::core
