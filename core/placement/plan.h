// plan.h - a placement: copies of experts on devices, checked, and as a file.
//
// The file is JSON, what `moorage place --out` (or --json) writes: devices and models are named, so
// that a plan is refused by a cluster it was not made for.
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
#include "core/placement/scene.h"
#include "moorage/latency.hpp"
#include "moorage/placement.h"

namespace moorage::core {

struct plan {
    std::string policy;
    std::vector<moorage_copy> copies;  // ascending by expert, then device; none twice
    std::vector<fact> facts;
    double seconds = 0;  // the policy's own time
};

// Whether every index is in range, no copy there twice, no device above its memory and, without a
// cloud, every expert there of a model that a home asks for. Sorts the copies.
status check_plan(const scene &of, plan &made);

// Bytes of experts on each device, and of one expert by its number.
std::vector<uint64_t> device_used_bytes(const scene &of, std::span<const moorage_copy> copies);
uint32_t model_of(const scene &of, uint32_t expert);
// "expert 3 of layer 1", with its model where there are several.
std::string expert_text(const scene &of, uint32_t expert);

// The figures of a plan by the latency model of the SDK.
latency_figures predict(const scene &of, const plan &made);

// `policy`, `placement`, `devices`, `models`, `facts` and `seconds` of the file; place_command adds
// the figures. Rows of `placement` are [server, gpu, layer, expert], and [..., model] where there
// are several models; gpu counts the server's own devices.
json to_json(const scene &of, const plan &made);
// The reverse, for the same devices and models, and checked as above. A file of several results is
// refused. `name` stands for the file in messages.
result<plan> read_plan(const std::filesystem::path &file, const scene &of);
result<plan> parse_plan(std::string_view text, const std::string &name, const scene &of);

}  // namespace moorage::core
