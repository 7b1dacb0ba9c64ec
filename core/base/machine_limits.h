// machine_limits.h - how many processors and how much memory this process may use: those of the
// machine, within the limits of its container's control groups (cgroups v1 and v2).
//
// A container shows all processors and the whole memory of its machine. With one thread for each of
// 16 visible processors, of which two may be used, decoding is 7 to 20 times slower.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

namespace moorage::core {

// The number of processors that this process may use, at least 1. Control groups are read once.
uint32_t usable_processors();
// The machine's memory, or the lowest limit of a control group if that is less.
uint64_t usable_memory_bytes();

// The control groups of this process, from its own up to the highest visible one.
class control_groups {
public:
    // `root` replaces "/": /proc and the mounted groups are read below it. Files that cannot be
    // read set no limit.
    static control_groups of_this_process(const std::filesystem::path &root);

    uint32_t processors() const;              // UINT32_MAX: no limit
    uint64_t memory_bytes() const;            // UINT64_MAX: no limit
    uint64_t memory_available_bytes() const;  // left below the limits; UINT64_MAX: no limit

private:
    enum class version : uint8_t { v1, v2 };
    struct group {
        std::filesystem::path directory;
        version kind;
    };
    friend class group_finder;
    std::vector<group> cpu_, cpuset_, memory_;
};

}  // namespace moorage::core
