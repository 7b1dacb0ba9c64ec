// library.h - one policy library: loaded once, its entry point checked, mapped until the process
// ends.
//
// Records of the library may be smaller (older) or larger (newer) than this host's. Each is copied
// into a zeroed struct of this host's size, so no other code checks sizes.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <string>
#include <vector>

#include "core/base/result.h"
#include "core/host/library_ways.h"
#include "moorage/module.h"

namespace moorage::core {

// A policy library with a valid entry point. Lives until the process ends.
struct library {
    std::filesystem::path path;                      // canonical
    moorage_module module{};                         // completed
    std::vector<moorage_descriptor> descriptors;     // completed
    std::vector<std::vector<moorage_param>> params;  // completed, parallel to descriptors
    bool initialised = false;
    bool is_self_contained = false;  // library_ways.h
    library_memory memory;           // its state after it was opened and its entry point was read
    uint64_t instances = 0;          // alive; changed under load_lock
    bool used = false;               // this process has created instances of it
};

// Loads and checks `file`, or returns the library that was loaded from this file before. The error
// gives the reason without the file's name: what was expected, what was found, the remedy.
result<library *> load_library(const std::filesystem::path &file);

// The reason not to open the file, from its bytes alone: none of its code runs. "": no reason.
std::string reason_not_to_open(const std::filesystem::path &file);

// Can this process do the next work as a fresh one would? True if no library that was used has kept
// any state, as far as can be told.
bool libraries_are_as_opened();

// Calls deinit of every library whose init was called. This also happens at exit.
void end_libraries();

// The loaded library whose completed record is `module`.
library *library_of(const moorage_module *module);

// Calls the library's init, once in the life of the process. Its deinit follows at exit.
status initialise(library &library);

// Held during every [load] call into any library, because these must come from one thread at a
// time.
std::unique_lock<std::recursive_mutex> load_lock();

// Sizes of the first version of the records. Every library of this major version has at least
// these. They stay as they are while the records grow.
inline constexpr uint32_t module_size_min = 72, descriptor_size_min = 72, param_size_min = 88,
                          plugin_size_min = 56;
// A larger size is treated as garbage.
inline constexpr uint32_t record_size_max = 4096;

// Copies the part that source and host share; the rest is zero. Requires: both begin with a size.
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
