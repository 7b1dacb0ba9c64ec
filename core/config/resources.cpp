// resources.cpp - the figures of a profile that each resource scales.
#include "core/config/resources.h"

#include <cmath>

namespace moorage::core {

void scale_resources(hardware_profile &profile, const resource_factors &factors) {
    device_profile &device = profile.device;
    engine_profile &engine = profile.engine;
    device.flops_per_s *= factors[resource::device_compute];
    device.vector_flops_per_s *= factors[resource::device_compute];
    device.few_flops_per_s *= factors[resource::device_compute];
    for (double *rate :
         {&device.memory_bytes_per_s, &device.context_bytes_per_s, &device.cache_bytes_per_s})
        *rate *= factors[resource::gpu_memory];
    for (uint64_t *fixed :
         {&device.launch_ns, &device.sync_ns, &device.layer_ns, &device.expert_ns, &device.token_ns,
          &device.few_token_ns, &device.pass_ns, &device.kernel_ns, &profile.node.cpu_issue_ns,
          &profile.node.launch_ns, &profile.node.cpu_handover_ns, &engine.launch_gap_ns,
          &engine.layer_ns, &engine.expert_loop_ns, &engine.batch_layer_ns, &engine.sync_ns,
          &engine.prompt_ns, &engine.cpu_layer_ns})
        *fixed = static_cast<uint64_t>(
            std::round(static_cast<double>(*fixed) / factors[resource::launches]));
    for (link_profile *link : {&profile.link, &profile.peer}) {
        link->h2d_bytes_per_s *= factors[resource::link];
        link->d2h_bytes_per_s *= factors[resource::link];
    }
    engine.copy_bytes_per_s *= factors[resource::link];
    engine.thread_bytes_per_s *= factors[resource::cpu];
    profile.node.cpu_bytes_per_s *= factors[resource::cpu];
    profile.node.cpu_flops_per_s *= factors[resource::cpu];
    profile.node.memory_bytes_per_s *= factors[resource::host_memory];
    profile.node.memory_theory_bytes_per_s *= factors[resource::host_memory];
    profile.disk.read_bytes_per_s *= factors[resource::disk];
}

}  // namespace moorage::core
