// library.h - one policy library: loaded once, its door checked, kept mapped until the process
// ends.
//
// The records that the library hands out may be smaller (older) or larger (newer) than this host's;
// each is copied into a zeroed struct of this host's size, so that nothing else looks at sizes.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <vector>

#include "core/base/result.h"
#include "moorage/module.h"

namespace moorage::core {

// A policy library whose door was found sound. Lives until the process ends.
struct library {
    std::filesystem::path path;                      // canonical
    moorage_module module{};                         // completed
    std::vector<moorage_descriptor> descriptors;     // completed
    std::vector<std::vector<moorage_param>> params;  // completed, parallel to descriptors
    bool initialised = false;
    uint64_t instances = 0;  // alive; changed under load_lock
};

// Loads and checks `file`, or returns what was loaded before from the same file. The error is the
// reason of the refusal without the file's name: what was expected, what was found, the remedy.
result<library *> load_library(const std::filesystem::path &file);

// The loaded library that `module` is the completed record of.
library *library_of(const moorage_module *module);

// Calls the library's init, once in the life of the process. Its deinit follows at exit.
status initialise(library &of);

// Held around every [load] call into any library: those come from one thread at a time.
std::unique_lock<std::recursive_mutex> load_lock();

// The first sizes of the records, which every library of this major has at least. Frozen: the
// current size of a record grows, these do not.
inline constexpr uint32_t module_size_min = 72, descriptor_size_min = 72, param_size_min = 88,
                          plugin_size_min = 56;
// Beyond this a size is taken for garbage.
inline constexpr uint32_t record_size_max = 4096;

// Copies what source and host have in common; the rest is zero. Requires: both begin with a size.
template <class Record>
Record completed(const void *source) {
    uint32_t size = 0;
    std::memcpy(&size, source, sizeof(size));
    Record record{};
    std::memcpy(static_cast<void *>(&record), source, std::min<size_t>(size, sizeof(Record)));
    record.size = sizeof(Record);
    return record;
}

}  // namespace moorage::core
