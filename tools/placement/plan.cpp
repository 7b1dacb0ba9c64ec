// plan.cpp - the rules of a placement, and its file, which is not trusted.
#include "tools/placement/plan.h"

#include <algorithm>

#include "core/base/json.h"
#include "core/base/mapped_file.h"
#include "core/base/text.h"

namespace moorage::core {

namespace {

constexpr uint64_t file_bytes_max = uint64_t{1} << 31;

std::string copy_text(const scene &scene, const moorage_copy &copy) {
    return format("{} on {}", expert_text(scene, copy.expert), scene.device_names[copy.device]);
}

// The first device of each server, and one past the last.
std::vector<uint32_t> server_devices(const scene &scene) {
    std::vector<uint32_t> first(scene.cluster.servers + 1, 0);
    for (const uint32_t server : scene.cluster.device_server) ++first[server + 1];
    for (uint32_t server = 0; server < scene.cluster.servers; ++server)
        first[server + 1] += first[server];
    return first;
}

status check_copies(const scene &scene, const std::vector<moorage_copy> &copies) {
    for (size_t i = 0; i < copies.size(); ++i) {
        const moorage_copy &copy = copies[i];
        if (copy.expert >= scene.demand.experts())
            return error{format("the plan names expert {}, and there are {}", copy.expert,
                                scene.demand.experts())};
        if (copy.device >= scene.cluster.devices())
            return error{format("the plan names device {}, and there are {}", copy.device,
                                scene.cluster.devices())};
        if (i > 0 && copies[i - 1].expert == copy.expert && copies[i - 1].device == copy.device)
            return error{format("the plan puts {} twice", copy_text(scene, copy))};
    }
    return success();
}

status check_memory(const scene &scene, const std::vector<moorage_copy> &copies) {
    const std::vector<uint64_t> used = device_used_bytes(scene, copies);
    for (uint32_t device = 0; device < scene.cluster.devices(); ++device)
        if (used[device] > scene.cluster.device_bytes[device])
            return error{format("the plan puts {} bytes of experts on {}, which has room for {}",
                                used[device], scene.device_names[device],
                                scene.cluster.device_bytes[device])};
    return success();
}

status check_coverage(const scene &scene, const std::vector<moorage_copy> &copies) {
    if (scene.cluster.has_cloud()) return success();
    std::vector<uint8_t> has_copy(scene.demand.experts());
    for (const moorage_copy &copy : copies) has_copy[copy.expert] = 1;
    for (uint32_t model = 0; model < scene.demand.models; ++model) {
        if (!scene.demand.is_requested(model)) continue;
        for (uint32_t e = scene.demand.model_first[model]; e < scene.demand.model_first[model + 1];
             ++e)
            if (!has_copy[e])
                return error{
                    format("the plan has no copy of {}, which is asked for, and there is no cloud",
                           expert_text(scene, e))};
    }
    return success();
}

json models_json(const scene &scene) {
    json models = json::array();
    for (uint32_t m = 0; m < scene.demand.models; ++m)
        models.push_back({{"name", scene.model_names[m]},
                          {"layers", scene.demand.model_layers[m]},
                          {"experts", scene.demand.model_experts[m]},
                          {"expert_bytes", scene.demand.expert_bytes[m]}});
    return models;
}

// Reads one plan. The first error is returned.
class plan_reader {
public:
    plan_reader(const scene &scene, const std::string &name) : scene_(scene), name_(name) {}

    result<plan> read(const json &root) {
        if (root.is_object() && root.contains("results"))
            return wrong("holds several results; write one with --out and a single policy");
        if (!root.is_object() || !root.contains("placement"))
            return wrong("is no plan: it has no \"placement\"; moorage place --out writes one");
        for (const auto part : {&plan_reader::read_devices, &plan_reader::read_models,
                                &plan_reader::read_policy, &plan_reader::read_copies})
            if (const status done = (this->*part)(root); !done) return done.failure();
        if (const status sound = check_plan(scene_, plan_); !sound)
            return wrong(sound.failure().text);
        return std::move(plan_);
    }

private:
    error wrong(const std::string &problem) const { return {format("{}: {}", name_, problem)}; }
    // The difference between the plan's list and the cluster's own.
    status compare(const json &root, const char *key, const json &expected) const {
        const auto found = root.find(key);
        if (found == root.end() || !found->is_array())
            return wrong(format("is no plan: \"{}\" is no list", key));
        if (found->size() != expected.size())
            return wrong(
                format("was made for {} {}, and this cluster has {}; make one for it with "
                       "moorage place",
                       found->size(), key, expected.size()));
        for (size_t i = 0; i < expected.size(); ++i)
            if ((*found)[i] != expected[i])
                return wrong(
                    format("was made for another cluster: {} {} is {} there and {} here; "
                           "make one for it with moorage place",
                           key, i, shown((*found)[i]), shown(expected[i])));
        return success();
    }
    static std::string shown(const json &value) {
        std::string text = json_line(value);
        if (text.size() > 120) text = text.substr(0, 117) + "...";
        return text;
    }
    status read_devices(const json &root) { return compare(root, "devices", scene_.device_names); }
    status read_models(const json &root) { return compare(root, "models", models_json(scene_)); }
    status read_policy(const json &root) {
        if (const auto found = root.find("policy"); found != root.end() && found->is_string())
            plan_.policy = found->get<std::string>();
        else
            return wrong("is no plan: \"policy\" is no text");
        if (const auto found = root.find("seconds"); found != root.end() && found->is_number())
            plan_.seconds = found->get<double>();
        const auto facts = root.find("facts");
        if (facts == root.end() || !facts->is_object()) return success();
        for (const auto &[name, value] : facts->items())
            if (value.is_number()) plan_.facts.push_back({name, value.get<double>()});
        return success();
    }
    status read_copies(const json &root) {
        const json &rows = root["placement"];
        if (!rows.is_array()) return wrong("is no plan: \"placement\" is no list");
        const uint64_t most = uint64_t{scene_.demand.experts()} * scene_.cluster.devices();
        if (rows.size() > most)
            return wrong(format("lists {} copies, and there can be {}", rows.size(), most));
        plan_.copies.reserve(rows.size());
        for (size_t i = 0; i < rows.size(); ++i)
            if (const status done = read_copy(rows[i], i); !done) return done.failure();
        return success();
    }
    status read_copy(const json &row, size_t index) {
        const size_t width = scene_.demand.models > 1 ? 5 : 4;
        if (!row.is_array() || row.size() != width)
            return wrong(
                format("placement {} is {}, expected {} numbers: [server, gpu, layer, "
                       "expert{}]",
                       index, shown(row), width, width == 5 ? ", model" : ""));
        uint64_t values[5] = {};
        for (size_t i = 0; i < width; ++i) {
            if (!row[i].is_number_unsigned())
                return wrong(format("placement {} is {}; its numbers are whole and not negative",
                                    index, shown(row)));
            values[i] = row[i].get<uint64_t>();
        }
        const auto [server, gpu, layer, expert, model] = values;
        const auto limit = [&](const char *kind, uint64_t value, uint64_t count) -> status {
            if (value < count) return success();
            return wrong(format("placement {} names {} {}, and there {} {}", index, kind, value,
                                count == 1 ? "is" : "are", count));
        };
        if (const status in_range = limit("server", server, scene_.cluster.servers); !in_range)
            return in_range;
        if (const status in_range = limit("gpu", gpu, first_[server + 1] - first_[server]);
            !in_range)
            return in_range;
        if (const status in_range = limit("model", model, scene_.demand.models); !in_range)
            return in_range;
        if (const status in_range = limit("layer", layer, scene_.demand.model_layers[model]);
            !in_range)
            return in_range;
        if (const status in_range = limit("expert", expert, scene_.demand.model_experts[model]);
            !in_range)
            return in_range;
        plan_.copies.push_back(
            {static_cast<uint32_t>(scene_.demand.model_first[model] +
                                   layer * scene_.demand.model_experts[model] + expert),
             first_[server] + static_cast<uint32_t>(gpu)});
        return success();
    }

    const scene &scene_;
    const std::string &name_;
    const std::vector<uint32_t> first_ = server_devices(scene_);
    plan plan_;
};

}  // namespace

status check_plan(const scene &scene, plan &plan) {
    std::sort(plan.copies.begin(), plan.copies.end(),
              [](const moorage_copy &a, const moorage_copy &b) {
                  return a.expert != b.expert ? a.expert < b.expert : a.device < b.device;
              });
    for (const auto check : {check_copies, check_memory, check_coverage})
        if (const status sound = check(scene, plan.copies); !sound) return sound;
    return success();
}

std::vector<uint64_t> device_used_bytes(const scene &scene, std::span<const moorage_copy> copies) {
    std::vector<uint64_t> used(scene.cluster.devices());
    for (const moorage_copy &copy : copies)
        used[copy.device] += scene.demand.expert_bytes[model_of(scene, copy.expert)];
    return used;
}

uint32_t model_of(const scene &scene, uint32_t expert) {
    const auto &first = scene.demand.model_first;
    return static_cast<uint32_t>(std::upper_bound(first.begin(), first.end(), expert) -
                                 first.begin() - 1);
}

std::string expert_text(const scene &scene, uint32_t expert) {
    const uint32_t model = model_of(scene, expert), experts = scene.demand.model_experts[model],
                   index = expert - scene.demand.model_first[model];
    return format("expert {} of layer {}{}", index % experts, index / experts,
                  scene.demand.models > 1 ? " of " + scene.model_names[model] : "");
}

json to_json(const scene &scene, const plan &plan) {
    const std::vector<uint32_t> first = server_devices(scene);
    json placement = json::array(), facts = json::object();
    for (const moorage_copy &copy : plan.copies) {
        const uint32_t model = model_of(scene, copy.expert),
                       server = scene.cluster.device_server[copy.device];
        const uint32_t index = copy.expert - scene.demand.model_first[model];
        const uint32_t experts = scene.demand.model_experts[model];
        json row = {server, copy.device - first[server], index / experts, index % experts};
        if (scene.demand.models > 1) row.push_back(model);
        placement.push_back(std::move(row));
    }
    for (const fact &fact : plan.facts) facts[fact.name] = fact.value;
    return {{"policy", plan.policy},         {"placement", std::move(placement)},
            {"devices", scene.device_names}, {"models", models_json(scene)},
            {"facts", std::move(facts)},     {"seconds", plan.seconds}};
}

result<plan> parse_plan(std::string_view text, const std::string &name, const scene &scene) {
    const result<json> root = read_json(text);
    if (!root) return error{format("{}: is no JSON: {}", name, root.failure().text)};
    return plan_reader(scene, name).read(*root);
}

latency_figures predict(const scene &scene, const plan &plan) {
    latency_model model(scene.cluster.view(), scene.demand.view());
    model.assign(plan.copies);
    return model.figures();
}

result<plan> read_plan(const std::filesystem::path &file, const scene &scene) {
    auto mapped = mapped_file::open(file);
    if (!mapped) return mapped.failure();
    const std::span<const std::byte> bytes = mapped->bytes();
    if (bytes.size() > file_bytes_max)
        return error{format("{}: {} bytes, and a plan has {} at most", file.string(), bytes.size(),
                            file_bytes_max)};
    return parse_plan({reinterpret_cast<const char *>(bytes.data()), bytes.size()}, file.string(),
                      scene);
}

}  // namespace moorage::core
