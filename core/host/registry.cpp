// registry.cpp - scans directories for policy libraries and finds policies by name and kind.
#include "core/host/registry.h"

#include <algorithm>
#include <cstdlib>
#include <set>

#include "core/base/log.h"
#include "core/base/text.h"
#include "core/host/library.h"
#include "moorage/step.h"

namespace moorage::core {

namespace {

// Room is reserved for all, so that pointers to policies survive a further scan.
constexpr size_t policies_max = 1024;

std::string list_kinds(const policy &of) {
    std::string text;
    for (const std::string_view kind : kinds)
        if (of.is(kind)) text += (text.empty() ? "" : ", ") + std::string(kind);
    return text;
}

// Whether TOML could mean either of them by the same name.
bool share_kind(const moorage_descriptor &a, const moorage_descriptor &b) {
    for (uint32_t i = 0; i < a.kind_count; ++i)
        for (uint32_t j = 0; j < b.kind_count; ++j) {
            const std::string_view kind = a.plugin_kinds[i];
            if (kind == b.plugin_kinds[j] && kind != MOORAGE_INTERFACE_OBSERVER) return true;
        }
    return false;
}

}  // namespace

struct registry::content {
    std::vector<policy> policies;
    std::vector<refusal> refusals;
    std::set<std::filesystem::path> scanned;  // canonical

    void refuse(const std::filesystem::path &file, std::string reason) {
        log_warning(format("{}: refused: {}", file.string(), reason));
        refusals.push_back({file, std::move(reason)});
    }
    void add(const std::filesystem::path &file);
};

void registry::content::add(const std::filesystem::path &file) {
    std::error_code ignored;
    if (!scanned.insert(std::filesystem::canonical(file, ignored)).second) return;
    auto loaded = load_library(file);
    if (!loaded) return refuse(file, loaded.failure().text);
    library &from = **loaded;
    for (const moorage_descriptor &d : from.descriptors)
        for (const policy &known : policies)
            if (known.name() == d.plugin_name && share_kind(*known.descriptor, d))
                return refuse(file, format("policy {} is already in {}; rename one of them",
                                           d.plugin_name, known.path.string()));
    if (policies.size() + from.descriptors.size() > policies_max)
        return refuse(
            file, format("{} policies are loaded, at most {} are allowed; use fewer directories",
                         policies.size(), policies_max));
    for (size_t i = 0; i < from.descriptors.size(); ++i)
        policies.push_back({&from.module, &from.descriptors[i], from.params[i], file});
}

bool policy::is(std::string_view kind) const {
    const std::string id = interface_id(kind);
    for (uint32_t i = 0; i < descriptor->kind_count; ++i)
        if (id == descriptor->plugin_kinds[i]) return true;
    return false;
}

registry::registry() : content_(std::make_unique<content>()) {
    content_->policies.reserve(policies_max);
}
registry::~registry() = default;
registry::registry(registry &&) noexcept = default;

status registry::scan(std::span<const std::filesystem::path> paths) {
    namespace fs = std::filesystem;
    for (const fs::path &path : paths) {
        std::error_code failed;
        if (fs::is_directory(path, failed)) {
            std::vector<fs::path> files;
            fs::recursive_directory_iterator at(path, fs::directory_options::skip_permission_denied,
                                                failed),
                end;
            for (; !failed && at != end; at.increment(failed))
                if (at->path().extension() == ".so") files.push_back(at->path());
            if (failed)
                return error{format("plugin directory {}: {}", path.string(), failed.message())};
            std::sort(files.begin(), files.end());
            for (const fs::path &file : files) content_->add(file);
        } else if (fs::exists(path, failed)) {
            content_->add(path);
        } else {
            return error{format("plugin path {} does not exist; check [plugins] path and "
                                "MOORAGE_PLUGIN_PATH",
                                path.string()),
                         true};
        }
    }
    return success();
}

std::vector<std::filesystem::path> registry::default_paths() {
    namespace fs = std::filesystem;
    std::vector<fs::path> paths;
    if (const char *given = std::getenv("MOORAGE_PLUGIN_PATH"); given && *given) {
        for (const std::string &part : split(given, ':'))
            if (!part.empty()) paths.emplace_back(part);
        return paths;
    }
    std::error_code failed;
    const fs::path program = fs::read_symlink("/proc/self/exe", failed);
    for (const char *place : {"plugins", "lib/moorage/plugins"}) {
        const fs::path candidate = program.parent_path().parent_path() / place;
        if (fs::is_directory(candidate, failed)) return {candidate};
    }
    return paths;
}

std::span<const policy> registry::policies() const { return content_->policies; }
std::span<const refusal> registry::refusals() const { return content_->refusals; }

result<const policy *> registry::find(std::string_view name, std::string_view kind) const {
    std::vector<std::string> candidates;
    for (const policy &one : content_->policies) {
        if (!one.is(kind)) continue;
        if (one.name() == name) return &one;
        candidates.emplace_back(one.name());
    }
    for (const policy &one : content_->policies)
        if (one.name() == name)
            return error{format("policy {} is no {} policy but: {}", name, kind, list_kinds(one)),
                         true};
    for (const refusal &one : content_->refusals)
        if (one.path.stem() == name)
            return error{format("{} policy {}: its library {} was refused: {}", kind, name,
                                one.path.string(), one.reason)};
    if (candidates.empty())
        return error{
            format("no {} policy {}: no {} policies were found at all; set MOORAGE_PLUGIN_PATH or "
                   "[plugins] path",
                   kind, name, kind),
            true};
    const std::string hint = did_you_mean(name, candidates);
    return error{
        format("no {} policy {}{}", kind, name,
               hint.empty() ? format("; there are: {}", fmt::join(candidates, ", ")) : hint),
        true};
}

std::string interface_id(std::string_view kind) {
    return kind.find('/') == std::string_view::npos ? format("moorage.{}/1", kind)
                                                    : std::string(kind);
}

}  // namespace moorage::core
