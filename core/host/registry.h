// registry.h - finds policy libraries, checks their entry points, and lists their policies.
//
// A scan opens nothing. A library is opened when somebody asks for a policy that it may have
// (core/decisions/0048). A bundled library is named like its policy. Another library may have a
// policy if its file contains the policy's name. policies() and refusals() open all remaining
// libraries.
//
// Libraries are loaded with Boost.DLL and stay mapped until the process ends. A refused library is
// logged and kept in refusals() with file, expected, found and remedy. A file that does not export
// the entry point is never opened; in a folder, it is only logged as information. The only plugin
// code that loading runs is constructors, moorage_module_v2 and descriptor(). [control]
#pragma once

#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.h"
#include "core/host/kinds.h"
#include "moorage/module.h"

namespace moorage::core {

// A policy of a loaded library. Valid as long as the registry.
struct policy {
    const moorage_module *module = nullptr;
    const moorage_descriptor *descriptor = nullptr;  // completed: at least this host's size
    std::vector<moorage_param> params;               // declared parameters, completed
    std::filesystem::path path;

    std::string_view name() const { return descriptor->plugin_name; }
    // `kind`: "cache" or a full id, "moorage.cache/1".
    bool is(std::string_view kind) const;
};

struct refusal {
    std::filesystem::path path;
    std::string reason;
};

class registry {
public:
    registry();
    ~registry();
    registry(registry &&) noexcept;

    // Finds every .so of each folder (sorted, so that runs are alike), or a single file. Only the
    // folder of the bundled policies is searched recursively. A missing path is an error; a refused
    // library is not.
    status scan(std::span<const std::filesystem::path> paths);
    // The folder of the bundled policies: plugins/ beside the program (packed) or beside its folder
    // (build tree), or lib/moorage/plugins beside that folder (installed). Empty: none.
    static std::filesystem::path bundled_folder();
    // The bundled policies and the paths in $MOORAGE_PLUGIN_PATH (colon-separated).
    static std::vector<std::filesystem::path> default_paths();

    std::span<const policy> policies() const;
    std::span<const refusal> refusals() const;
    // Finds a policy by name and kind ("cache"). `library`, if given, is the file that must contain
    // it: absolute, or relative to a scanned path. Without `library`, a name in several libraries
    // is an error. Errors name the nearest policy of that kind, or the refusal of a library with
    // that file name.
    result<const policy *> find(std::string_view name, std::string_view kind,
                                const std::filesystem::path &library = {}) const;
    bool knows(std::string_view name, std::string_view kind) const;
    // The bundled policy of that name. Null if there is none, or if one of the user's libraries may
    // also have it. Opens no library of the user.
    const policy *find_bundled(std::string_view name, std::string_view kind) const;

    // The libraries that may have such a policy. Opens none.
    std::vector<std::filesystem::path> files_with(std::string_view name,
                                                  std::string_view kind) const;

private:
    struct content;
    std::unique_ptr<content> content_;
};

}  // namespace moorage::core
