// device_config.h - several GPUs of one machine, as [hardware] and [memory] describe them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/config/executors.h"
#include "core/config/section.h"

namespace moorage::core {

struct device_config {
    // [hardware] devices: device profiles; empty: one, of [hardware] profile.
    std::vector<std::string> profiles;
    std::string peer;           // a link profile between them; empty: through host memory
    bool whole_layers = false;  // [hardware] spread = "layers": of experts in place of pages
    // [memory] device_experts: slots of each; empty: [memory] experts or bytes, divided.
    std::vector<uint32_t> experts;
};

inline constexpr uint32_t gpus_max = 8;  // of one machine

// What is given of them, of a run on such an executor, or in a cluster.
void read_devices(section_reader &hardware, section_reader &memory, const executor_kind &where,
                  bool in_cluster, device_config &out);

}  // namespace moorage::core
