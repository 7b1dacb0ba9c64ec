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
#include <string>
#include <vector>

#include "core/base/result.h"
#include "core/host/library_ways.h"
#include "moorage/module.h"

namespace moorage::core {

// A policy library whose door was found sound. Lives until the process ends.
struct library {
    std::filesystem::path path;                      // canonical
    moorage_module module{};                         // completed
    std::vector<moorage_descriptor> descriptors;     // completed
    std::vector<std::vector<moorage_param>> params;  // completed, parallel to descriptors
    bool initialised = false;
    bool keeps_to_itself = false;  // library_ways.h
    library_memory memory;         // as it was once the library was opened and its door read
    uint64_t instances = 0;        // alive; changed under load_lock
    bool used = false;             // some were made in this process
};

// Loads and checks `file`, or returns what was loaded before from the same file. The error is the
// reason of the refusal without the file's name: what was expected, what was found, the remedy.
result<library *> load_library(const std::filesystem::path &file);

// What speaks against opening the file, by its bytes alone: none of its code runs. "": nothing.
std::string why_not_open(const std::filesystem::path &file);

// Whether this process can do the next piece of work as one that was never asked would: no library
// that was used remembers anything, as far as can be told.
bool libraries_are_as_opened();

// Calls deinit of every library whose init was called. At exit it comes by itself.
void end_libraries();

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
