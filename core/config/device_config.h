// device_config.h - the GPUs of one machine, as [hardware] and [memory] describe them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/config/executors.h"
#include "core/config/section.h"

namespace moorage::core {

struct device_config {
    // [hardware] devices: device profiles. Empty: one device, that of [hardware] profile.
    std::vector<std::string> profiles;
    std::string peer;           // a link profile between them; empty: through host memory
    bool whole_layers = false;  // [hardware] spread = "layers": devices get whole layers, not
                                // single experts
    // [memory] device_experts: slots of each device. Empty: [memory] experts or bytes, divided.
    std::vector<uint32_t> experts;
};

inline constexpr uint32_t gpus_max = 8;  // of one machine

// Reads the keys that are given and checks them for the executor `executor`, alone or in a cluster.
void read_devices(section_reader &hardware, section_reader &memory, const executor_kind &executor,
                  bool in_cluster, device_config &devices);

}  // namespace moorage::core
