// device_arenas.h - where the devices of a run have their experts.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "core/store/arena.h"

namespace moorage::core {

// The arenas of a run's devices, and the arena to which each page belongs. All borrowed.
struct device_arenas {
    std::vector<const arena *> arenas;
    std::span<const uint8_t> page_devices;  // empty: all belong to the first

    device_arenas(const arena *only = nullptr) : arenas{only} {}
    device_arenas(std::vector<const arena *> arenas, std::span<const uint8_t> devices)
        : arenas(std::move(arenas)), page_devices(devices) {}
    uint32_t device_of(uint32_t page) const {
        return page_devices.empty() ? 0 : page_devices[page];
    }
    const arena &arena_of(uint32_t page) const { return *arenas[device_of(page)]; }
};

}  // namespace moorage::core
