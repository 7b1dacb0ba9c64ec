// registry.cpp - scans directories for policy libraries and finds policies by name and kind.
#include "core/host/registry.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <map>
#include <set>

#include "core/base/log.h"
#include "core/base/mapped_file.h"
#include "core/base/text.h"
#include "core/host/elf_symbols.h"
#include "core/host/library.h"
#include "core/host/program_part.h"

namespace moorage::core {

namespace {

// Reserved, so that pointers to policies survive further scans.
constexpr size_t policies_max = 1024;

std::string list_kinds(const policy &policy) {
    std::string text;
    for (const std::string_view kind : kinds)
        if (policy.is(kind)) text += (text.empty() ? "" : ", ") + std::string(kind);
    return text;
}

// Is the file a policy library of any version, or one that cannot be read?
bool may_be_policies(const std::filesystem::path &file) {
    const auto symbols = read_elf_symbols(file);
    return !symbols || std::any_of(symbols->exported.begin(), symbols->exported.end(),
                                   [](auto name) { return name.starts_with("moorage_module_v"); });
}

// Does the file contain the text as the end of a C string? A library that does not contain a name
// has no policy of that name, unless it composes the name at run time.
bool holds_text(const std::filesystem::path &file, std::string_view text) {
    static std::map<std::pair<std::filesystem::path, std::string>, bool> known;  // guarded by
                                                                                 // load_lock
    const auto [entry, is_new] = known.try_emplace({file, std::string(text)}, false);
    if (!is_new) return entry->second;
    std::ifstream input(file, std::ios::binary);
    const std::string bytes{std::istreambuf_iterator<char>(input), {}};
    return entry->second = bytes.find(std::string(text) + '\0') != std::string::npos;
}

// A bundled library is named like its policies: "score.so" has score and score_chosen.
bool is_named_after(const std::filesystem::path &file, std::string_view policy) {
    const std::string stem = file.stem().string();
    return policy.starts_with(stem) && (policy.size() == stem.size() || policy[stem.size()] == '_');
}

std::string paths_of(const std::vector<const policy *> &policies) {
    std::string text;
    for (const policy *policy : policies)
        text += (text.empty()                ? ""
                 : policy == policies.back() ? " and "
                                             : ", ") +
                policy->path.string();
    return text;
}

}  // namespace

// A library that was found and is opened only when somebody needs a policy that it may have.
struct waiting_library {
    std::filesystem::path file;
    bool bundled = false;
};

struct registry::content {
    std::vector<policy> policies;
    std::vector<refusal> refusals;
    std::vector<waiting_library> waiting;       // in the order of the scan
    std::set<std::string> scanned;              // canonical paths
    std::vector<std::filesystem::path> places;  // folders that were scanned, or that contain
                                                // scanned files

    void refuse(const std::filesystem::path &file, std::string reason) {
        log_warning(format("{}: refused: {}", file.string(), reason));
        refusals.push_back({file, std::move(reason)});
    }
    void open(const std::filesystem::path &file);
    template <class Wanted>
    void open_where(Wanted &&wanted);
    void open_all() {
        open_where([](const waiting_library &) { return true; });
    }
    void open_users(std::string_view name);
    void open_bundled(std::string_view name, std::string_view kind);
    bool has(std::string_view name, std::string_view kind) const {
        return std::any_of(policies.begin(), policies.end(), [&](const policy &known) {
            return known.name() == name && known.is(kind);
        });
    }
    void add(const std::filesystem::path &file);
    status add_folder(const std::filesystem::path &folder);
    // Is a known file the one that `library` names?
    bool is_file(const std::filesystem::path &known, const std::filesystem::path &library) const;
    result<const policy *> find(std::string_view name, std::string_view kind,
                                const std::filesystem::path &library) const;
};

void registry::content::open(const std::filesystem::path &file) {
    auto loaded = load_library(file);
    if (!loaded) return refuse(file, loaded.failure().text);
    library &library = **loaded;
    if (policies.size() + library.descriptors.size() > policies_max)
        return refuse(
            file, format("{} policies are loaded, at most {} are allowed; use fewer directories",
                         policies.size(), policies_max));
    for (size_t i = 0; i < library.descriptors.size(); ++i)
        policies.push_back({&library.module, &library.descriptors[i], library.params[i], file});
}

template <class Wanted>
void registry::content::open_where(Wanted &&wanted) {
    std::vector<waiting_library> opened, left;
    for (waiting_library &candidate : waiting)
        (wanted(candidate) ? opened : left).push_back(std::move(candidate));
    waiting = std::move(left);
    for (const waiting_library &candidate : opened) open(candidate.file);
}

void registry::content::open_users(std::string_view name) {
    open_where([&](const waiting_library &candidate) {
        return !candidate.bundled && holds_text(candidate.file, name);
    });
}

// Searches first among policies of the kind, then in all libraries that have the name.
void registry::content::open_bundled(std::string_view name, std::string_view kind) {
    for (const bool anywhere : {false, true}) {
        if (has(name, kind)) return;
        open_where([&](const waiting_library &candidate) {
            return candidate.bundled && is_named_after(candidate.file, name) &&
                   (anywhere || candidate.file.parent_path().filename() == kind);
        });
    }
}

void registry::content::add(const std::filesystem::path &file) {
    std::error_code ignored;
    if (!scanned.insert(std::filesystem::canonical(file, ignored).string()).second) return;
    note_read_file(file);
    if (std::string reason = reason_not_to_open(file); !reason.empty())
        return refuse(file, std::move(reason));
    waiting.push_back({file});
}

status registry::content::add_folder(const std::filesystem::path &folder) {
    namespace fs = std::filesystem;
    std::error_code failed;
    const fs::path bundled = bundled_folder();
    const bool nested = !bundled.empty() && fs::equivalent(folder, bundled, failed);
    std::vector<fs::path> files;
    fs::recursive_directory_iterator entry(folder, fs::directory_options::skip_permission_denied,
                                           failed),
        end;
    for (; !failed && entry != end; entry.increment(failed)) {
        if (!nested || !may_have_policies(entry->path())) entry.disable_recursion_pending();
        std::error_code ignored;
        if (entry->path().native().ends_with(".so") && entry->is_regular_file(ignored))
            files.push_back(entry->path());
    }
    if (failed) return error{format("plugin directory {}: {}", folder.string(), failed.message())};
    std::sort(files.begin(), files.end());
    const fs::path base = fs::canonical(folder, failed);
    for (const fs::path &file : files) {
        // The names of bundled files are reliable, so their content is not checked.
        const fs::path path =
            nested ? base / file.lexically_relative(folder) : fs::canonical(file, failed);
        if (!scanned.insert(path.string()).second) continue;
        if (!nested) note_read_file(file);
        if (nested || may_be_policies(file))
            waiting.push_back({file, nested});
        else
            refusals.push_back({file, "is no policy library: it exports no " MOORAGE_MODULE_SYMBOL
                                      "; nothing of it was run"});
    }
    return success();
}

bool registry::content::is_file(const std::filesystem::path &known,
                                const std::filesystem::path &library) const {
    const auto same = [&](const std::filesystem::path &file) {
        std::error_code failed;
        return std::filesystem::equivalent(known, file, failed);
    };
    if (library.is_absolute()) return same(library);
    return std::any_of(places.begin(), places.end(),
                       [&](const auto &place) { return same(place / library); });
}

bool policy::is(std::string_view kind) const {
    return std::any_of(descriptor->plugin_kinds, descriptor->plugin_kinds + descriptor->kind_count,
                       [&](const char *id) { return is_interface_of(id, kind); });
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
            content_->places.push_back(path);
            if (const status done = content_->add_folder(path); !done) return done.failure();
        } else if (fs::exists(path, failed)) {
            content_->places.push_back(path.parent_path());
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

std::filesystem::path registry::bundled_folder() {
    namespace fs = std::filesystem;
    std::error_code failed;
    const fs::path program_folder = fs::read_symlink("/proc/self/exe", failed).parent_path();
    for (const fs::path &candidate :
         {program_folder / "plugins", program_folder.parent_path() / "plugins",
          program_folder.parent_path() / "lib/moorage/plugins"})
        if (fs::is_directory(candidate, failed)) return candidate;
    return {};
}

std::vector<std::filesystem::path> registry::default_paths() {
    std::vector<std::filesystem::path> paths;
    if (auto bundled = bundled_folder(); !bundled.empty()) paths.push_back(std::move(bundled));
    if (const char *listed = std::getenv("MOORAGE_PLUGIN_PATH"))
        for (const std::string &part : split(listed, ':'))
            if (!part.empty()) paths.emplace_back(part);
    return paths;
}

result<const policy *> registry::content::find(std::string_view name, std::string_view kind,
                                               const std::filesystem::path &library) const {
    std::vector<std::string> candidates;
    std::vector<const policy *> named, meant;
    for (const policy &known : policies) {
        if (!known.is(kind)) continue;
        candidates.emplace_back(known.name());
        if (known.name() != name) continue;
        named.push_back(&known);
        if (library.empty() || is_file(known.path, library)) meant.push_back(&known);
    }
    if (meant.size() == 1) return meant[0];
    if (meant.size() > 1)
        return error{format("{} policy {} is in {} libraries, {}; say which one is meant with "
                            "library = \"FILE.so\" beside plugin, or rename one",
                            kind, name, meant.size(), paths_of(meant)),
                     true};
    if (!named.empty())
        return error{format("{} policy {} is not in library {} but in {}; a library is named as "
                            "seen from the configuration, a plugin path or the bundled policies",
                            kind, name, library.string(), paths_of(named)),
                     true};
    for (const policy &known : policies)
        if (known.name() == name)
            return error{format("policy {} is no {} policy but: {}", name, kind, list_kinds(known)),
                         true};
    for (const refusal &refused : refusals)
        if (refused.path.stem() == name)
            return error{format("{} policy {}: its library {} was refused: {}", kind, name,
                                refused.path.string(), refused.reason)};
    if (candidates.empty())
        return error{
            format(
                "no {} policy {}: no {} policies were found at all{}; set MOORAGE_PLUGIN_PATH or "
                "[plugins] path",
                kind, name, kind,
                bundled_folder().empty()
                    ? ", nor the bundled ones beside the program that /proc/self/exe is"
                    : ""),
            true};
    const std::string hint = did_you_mean(name, candidates);
    return error{
        format("no {} policy {}{}", kind, name,
               hint.empty() ? format("; there are: {}", fmt::join(candidates, ", ")) : hint),
        true};
}

std::span<const policy> registry::policies() const {
    const auto lock = load_lock();
    content_->open_all();
    return content_->policies;
}
std::span<const refusal> registry::refusals() const {
    const auto lock = load_lock();
    content_->open_all();
    return content_->refusals;
}

result<const policy *> registry::find(std::string_view name, std::string_view kind,
                                      const std::filesystem::path &library) const {
    const auto lock = load_lock();
    if (library.empty()) {
        content_->open_users(name);
        content_->open_bundled(name, kind);
    } else {
        content_->open_where([&](const waiting_library &candidate) {
            return content_->is_file(candidate.file, library);
        });
    }
    auto found = content_->find(name, kind, library);
    if (found) return found;
    content_->open_all();  // finds composed names, and gives the error its suggestions
    return content_->find(name, kind, library);
}

const policy *registry::find_bundled(std::string_view name, std::string_view kind) const {
    const auto lock = load_lock();
    for (const waiting_library &candidate : content_->waiting)
        if (!candidate.bundled && holds_text(candidate.file, name)) return nullptr;
    content_->open_bundled(name, kind);
    const auto found = content_->find(name, kind, {});
    return found ? *found : nullptr;
}

std::vector<std::filesystem::path> registry::files_with(std::string_view name,
                                                        std::string_view kind) const {
    const auto lock = load_lock();
    std::vector<std::filesystem::path> files;
    for (const policy &known : content_->policies)
        if (known.name() == name && known.is(kind)) files.push_back(known.path);
    for (const waiting_library &candidate : content_->waiting)
        if (candidate.bundled ? is_named_after(candidate.file, name)
                              : holds_text(candidate.file, name))
            files.push_back(candidate.file);
    std::sort(files.begin(), files.end());
    return files;
}

bool registry::knows(std::string_view name, std::string_view kind) const {
    const auto lock = load_lock();
    content_->open_users(name);
    content_->open_bundled(name, kind);
    if (!content_->has(name, kind)) content_->open_all();
    return content_->has(name, kind);
}

constexpr std::string_view id_begin = "moorage.", id_end = "/1";

std::string interface_id(std::string_view kind) {
    return kind.find('/') == std::string_view::npos ? format("{}{}{}", id_begin, kind, id_end)
                                                    : std::string(kind);
}

bool is_interface_of(std::string_view id, std::string_view kind) {
    if (kind.find('/') != std::string_view::npos) return id == kind;
    return id.size() == id_begin.size() + kind.size() + id_end.size() && id.starts_with(id_begin) &&
           id.ends_with(id_end) && id.substr(id_begin.size(), kind.size()) == kind;
}

}  // namespace moorage::core
