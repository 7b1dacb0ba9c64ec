// plan.cpp - the rules of a placement, and its file, which is not trusted.
#include "core/placement/plan.h"

#include <algorithm>

#include "core/base/json.h"
#include "core/base/mapped_file.h"
#include "core/base/text.h"

namespace moorage::core {

namespace {

constexpr uint64_t file_bytes_max = uint64_t{1} << 31;

std::string copy_text(const scene &of, const moorage_copy &copy) {
    return format("{} on {}", expert_text(of, copy.expert), of.device_names[copy.device]);
}

// The first device of each server, and one past the last.
std::vector<uint32_t> server_devices(const scene &of) {
    std::vector<uint32_t> first(of.cluster.servers + 1, 0);
    for (const uint32_t server : of.cluster.device_server) ++first[server + 1];
    for (uint32_t server = 0; server < of.cluster.servers; ++server)
        first[server + 1] += first[server];
    return first;
}

status check_copies(const scene &of, const std::vector<moorage_copy> &copies) {
    for (size_t i = 0; i < copies.size(); ++i) {
        const moorage_copy &copy = copies[i];
        if (copy.expert >= of.demand.experts())
            return error{format("the plan names expert {}, and there are {}", copy.expert,
                                of.demand.experts())};
        if (copy.device >= of.cluster.devices())
            return error{format("the plan names device {}, and there are {}", copy.device,
                                of.cluster.devices())};
        if (i > 0 && copies[i - 1].expert == copy.expert && copies[i - 1].device == copy.device)
            return error{format("the plan puts {} twice", copy_text(of, copy))};
    }
    return success();
}

status check_memory(const scene &of, const std::vector<moorage_copy> &copies) {
    const std::vector<uint64_t> used = device_used_bytes(of, copies);
    for (uint32_t device = 0; device < of.cluster.devices(); ++device)
        if (used[device] > of.cluster.device_bytes[device])
            return error{format("the plan puts {} bytes of experts on {}, which has room for {}",
                                used[device], of.device_names[device],
                                of.cluster.device_bytes[device])};
    return success();
}

// Does some home use the model?
bool asked_for(const scene &of, uint32_t model) {
    for (uint32_t home = 0; home < of.demand.homes; ++home)
        if (of.demand.home_model[size_t{home} * of.demand.models + model] > 0) return true;
    return false;
}

status check_coverage(const scene &of, const std::vector<moorage_copy> &copies) {
    if (of.cluster.has_cloud()) return success();
    std::vector<uint8_t> there(of.demand.experts());
    for (const moorage_copy &copy : copies) there[copy.expert] = 1;
    for (uint32_t model = 0; model < of.demand.models; ++model) {
        if (!asked_for(of, model)) continue;
        for (uint32_t e = of.demand.model_first[model]; e < of.demand.model_first[model + 1]; ++e)
            if (!there[e])
                return error{
                    format("the plan has no copy of {}, which is asked for, and there is no cloud",
                           expert_text(of, e))};
    }
    return success();
}

json models_json(const scene &of) {
    json models = json::array();
    for (uint32_t m = 0; m < of.demand.models; ++m)
        models.push_back({{"name", of.model_names[m]},
                          {"layers", of.demand.model_layers[m]},
                          {"experts", of.demand.model_experts[m]},
                          {"expert_bytes", of.demand.expert_bytes[m]}});
    return models;
}

// Reads one plan. The first error is returned.
class plan_reader {
public:
    plan_reader(const scene &of, const std::string &name) : of_(of), name_(name) {}

    result<plan> read(const json &root) {
        if (root.is_object() && root.contains("results"))
            return wrong("holds several results; write one with --out and a single policy");
        if (!root.is_object() || !root.contains("placement"))
            return wrong("is no plan: it has no \"placement\"; moorage place --out writes one");
        for (const auto part : {&plan_reader::read_devices, &plan_reader::read_models,
                                &plan_reader::read_policy, &plan_reader::read_copies})
            if (const status done = (this->*part)(root); !done) return done.failure();
        if (const status sound = check_plan(of_, made_); !sound) return wrong(sound.failure().text);
        return std::move(made_);
    }

private:
    error wrong(const std::string &why) const { return {format("{}: {}", name_, why)}; }
    // The difference between the plan's list and the cluster's own.
    status compare(const json &root, const char *key, const json &own) const {
        const auto at = root.find(key);
        if (at == root.end() || !at->is_array())
            return wrong(format("is no plan: \"{}\" is no list", key));
        if (at->size() != own.size())
            return wrong(
                format("was made for {} {}, and this cluster has {}; make one for it with "
                       "moorage place",
                       at->size(), key, own.size()));
        for (size_t i = 0; i < own.size(); ++i)
            if ((*at)[i] != own[i])
                return wrong(
                    format("was made for another cluster: {} {} is {} there and {} here; "
                           "make one for it with moorage place",
                           key, i, shown((*at)[i]), shown(own[i])));
        return success();
    }
    static std::string shown(const json &value) {
        std::string text = json_line(value);
        if (text.size() > 120) text = text.substr(0, 117) + "...";
        return text;
    }
    status read_devices(const json &root) { return compare(root, "devices", of_.device_names); }
    status read_models(const json &root) { return compare(root, "models", models_json(of_)); }
    status read_policy(const json &root) {
        if (const auto at = root.find("policy"); at != root.end() && at->is_string())
            made_.policy = at->get<std::string>();
        else
            return wrong("is no plan: \"policy\" is no text");
        if (const auto at = root.find("seconds"); at != root.end() && at->is_number())
            made_.seconds = at->get<double>();
        const auto facts = root.find("facts");
        if (facts == root.end() || !facts->is_object()) return success();
        for (const auto &[name, value] : facts->items())
            if (value.is_number()) made_.facts.push_back({name, value.get<double>()});
        return success();
    }
    status read_copies(const json &root) {
        const json &rows = root["placement"];
        if (!rows.is_array()) return wrong("is no plan: \"placement\" is no list");
        const uint64_t most = uint64_t{of_.demand.experts()} * of_.cluster.devices();
        if (rows.size() > most)
            return wrong(format("lists {} copies, and there can be {}", rows.size(), most));
        made_.copies.reserve(rows.size());
        for (size_t i = 0; i < rows.size(); ++i)
            if (const status done = read_copy(rows[i], i); !done) return done.failure();
        return success();
    }
    status read_copy(const json &row, size_t index) {
        const size_t width = of_.demand.models > 1 ? 5 : 4;
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
        const auto limit = [&](const char *what, uint64_t value, uint64_t count) -> status {
            if (value < count) return success();
            return wrong(format("placement {} names {} {}, and there {} {}", index, what, value,
                                count == 1 ? "is" : "are", count));
        };
        if (const status in = limit("server", server, of_.cluster.servers); !in) return in;
        if (const status in = limit("gpu", gpu, first_[server + 1] - first_[server]); !in)
            return in;
        if (const status in = limit("model", model, of_.demand.models); !in) return in;
        if (const status in = limit("layer", layer, of_.demand.model_layers[model]); !in) return in;
        if (const status in = limit("expert", expert, of_.demand.model_experts[model]); !in)
            return in;
        made_.copies.push_back(
            {static_cast<uint32_t>(of_.demand.model_first[model] +
                                   layer * of_.demand.model_experts[model] + expert),
             first_[server] + static_cast<uint32_t>(gpu)});
        return success();
    }

    const scene &of_;
    const std::string &name_;
    const std::vector<uint32_t> first_ = server_devices(of_);
    plan made_;
};

}  // namespace

status check_plan(const scene &of, plan &made) {
    std::sort(made.copies.begin(), made.copies.end(),
              [](const moorage_copy &a, const moorage_copy &b) {
                  return a.expert != b.expert ? a.expert < b.expert : a.device < b.device;
              });
    for (const auto check : {check_copies, check_memory, check_coverage})
        if (const status sound = check(of, made.copies); !sound) return sound;
    return success();
}

std::vector<uint64_t> device_used_bytes(const scene &of, std::span<const moorage_copy> copies) {
    std::vector<uint64_t> used(of.cluster.devices());
    for (const moorage_copy &copy : copies)
        used[copy.device] += of.demand.expert_bytes[model_of(of, copy.expert)];
    return used;
}

uint32_t model_of(const scene &of, uint32_t expert) {
    const auto &first = of.demand.model_first;
    return static_cast<uint32_t>(std::upper_bound(first.begin(), first.end(), expert) -
                                 first.begin() - 1);
}

std::string expert_text(const scene &of, uint32_t expert) {
    const uint32_t model = model_of(of, expert), experts = of.demand.model_experts[model],
                   at = expert - of.demand.model_first[model];
    return format("expert {} of layer {}{}", at % experts, at / experts,
                  of.demand.models > 1 ? " of " + of.model_names[model] : "");
}

json to_json(const scene &of, const plan &made) {
    const std::vector<uint32_t> first = server_devices(of);
    json placement = json::array(), facts = json::object();
    for (const moorage_copy &copy : made.copies) {
        const uint32_t model = model_of(of, copy.expert),
                       server = of.cluster.device_server[copy.device];
        const uint32_t at = copy.expert - of.demand.model_first[model];
        const uint32_t experts = of.demand.model_experts[model];
        json row = {server, copy.device - first[server], at / experts, at % experts};
        if (of.demand.models > 1) row.push_back(model);
        placement.push_back(std::move(row));
    }
    for (const fact &one : made.facts) facts[one.name] = one.value;
    return {{"policy", made.policy},      {"placement", std::move(placement)},
            {"devices", of.device_names}, {"models", models_json(of)},
            {"facts", std::move(facts)},  {"seconds", made.seconds}};
}

result<plan> parse_plan(std::string_view text, const std::string &name, const scene &of) {
    const result<json> root = read_json(text);
    if (!root) return error{format("{}: is no JSON: {}", name, root.failure().text)};
    return plan_reader(of, name).read(*root);
}

latency_figures predict(const scene &of, const plan &made) {
    latency_model model(of.cluster.view(), of.demand.view());
    model.assign(made.copies);
    return model.figures();
}

result<plan> read_plan(const std::filesystem::path &file, const scene &of) {
    auto mapped = mapped_file::open(file);
    if (!mapped) return mapped.failure();
    const std::span<const std::byte> bytes = mapped->bytes();
    if (bytes.size() > file_bytes_max)
        return error{format("{}: {} bytes, and a plan has {} at most", file.string(), bytes.size(),
                            file_bytes_max)};
    return parse_plan({reinterpret_cast<const char *>(bytes.data()), bytes.size()}, file.string(),
                      of);
}

}  // namespace moorage::core
