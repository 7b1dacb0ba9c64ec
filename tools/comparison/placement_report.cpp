// placement_report.cpp - the figures of placements, and their JSON.
#include "tools/comparison/placement_report.h"

#include <algorithm>

#include "core/base/json.h"
#include "core/base/text.h"
#include "core/report/figures.h"
#include "tools/comparison/page.h"

namespace moorage::core {

namespace {

std::string counted(uint64_t count, const char *noun) {
    return format("{} {}{}", with_commas(count), noun, count == 1 ? "" : "s");
}

json memory_json(const scene &scene, const plan &plan) {
    const std::vector<uint64_t> used = device_used_bytes(scene, plan.copies);
    json servers = json::array();
    for (uint32_t server = 0; server < scene.cluster.servers; ++server) {
        uint64_t taken = 0, room = 0;
        json devices = json::array();
        for (uint32_t g = 0; g < scene.cluster.devices(); ++g) {
            if (scene.cluster.device_server[g] != server) continue;
            taken += used[g], room += scene.cluster.device_bytes[g];
            devices.push_back({{"used", used[g]}, {"capacity", scene.cluster.device_bytes[g]}});
        }
        servers.push_back({{"server", server},
                           {"name", scene.server_names[server]},
                           {"used", taken},
                           {"capacity", room},
                           {"devices", std::move(devices)}});
    }
    return servers;
}

json homes_json(const scene &scene, const latency_figures &figures) {
    json homes = json::array();
    for (uint32_t home = 0; home < scene.cluster.homes; ++home)
        homes.push_back({{"name", scene.home_names[home]},
                         {"server", scene.cluster.home_server[home]},
                         {"tokens_per_s", stable(scene.demand.home_tokens_per_s[home])},
                         {"latency_ms", stable(1e3 * figures.home_token_s[home])},
                         {"local_ratio", stable(figures.home_local_ratio[home])}});
    return homes;
}

json settings_json(const placement_scene &scene) {
    json settings = json::object();
    for (const auto &[key, value] : scene.settings) settings[key] = value;
    return settings;
}

json row_json(const placement_report &report, const placement_row &row) {
    const placement_scene &scene = report.scenes[row.scene];
    if (row.failed) {
        json failed = {{"policy", row.placement.policy}, {"failed", row.refusal}};
        if (row.death->is_object()) failed["death"] = *row.death;
        failed["settings"] = settings_json(scene);
        return failed;
    }
    if (!row.refusal.empty())
        return {{"policy", row.placement.policy},
                {"refusal", row.refusal},
                {"settings", settings_json(scene)}};
    const auto [value, meaning] = objective(report, row);
    json plan_json = to_json(scene.setup, row.placement);
    json figures = {{"policy", row.placement.policy},
                    {"objective", stable(value)},
                    {"objective_is", meaning},
                    {"latency_ms", stable(latency_ms(row))}};
    if (in_batches(scene.setup))
        figures["batch_latency_ms"] = stable(1e3 * row.figures.batch_token_s);
    if (has_cloud(report, row)) figures["empty_latency_ms"] = stable(empty_latency_ms(row));
    figures["local_ratio"] = stable(row.figures.local_ratio);
    figures["calls_per_s"] = stable(row.figures.calls_per_s);
    figures["remote_calls_per_s"] = stable(row.figures.remote_calls_per_s);
    figures["copies"] = row.placement.copies.size();
    figures["memory"] = memory_json(scene.setup, row.placement);
    figures["homes"] = homes_json(scene.setup, row.figures);
    figures["statistics"] = report.statistics;
    figures["settings"] = settings_json(scene);
    for (auto &[key, part] : plan_json.items()) figures[key] = std::move(part);
    return figures;
}

}  // namespace

const scene &shown_scene(const placement_report &report) {
    for (const placement_scene &scene : report.scenes)
        if (scene.setup.cluster.servers != 0) return scene.setup;
    return report.scenes[0].setup;
}

double latency_ms(const placement_row &row) { return 1e3 * row.figures.token_s; }
double empty_latency_ms(const placement_row &row) { return 1e3 * row.figures.empty_s; }

bool in_batches(const scene &scene) {
    return std::any_of(scene.demand.home_batch.begin(), scene.demand.home_batch.end(),
                       [](double batch) { return batch > 1; });
}

bool has_cloud(const placement_report &report, const placement_row &row) {
    return report.scenes[row.scene].setup.cluster.has_cloud();
}

std::pair<double, const char *> objective(const placement_report &report,
                                          const placement_row &row) {
    if (has_cloud(report, row)) return {1e3 * row.figures.saved_s, "saved_ms"};
    return {row.figures.remote_calls_per_s, "remote_calls_per_s"};
}

std::pair<uint64_t, uint64_t> memory_bytes(const scene &scene, const plan &plan) {
    uint64_t used = 0, room = 0;
    for (const uint64_t bytes : device_used_bytes(scene, plan.copies)) used += bytes;
    for (const uint64_t bytes : scene.cluster.device_bytes) room += bytes;
    return {used, room};
}

std::vector<std::vector<double>> layer_shares(const scene &scene, const plan &plan) {
    const demand_arrays &demand = scene.demand;
    std::vector<uint32_t> first_layer(demand.models + 1, 0);
    for (uint32_t m = 0; m < demand.models; ++m)
        first_layer[m + 1] = first_layer[m] + demand.model_layers[m];
    std::vector<std::vector<double>> shares(scene.cluster.servers,
                                            std::vector<double>(first_layer.back()));
    // Copies are in order of experts, so a second copy at a server is one of the expert before.
    std::vector<uint32_t> last(scene.cluster.servers, demand.experts());
    for (const moorage_copy &copy : plan.copies) {
        const uint32_t server = scene.cluster.device_server[copy.device];
        if (last[server] == copy.expert) continue;
        last[server] = copy.expert;
        const uint32_t m = model_of(scene, copy.expert), experts = demand.model_experts[m];
        shares[server][first_layer[m] + (copy.expert - demand.model_first[m]) / experts] +=
            1.0 / experts;
    }
    return shares;
}

std::string short_key(const std::string &key) {
    const size_t dot = key.rfind('.');
    return dot == std::string::npos ? key : key.substr(dot + 1);
}

std::string scene_text(const scene &scene) {
    std::string text = counted(scene.cluster.servers, "server");
    if (scene.cluster.devices() != scene.cluster.servers)
        text += " with " + counted(scene.cluster.devices(), "device");
    if (scene.cluster.homes > scene.cluster.servers)
        text += ", " + counted(scene.cluster.homes - scene.cluster.servers, "user");
    text += scene.cluster.has_cloud() ? ", a cloud; " : ", no cloud; ";
    return text + counted(scene.demand.models, "model") + " with " +
           counted(scene.demand.experts(), "expert");
}

json to_json(const placement_report &report) {
    if (report.rows.size() == 1 && report.rows[0].refusal.empty())
        return row_json(report, report.rows[0]);
    json results = json::array();
    for (const placement_row &row : report.rows) results.push_back(row_json(report, row));
    return {{"title", report.title}, {"results", std::move(results)}};
}

std::string to_html(const placement_report &report, const std::string &command) {
    json results = json::array();
    for (const placement_row &row : report.rows) {
        const scene &scene = report.scenes[row.scene].setup;
        results.push_back(row_json(report, row));
        json &entry = results.back();
        entry.erase("placement");  // the page draws shares of layers
        for (const fact &stated : row.placement.facts) entry["facts"][stated.name] = stated.value;
        if (row.refusal.empty()) entry["layer_shares"] = layer_shares(scene, row.placement);
    }
    json data = {{"results", std::move(results)}};
    data["cluster"] = report.scenes.empty() ? "" : scene_text(shown_scene(report));
    data["statistics"] = fmt::format("{}", fmt::join(report.statistics, "; "));
    if (!report.scenes.empty()) {
        data["servers"] = shown_scene(report).server_names;
        data["models_layers"] = shown_scene(report).demand.model_layers;
    }
    return to_html({.title = report.title.empty() ? "moorage placement" : report.title,
                    .kind = "placement",
                    .command = command,
                    .text = report.rows.empty() ? "nothing was placed\n" : to_text(report),
                    .data = std::move(data)});
}

}  // namespace moorage::core
