// hardware.cpp - finds profile and shape files by name and loads them.
#include "core/config/hardware.h"

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <set>

#include "core/base/log.h"
#include "core/base/text.h"
#include "core/config/document.h"
#include "core/config/profile_file.h"

namespace moorage::core {

namespace {

namespace fs = std::filesystem;

// Names that shapes give themselves are searched for only in the first folder.
constexpr const char *shape_folders[] = {"configs/models", "configs/models/quantised"};

std::vector<fs::path> folders_of(std::string_view kind) {
    return {fs::path("hw_profiles") / kind, "hw_profiles/measured"};
}

bool is_path(const std::string &name) {
    return name.find('/') != std::string::npos || name.ends_with(".toml");
}

bool is_file(const fs::path &path) {
    std::error_code code;
    return fs::is_regular_file(path, code);
}

std::vector<fs::path> roots_from(const fs::path &base) {
    std::vector<fs::path> roots = {base};
    for (fs::path &root : data_roots()) roots.push_back(std::move(root));
    return roots;
}

// The .toml files of a folder under every root, sorted, so that results do not depend on the file
// system.
std::vector<fs::path> files_in(const std::vector<fs::path> &roots, const fs::path &folder) {
    std::vector<fs::path> files;
    for (const fs::path &root : roots) {
        std::error_code code;
        const auto first = static_cast<ptrdiff_t>(files.size());
        for (fs::directory_iterator found(root / folder, code), end; !code && found != end;
             found.increment(code))
            if (found->path().extension() == ".toml" && is_file(found->path()))
                files.push_back(found->path());
        std::sort(files.begin() + first, files.end());
    }
    return files;
}

// Each name once. Files of hw_profiles/measured are listed only if they are of this kind.
std::vector<std::string> names_of(const std::vector<fs::path> &roots, std::string_view kind) {
    std::set<std::string> names;
    for (const fs::path &folder : folders_of(kind))
        for (const fs::path &file : files_in(roots, folder)) {
            if (folder.filename() == "measured") {
                const auto text = read_document(file);
                const auto root =
                    text ? parse_document(*text, file.string()) : result<node>(text.failure());
                if (!root) continue;
                const auto &keys = root->entries;
                if (std::none_of(keys.begin(), keys.end(), [&](const entry &key) {
                        return key.key == "kind" &&
                               (key.value.text == kind || key.value.text == "machine");
                    }))
                    continue;
            }
            names.insert(file.stem().string());
        }
    return {names.begin(), names.end()};
}

std::string joined(const std::vector<std::string> &names) {
    return names.empty() ? "none" : format("{}", fmt::join(names, ", "));
}

error unknown_file_error(std::string_view key, const std::string &name,
                         const std::vector<std::string> &names) {
    const std::string hint = did_you_mean(name, names);
    return error{format("{} {}: there is no such file{}", key, name,
                        hint.empty() ? "; known are " + joined(names) : hint),
                 true};
}

// The file whose list `aliases` contains the name.
std::optional<fs::path> file_with_alias(const std::string &name, std::string_view kind,
                                        const std::vector<fs::path> &roots) {
    for (const fs::path &file : files_in(roots, fs::path("hw_profiles") / kind)) {
        const auto text = read_document(file);
        const auto root =
            text ? parse_document(*text, file.string()) : result<node>(text.failure());
        if (!root) continue;
        for (const entry &key : root->entries)
            if (key.key == "aliases" &&
                std::ranges::any_of(key.value.items,
                                    [&](const node &alias) { return alias.text == name; }))
                return file;
    }
    return {};
}

result<fs::path> find_profile(const std::string &name, std::string_view kind,
                              const fs::path &base) {
    const std::string key = kind == "device" ? "[hardware] profile" : format("[hardware] {}", kind);
    if (is_path(name)) return (base / name).lexically_normal();
    const std::vector<fs::path> roots = roots_from(base);
    for (const fs::path &root : roots)
        for (const fs::path &folder : folders_of(kind))
            if (fs::path file = root / folder / (name + ".toml"); is_file(file)) return file;
    if (const auto known = file_with_alias(name, kind, roots)) return *known;
    return unknown_file_error(key, name, names_of(roots, kind));
}

// Finds, reads and parses one of the files of a profile.
template <class Value>
result<Value> load_part(const std::string &name, std::string_view kind, const fs::path &base,
                        result<Value> (*parse)(std::string_view, std::string_view)) {
    const result<fs::path> file = find_profile(name, kind, base);
    if (!file) return file.failure();
    const result<std::string> text = read_document(*file);
    if (!text) return text.failure();
    return parse(*text, file->string());
}

result<shape_file> load_shape_file(const fs::path &file) {
    const result<std::string> text = read_document(file);
    if (!text) return text.failure();
    return parse_shape(*text, file.string());
}

bool same_word(std::string_view a, std::string_view b) {
    const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; };
    return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                      [&](char x, char y) { return lower(x) == lower(y); });
}

}  // namespace

std::vector<fs::path> data_roots() {
    std::vector<fs::path> roots;
    if (const char *listed = std::getenv("MOORAGE_DATA_PATH"))
        for (const std::string &part : split(listed, ':'))
            if (!part.empty()) roots.emplace_back(part);
    std::error_code code;
    const fs::path program = fs::read_symlink("/proc/self/exe", code);
    if (!code) roots.push_back((program.parent_path() / "../share/moorage").lexically_normal());
#ifdef MOORAGE_DATA_DIR
    roots.emplace_back(MOORAGE_DATA_DIR);
#endif
    std::erase_if(roots, [](const fs::path &root) {
        std::error_code failed;
        return !fs::is_directory(root, failed);
    });
    return roots;
}

result<device_profile> load_device_profile(const std::string &name, const fs::path &base) {
    return load_part<device_profile>(name, "device", base, parse_device);
}
result<link_profile> load_link_profile(const std::string &name, const fs::path &base) {
    return load_part<link_profile>(name, "link", base, parse_link);
}
result<node_profile> load_node_profile(const std::string &name, const fs::path &base) {
    return load_part<node_profile>(name, "node", base, parse_node);
}
result<engine_profile> load_engine_profile(const std::string &name, const fs::path &base) {
    return load_part<engine_profile>(name, "engine", base, parse_engine);
}

status apply_engine(hardware_profile &profile, const engine_profile &engine) {
    profile.engine = engine;
    device_profile &device = profile.device;
    if (engine.copy_bytes_per_s != 0)
        profile.link.h2d_bytes_per_s =
            std::min(profile.link.h2d_bytes_per_s, engine.copy_bytes_per_s);
    profile.node.cpu_handover_ns = engine.cpu_layer_ns;
    if (engine.is_own()) {
        device.layer_ns += engine.layer_ns;
        device.expert_ns += engine.expert_ns;
        return success();
    }
    const char *lacking = device.vector_flops_per_s == 0 ? "vector_flops_per_s"
                          : device.kernel_ns == 0        ? "kernel_ns"
                                                         : nullptr;
    if (lacking)
        return error{format("[hardware] engine: the figures of {} are multiples of {}, which the "
                            "file of {} does not give; add it, or leave the engine out",
                            engine.name, lacking, device.name),
                     true};
    // The cost of a layer depends on the model; cost_model sets layer_ns.
    device.memory_efficiency = engine.memory_share;
    device.flops_efficiency = engine.product_share;
    device.attention_kernels = device.expert_kernels = 0;
    device.layer_ns = device.token_ns = device.pass_ns = 0;
    device.expert_ns = engine.expert_ns;
    device.context_bytes_per_s = 0;
    device.sync_ns = engine.sync_ns;
    profile.link.issue_ns = engine.copies * engine.copy_ns;
    node_profile &node = profile.node;
    const double sockets = node.sockets;
    if (node.memory_theory_bytes_per_s != 0) {
        const double theory = node.memory_theory_bytes_per_s * sockets;
        node.cpu_bytes_per_s = theory * engine.cpu_memory_share;
        if (node.threads != 0 && engine.thread_bytes_per_s != 0)
            node.cpu_bytes_per_s =
                std::min(node.cpu_bytes_per_s, node.threads * engine.thread_bytes_per_s);
        node.memory_bytes_per_s = std::max(node.memory_bytes_per_s * sockets, node.cpu_bytes_per_s);
    }
    node.cpu_flops_per_s *=
        engine.cpu_flops_share * (1 + (sockets - 1) * engine.socket_flops_share);
    node.cpu_issue_ns = 0;
    return success();
}

result<hardware_profile> load_hardware(const hardware_choice &choice) {
    hardware_profile profile;
    profile.id =
        is_path(choice.profile) ? fs::path(choice.profile).stem().string() : choice.profile;
    auto device = load_device_profile(choice.profile, choice.base);
    if (!device) return device.failure();
    profile.device = std::move(*device);
    // A machine's file names no other files: its own parts are used.
    const auto part_name = [&](const std::string &chosen, const std::string &usual) {
        return !chosen.empty() ? chosen : usual.empty() ? choice.profile : usual;
    };
    const std::string link = part_name(choice.link, profile.device.link);
    const std::string node = part_name(choice.node, profile.device.node);
    auto loaded_link = load_link_profile(link, choice.base);
    if (!loaded_link) return loaded_link.failure();
    profile.link = std::move(*loaded_link);
    auto loaded_node = load_node_profile(node, choice.base);
    if (!loaded_node) return loaded_node.failure();
    profile.node = std::move(*loaded_node);
    if (!choice.engine.empty()) {
        const auto engine = load_engine_profile(choice.engine, choice.base);
        if (!engine) return engine.failure();
        if (const status fits = apply_engine(profile, *engine); !fits) return fits.failure();
    }
    if (choice.disk.empty()) return profile;
    auto disk = load_part<disk_profile>(choice.disk, "disk", choice.base, parse_disk);
    if (!disk) return disk.failure();
    profile.disk = std::move(*disk);
    return profile;
}

// For two devices without a direct link: to host memory and back, as one copy.
static link_profile through_host(const link_profile &first, const link_profile &second) {
    return {"through host memory", std::min(first.d2h_bytes_per_s, second.h2d_bytes_per_s),
            std::min(second.d2h_bytes_per_s, first.h2d_bytes_per_s),
            first.issue_ns + second.issue_ns};
}

result<std::vector<hardware_profile>> load_devices(const hardware_choice &first_choice,
                                                   const std::vector<std::string> &profiles) {
    std::vector<hardware_profile> devices;
    hardware_choice choice = first_choice;
    for (size_t i = 0; i < std::max<size_t>(profiles.size(), 1); ++i) {
        if (!profiles.empty()) choice.profile = profiles[i];
        auto loaded = load_hardware(choice);
        if (!loaded) return loaded.failure();
        const device_profile &device = loaded->device;
        if (profiles.size() > 1 && (device.is_host || device.unified_memory))
            return error{format("[hardware] devices: {} has no memory of its own to spread experts "
                                "over; name GPUs beside a host, or {} alone in [hardware] profile",
                                choice.profile, choice.profile),
                         true};
        devices.push_back(std::move(*loaded));
        if (i == 0) continue;
        if (i == 1 && devices[0].engine.overlap < load_overlap::layer)
            log_warning(
                format("[hardware] engine {}: on several devices loads go on beside "
                       "computing, whatever its overlap says",
                       first_choice.engine));
        devices[i].node = devices[0].node;  // all in one machine
        devices[i].peer_through_host = first_choice.peer.empty();
        devices[i].peer = through_host(devices[0].link, devices[i].link);
        if (first_choice.peer.empty()) continue;
        auto between = load_link_profile(first_choice.peer, first_choice.base);
        if (!between) return between.failure();
        devices[i].peer = std::move(*between);
    }
    return devices;
}

void load_from_disk(hardware_profile &profile) {
    profile.link.h2d_bytes_per_s = profile.disk.read_bytes_per_s;
    profile.link.issue_ns = profile.disk.issue_ns;
}

result<fs::path> find_shape(const std::string &name, const fs::path &base) {
    // A published name may contain a slash ("DeepSeek-V3/R1"), so only .toml marks a path.
    if (name.ends_with(".toml")) return (base / name).lexically_normal();
    const std::vector<fs::path> roots = roots_from(base);
    for (const fs::path &root : roots)
        for (const char *folder : shape_folders)
            if (fs::path file = root / folder / (name + ".toml"); is_file(file)) return file;
    std::set<std::string> known;
    for (const fs::path &file : files_in(roots, shape_folders[0])) {
        result<shape_file> parsed = load_shape_file(file);
        if (!parsed) {
            log_warning(parsed.failure().text);
            continue;
        }
        std::vector<std::string> names = std::move(parsed->aliases);
        names.push_back(parsed->shape.name);
        for (std::string &alias : names) {
            if (same_word(alias, name)) return file;
            known.insert(std::move(alias));
        }
        known.insert(file.stem().string());
    }
    const std::vector<std::string> candidates(known.begin(), known.end());
    const std::string hint = did_you_mean(name, candidates);
    return error{format("model shape {} is not known{}", name,
                        hint.empty() ? "; set [source] shape to one of " + joined(known_shapes()) +
                                           ", or to a file of your own"
                                     : hint),
                 true};
}

result<model_shape> load_shape(const std::string &name, const fs::path &base) {
    const result<fs::path> found = find_shape(name, base);
    if (!found) return found.failure();
    result<shape_file> file = load_shape_file(*found);
    if (!file) return file.failure();
    return std::move(file->shape);
}

status check_shape(const model_shape &shape, const std::string &model_name, uint32_t layers,
                   uint32_t experts, uint32_t top_k) {
    if (shape.moe_layers == layers && shape.experts == experts && shape.top_k == top_k)
        return success();
    return error{
        format("the trace of model {} has {} MoE layers, {} experts and top-{}, but shape {} "
               "has {}, {} and top-{}; set [source] shape to one that fits",
               model_name, layers, experts, top_k, shape.name, shape.moe_layers, shape.experts,
               shape.top_k),
        true};
}

result<model_shape> shape_for_trace(const std::string &model_name, uint32_t layers,
                                    uint32_t experts, uint32_t top_k, const fs::path &base) {
    if (model_name.empty())
        return error{
            "the trace does not name its model; set [source] shape, for example "
            "shape = \"mixtral_8x7b\"",
            true};
    result<model_shape> shape = load_shape(model_name, base);
    if (!shape) return shape;
    if (const status fits = check_shape(*shape, model_name, layers, experts, top_k); !fits)
        return fits.failure();
    return shape;
}

std::vector<std::string> known_profiles() { return names_of(data_roots(), "device"); }

std::vector<std::string> known_shapes() {
    std::set<std::string> names;
    for (const char *folder : shape_folders)
        for (const fs::path &file : files_in(data_roots(), folder))
            names.insert(file.stem().string());
    return {names.begin(), names.end()};
}

}  // namespace moorage::core
