// machine_table.h - the stores, devices and links of a run, in the form in which policies get them
// (machine.h).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/execute/cost_model.h"
#include "core/host/lent_memory.h"
#include "moorage/module.h"

namespace moorage::core {

// The GPUs, the CPU, then servers at these distances. A device reads the store of its number.
lent_vector<moorage_device> table_of_devices(uint32_t gpus, std::span<const uint8_t> distances);

struct machine_table {
    // `slots`: whole experts, for each GPU. `host_slots`: MOORAGE_NONE if host memory has every
    // expert; otherwise there is a disk.
    machine_table(const device_costs &costs, std::span<const uint32_t> slots, uint32_t host_slots,
                  std::span<const uint8_t> distances);
    // Borrowed by `limits`.
    void show_in(moorage_limits &limits) const;

    lent_vector<moorage_device> devices;
    std::vector<moorage_store> stores;
    std::vector<moorage_link> links;
};

}  // namespace moorage::core
