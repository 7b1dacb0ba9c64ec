// placement_report.h - placements of experts over servers, one or several side by side: what a
// policy advised, what the latency model says of it, as text, JSON and a page.
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "core/base/json_fwd.h"
#include "core/placement/plan.h"
#include "core/placement/scene.h"
#include "moorage/latency.hpp"

namespace moorage::core {

// One policy on one cluster.
struct placement_row {
    size_t scene = 0;     // of the report's
    plan made;            // `policy` alone where it was refused
    std::string refusal;  // the policy's, where it found no plan; or why the row failed
    latency_figures figures;
    bool failed = false;  // an error, or the policy died
    json_box death;       // of a policy that died: who, where, of what
};

struct placement_scene {
    scene of;
    // "cluster.servers.expert_memory_bytes", "2.5e9": what was swept, in the order of the sweeps.
    std::vector<std::pair<std::string, std::string>> settings;
};

struct placement_report {
    std::string title;                    // heading; may be empty
    std::vector<std::string> statistics;  // where the demand comes from, a sentence each
    std::vector<placement_scene> scenes;
    std::vector<placement_row> rows;
};

// The first cluster that could be made, whose size the report states.
const scene &shown_scene(const placement_report &report);

// Milliseconds of a token in its MoE layers, and that with nothing placed: known with a cloud only.
double latency_ms(const placement_row &row);
double empty_latency_ms(const placement_row &row);
// Whether tokens of some home pass a layer together, so that the latency in batches is another.
bool in_batches(const scene &of);
bool has_cloud(const placement_report &report, const placement_row &row);
// SlimCaching's F, the milliseconds saved a token, where there is a cloud; else Prism's Eq. (2),
// remote calls a second. The second tells which.
std::pair<double, const char *> objective(const placement_report &report, const placement_row &row);

// Sums over devices: bytes used and there.
std::pair<uint64_t, uint64_t> memory_bytes(const scene &of, const plan &made);
// Experts of each layer that the server holds, over the layer's experts: [servers][layers], layers
// of all models one after the other.
std::vector<std::vector<double>> layer_shares(const scene &of, const plan &made);
// The last word of a key, "expert_memory_bytes".
std::string short_key(const std::string &key);
// "8 servers with 8 devices, 20 users, a cloud; 2 models with 256 experts"
std::string scene_text(const scene &of);

// At most 80 columns.
std::string to_text(const placement_report &report);
// One row: the contract's object. Several: {"results": [...]}, each with "settings".
json to_json(const placement_report &report);
// Map of servers and layers, latency by policy, latency against what was swept.
std::string to_html(const placement_report &report, const std::string &command);

}  // namespace moorage::core
