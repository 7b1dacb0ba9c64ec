// registry.h - finds policy libraries, checks their door, and lists the policies they hold.
//
// A scan opens nothing: a library is opened when somebody asks for a policy that it may have
// (core/decisions/0048). A bundled one is named like its policy; another one may have a policy
// whose name stands in its file. policies() and refusals() open all that is left.
//
// Libraries are loaded with Boost.DLL and stay mapped until the process ends. A library that is
// refused is kept in refusals() with file, expected, found and remedy, and logged; it never passes
// silently. What exports no door is not opened at all; met in a folder, it is logged as information
// only. Loading runs no plugin code but constructors, moorage_module_v2 and descriptor(). [control]
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

// One policy of a loaded library. Stays valid as long as the registry.
struct policy {
    const moorage_module *module = nullptr;
    const moorage_descriptor *descriptor = nullptr;  // completed: at least this host's size
    std::vector<moorage_param> params;               // declared parameters, completed
    std::filesystem::path path;

    std::string_view name() const { return descriptor->plugin_name; }
    // kind: "cache" or a full id "moorage.cache/1".
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

    // Finds every .so of each folder (sorted, so that runs are alike), or a single file. Folders
    // within a folder are searched only where the bundled policies are.
    // A path that does not exist is an error; a library that is refused is not.
    status scan(std::span<const std::filesystem::path> paths);
    // The folder of the bundled policies: plugins/ beside the program (packed) or beside its folder
    // (build tree), or lib/moorage/plugins beside that (installed). Empty: there is none.
    static std::filesystem::path bundled_folder();
    // The bundled policies, and what $MOORAGE_PLUGIN_PATH (colon-separated) adds.
    static std::vector<std::filesystem::path> default_paths();

    std::span<const policy> policies() const;
    std::span<const refusal> refusals() const;
    // By name and kind ("cache"). `library`, where given, is the file that it has to be in:
    // absolute, or relative to a path that was scanned. A name in several libraries is an error
    // without it. Errors name the nearest policy of that kind, or the refusal of a library with
    // that file name.
    result<const policy *> find(std::string_view name, std::string_view kind,
                                const std::filesystem::path &library = {}) const;
    bool knows(std::string_view name, std::string_view kind) const;
    // The bundled policy of that name; null where there is none, or where a library of the user's
    // may have one as well. Opens no library of the user's.
    const policy *find_bundled(std::string_view name, std::string_view kind) const;

    // The libraries that may have such a policy. Opens none.
    std::vector<std::filesystem::path> files_with(std::string_view name,
                                                  std::string_view kind) const;

private:
    struct content;
    std::unique_ptr<content> content_;
};

}  // namespace moorage::core
