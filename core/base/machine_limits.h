// machine_limits.h - how many processors and how much memory this process may use: what the machine
// has, less what the control groups (cgroups v1 and v2) of its container take away.
//
// A container shows all processors and the whole memory of its machine. A thread for each of 16
// shown processors, where two may be used, makes decoding 7 to 20 times slower.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

namespace moorage::core {

// The processors that threads of this process may have, at least 1. Control groups are read once.
uint32_t usable_processors();
// The machine's memory, or the lowest limit of a control group where that is less.
uint64_t usable_memory_bytes();

// The control groups that this process is in, from its own up to the highest that it can see.
class control_groups {
public:
    // `root` stands for "/", below which /proc and the mounted groups are read. What cannot be read
    // limits nothing.
    static control_groups of_this_process(const std::filesystem::path &root);

    uint32_t processors() const;              // UINT32_MAX: no limit
    uint64_t memory_bytes() const;            // UINT64_MAX: no limit
    uint64_t memory_available_bytes() const;  // below the limits; UINT64_MAX: no limit

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
