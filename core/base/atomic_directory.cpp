// atomic_directory.cpp - uses a temporary directory in the same folder, so that the rename stays
// within one file system.
#include "core/base/atomic_directory.h"

#include <sys/stat.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "core/base/partial_files.h"
#include "core/base/text.h"

namespace moorage::core {

namespace fs = std::filesystem;

namespace {

// Absolute, without links, and with a name at its end.
fs::path final_place(const fs::path &path, std::error_code &code) {
    const fs::path whole =
        fs::weakly_canonical(fs::absolute(output_path(path), code), code).lexically_normal();
    return whole.has_filename() ? whole : whole.parent_path();
}

}  // namespace

result<atomic_directory> atomic_directory::create(const fs::path &path) {
    std::error_code code;
    atomic_directory directory;
    directory.path_ = path;
    directory.place_ = final_place(path, code);
    if (code) return error{format("{}: cannot create: {}", path.string(), code.message())};
    // Refuses this process's working directory, which the rename would replace.
    if (fs::exists(directory.place_, code) &&
        (!fs::is_directory(directory.place_, code) || !fs::is_empty(directory.place_, code) ||
         fs::equivalent(directory.place_, fs::current_path(code), code)))
        return error{format("{}: is there; name a directory that is not", path.string())};
    fs::create_directories(directory.place_.parent_path(), code);
    if (code) return error{format("{}: cannot create: {}", path.string(), code.message())};
    const partial_draft draft = make_partial(directory.place_.string(),
                                             [](const char *name) { return ::mkdir(name, 0777); });
    if (draft.make_result < 0)
        return error{format("{}: cannot create: {}", path.string(), std::strerror(errno))};
    directory.draft_ = draft.path;
    directory.table_entries_.push_back(draft.table_entry);
    return directory;
}

atomic_directory::atomic_directory(atomic_directory &&source) noexcept
    : path_(std::move(source.path_)),
      place_(std::move(source.place_)),
      draft_(std::exchange(source.draft_, {})),
      table_entries_(std::exchange(source.table_entries_, {})) {}

atomic_directory::~atomic_directory() {
    std::error_code code;
    if (!draft_.empty()) fs::remove_all(draft_, code);
    for (const int entry : table_entries_) forget_partial_file(entry);
}

fs::path atomic_directory::file(const std::string &name) {
    fs::path path = draft_ / name;
    table_entries_.push_back(note_partial_file(path.string()));
    return path;
}

status atomic_directory::commit() {
    if (std::rename(draft_.c_str(), place_.c_str()) != 0)
        return error{format("{}: cannot write: {}", path_.string(), std::strerror(errno))};
    draft_.clear();
    return success();
}

}  // namespace moorage::core
