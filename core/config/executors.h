// executors.h - the executors that [run] executor can name, and their properties, one row each.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <string_view>

namespace moorage::core {

// The memory that holds the fast copies of experts: as the hardware profile says, host memory, or
// that of a real GPU. The real GPU's free memory is measured.
enum class fast_memory : uint8_t { of_profile, host, gpu };

struct executor_kind {
    std::string_view name;
    bool real;  // true: runs in real time and needs the machine for itself; false: virtual time
    fast_memory memory;
    uint32_t kv_value_bytes;  // bytes of a cached key or value; every layer caches every position
};
// The first one is the default.
inline constexpr executor_kind executors[] = {{"emulator", false, fast_memory::of_profile, 2},
                                              {"cpu", true, fast_memory::host, sizeof(float)},
                                              {"cuda", true, fast_memory::gpu, 2}};

// Null: there is no executor of this name.
constexpr const executor_kind *find_executor(std::string_view name) {
    const auto found = std::ranges::find(executors, name, &executor_kind::name);
    return found == std::end(executors) ? nullptr : &*found;
}

}  // namespace moorage::core
