// resources.h - the resources of a machine that a run can be given more of.
//
//   run_config more = config;
//   more.speed_factors[resource::link] = 1.1;   // the same run with a link of 1.1 times the rate
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "core/config/hardware.h"

namespace moorage::core {

enum class resource : uint8_t {
    device_compute,
    gpu_memory,
    launches,
    link,
    cpu,
    host_memory,
    disk
};
inline constexpr size_t resource_count = 7;
inline constexpr std::array<std::string_view, resource_count> resource_names{
    "gpu_compute", "gpu_memory", "launches", "link", "cpu", "host_memory", "disk"};

// Factors on the profile's rates, each above 0.
struct resource_factors {
    std::array<double, resource_count> times{1, 1, 1, 1, 1, 1, 1};
    double &operator[](resource which) { return times[static_cast<size_t>(which)]; }
    double operator[](resource which) const { return times[static_cast<size_t>(which)]; }
};

void scale_resources(hardware_profile &profile, const resource_factors &factors);

}  // namespace moorage::core
