// plan.h - a placement: copies of experts on devices, checked, and as a file.
//
// The file is JSON, what `moorage place --json` writes: devices and models are named, so that a
// plan is refused by a cluster it was not made for.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "core/base/json.h"
#include "core/base/result.h"
#include "core/placement/scene.h"
#include "moorage/placement.h"

namespace moorage::core {

struct fact {
    std::string name;
    double value = 0;
};

struct plan {
    std::string policy;
    std::vector<moorage_copy> copies;  // ascending by expert, then device; none twice
    std::vector<fact> facts;
    double seconds = 0;  // the policy's own time
};

// Whether every index is in range, no copy there twice, no device above its memory and, without a
// cloud, every expert there that a home asks for. Sorts the copies.
status check_plan(const scene &of, plan &made);

// Bytes of experts on each device.
std::vector<uint64_t> device_used_bytes(const scene &of, std::span<const moorage_copy> copies);

// `placement`, `devices` and `models` of the file; place_command adds the figures.
json to_json(const scene &of, const plan &made);
result<plan> read_plan(const std::filesystem::path &file, const scene &of);

}  // namespace moorage::core
