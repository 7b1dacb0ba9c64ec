// memory_plan.h - the division of a run's fast memory: slots of the cache, buffer, segments.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/base/result.h"
#include "core/config/run_config.h"
#include "core/execute/cost_model.h"

namespace moorage::core {

struct memory_request {
    const run_config *config = nullptr;
    const cost_model *costs = nullptr;
    std::span<const hardware_profile> devices = {};  // if there are several
    uint32_t layers = 0, experts = 0, top_k = 0;     // of the source
    // The room that a GPU has left for experts, if the configuration gives no size.
    std::optional<uint64_t> gpu_room_bytes;
};

struct memory_plan {
    uint32_t experts = 0;  // whole experts that the cache holds
    uint32_t slots = 0;    // of the cache: top segments, or whole experts
    struct share_of_device {
        uint32_t experts, slots;
    };
    std::vector<share_of_device> devices;  // for each device; they sum to the two above
    uint32_t buffer_slots = 0;             // experts of the transfer buffer, on each device
    uint32_t rows = 0;                     // of an expert's intermediate dimension ...
    uint32_t top_rows = 0;                 // ... and of its top segment
    // Splits are multiples of so many rows if a budget may choose them. 0: it may not.
    uint32_t part_rows = 0;
    double share = 1;  // part of an expert in its top segment
    uint32_t transfers_max = 0;
    // Experts that host memory holds if others are read from disk. 0: all, or the processor is the
    // device; then `experts` is that number.
    uint32_t host_experts = 0;
    std::string misfit;      // what the emulated devices lack; empty: it fits
    bool from_disk = false;  // loads of a processor read absent experts from disk
    // The processor is the device and has room for every whole expert. So the model's own memory is
    // fast memory, and nothing is copied.
    bool in_place = false;
    bool split() const { return share < 1; }
    std::vector<uint32_t> device_experts() const;
    std::vector<uint32_t> device_slots() const;
    // Slots beside the cache's, of either kind.
    uint32_t slots_beside_cache() const;
};

// A share of all experts, as whole experts, rounded down.
uint64_t share_of_experts(double share, uint64_t total_experts);

// Plans as configured. Without a size, as many experts as fit. Remarks for the user are added to
// `warnings`. Errors name the file, the value and a remedy.
result<memory_plan> plan_memory(const memory_request &request, std::vector<std::string> &warnings);

}  // namespace moorage::core
