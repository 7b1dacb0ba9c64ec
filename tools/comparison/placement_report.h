// placement_report.h - placements of experts over servers, one or several side by side. Shows the
// policy's advice and the latency model's figures, as text, JSON and a page.
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "core/base/json_fwd.h"
#include "tools/placement/plan.h"
#include "tools/placement/scene.h"
#include "moorage/latency.hpp"

namespace moorage::core {

// One policy on one cluster.
struct placement_row {
    size_t scene = 0;     // of the report's
    plan placement;       // only `policy` is set if it was refused
    std::string refusal;  // the policy's reason for no plan, or why the row failed
    latency_figures figures;
    bool failed = false;  // an error, or the policy died
    json_box death;       // for a policy that died: who, where, why
};

struct placement_scene {
    scene setup;
    // "cluster.servers.expert_memory_bytes", "2.5e9": the swept settings, in the order of the
    // sweeps.
    std::vector<std::pair<std::string, std::string>> settings;
};

struct placement_report {
    std::string title;                    // heading; may be empty
    std::vector<std::string> statistics;  // sources of the demand, one sentence each
    std::vector<placement_scene> scenes;
    std::vector<placement_row> rows;
};

// The first cluster that could be made. The report states its size.
const scene &shown_scene(const placement_report &report);

// Milliseconds of a token in its MoE layers; and the same with nothing placed, which is known with
// a cloud only.
double latency_ms(const placement_row &row);
double empty_latency_ms(const placement_row &row);
// Whether tokens of some home pass a layer together. Then the latency in batches differs.
bool in_batches(const scene &scene);
bool has_cloud(const placement_report &report, const placement_row &row);
// SlimCaching's F, the milliseconds saved a token, if there is a cloud. Otherwise Prism's Eq. (2),
// remote calls a second. The second value says which.
std::pair<double, const char *> objective(const placement_report &report, const placement_row &row);

// Sums over devices: used bytes and available bytes.
std::pair<uint64_t, uint64_t> memory_bytes(const scene &scene, const plan &plan);
// The share of each layer's experts that the server holds: [servers][layers]. Layers of all models,
// one model after the other.
std::vector<std::vector<double>> layer_shares(const scene &scene, const plan &plan);
// The last word of a key, "expert_memory_bytes".
std::string short_key(const std::string &key);
// "8 servers with 8 devices, 20 users, a cloud; 2 models with 256 experts"
std::string scene_text(const scene &scene);

// At most 80 columns.
std::string to_text(const placement_report &report);
// One row: the contract's object. Several: {"results": [...]}, each with "settings".
json to_json(const placement_report &report);
// Map of servers and layers, latency by policy, latency against the swept setting.
std::string to_html(const placement_report &report, const std::string &command);

}  // namespace moorage::core
