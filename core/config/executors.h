// executors.h - the executors that [run] executor can name, one row each: what is true of them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <string_view>

namespace moorage::core {

// Where experts are fast: as the hardware profile says, in host memory, or on a GPU that is there
// and has as much room as it is found to have.
enum class fast_memory : uint8_t { of_profile, host, gpu };

struct executor_kind {
    std::string_view name;
    bool real;  // what it does takes its time and needs the machine for itself; else virtual time
    fast_memory memory;
    uint32_t kv_value_bytes;  // of a cached key or value; every layer caches every position
};
// The first is what a run has that names none.
inline constexpr executor_kind executors[] = {{"emulator", false, fast_memory::of_profile, 2},
                                              {"cpu", true, fast_memory::host, sizeof(float)},
                                              {"cuda", true, fast_memory::gpu, 2}};

// Null: there is none of the name.
constexpr const executor_kind *find_executor(std::string_view name) {
    const auto found = std::ranges::find(executors, name, &executor_kind::name);
    return found == std::end(executors) ? nullptr : &*found;
}

}  // namespace moorage::core
