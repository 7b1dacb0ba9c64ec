// plan.h - a placement: copies of experts on devices, checked, and its file.
//
// The file is the JSON that `moorage place --out` (or --json) writes. It names devices and models,
// so that other clusters refuse the plan.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/fact.h"
#include "core/base/json_fwd.h"
#include "core/base/result.h"
#include "tools/placement/scene.h"
#include "moorage/latency.hpp"
#include "moorage/placement.h"

namespace moorage::core {

struct plan {
    std::string policy;
    std::vector<moorage_copy> copies;  // ascending by expert, then device; no duplicates
    std::vector<fact> facts;
    double seconds = 0;  // the policy's own time
};

// Checks that every index is in range, no copy occurs twice, and no device exceeds its memory.
// Without a cloud, every expert of a model that some home uses must have a copy. Sorts the copies.
status check_plan(const scene &scene, plan &plan);

// Bytes of experts on each device, and bytes of the expert with a given number.
std::vector<uint64_t> device_used_bytes(const scene &scene, std::span<const moorage_copy> copies);
uint32_t model_of(const scene &scene, uint32_t expert);
// "expert 3 of layer 1", with its model if there are several.
std::string expert_text(const scene &scene, uint32_t expert);

// The figures of a plan by the latency model of the SDK.
latency_figures predict(const scene &scene, const plan &plan);

// The parts `policy`, `placement`, `devices`, `models`, `facts` and `seconds` of the file;
// place_command adds the figures. Rows of `placement` are [server, gpu, layer, expert]. With
// several models they are [server, gpu, layer, expert, model]. gpu is the index among the server's
// own devices.
json to_json(const scene &scene, const plan &plan);
// Reads such a file for the same devices and models, and checks it as check_plan() does. Refuses a
// file of several results. `name` stands for the file in messages.
result<plan> read_plan(const std::filesystem::path &file, const scene &scene);
result<plan> parse_plan(std::string_view text, const std::string &name, const scene &scene);

}  // namespace moorage::core
