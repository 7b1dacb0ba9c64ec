// resources.h - what a machine has, as far as a run can be told that it has more of it.
//
//   run_config more = config;
//   more.faster[resource::link] = 1.1;   // the same run with a link of 1.1 times the rate
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "core/config/hardware.h"

namespace moorage::core {

enum class resource : uint8_t { gpu_compute, gpu_memory, launches, link, cpu, host_memory, disk };
inline constexpr size_t resource_count = 7;
inline constexpr std::array<std::string_view, resource_count> resource_names{
    "gpu_compute", "gpu_memory", "launches", "link", "cpu", "host_memory", "disk"};

// Times as fast as the profile says, each above 0.
struct resource_factors {
    std::array<double, resource_count> times{1, 1, 1, 1, 1, 1, 1};
    double &operator[](resource which) { return times[static_cast<size_t>(which)]; }
    double operator[](resource which) const { return times[static_cast<size_t>(which)]; }
};

void speed_up(hardware_profile &of, const resource_factors &by);

}  // namespace moorage::core
