// devices.hpp - for several devices that share the experts: the device of an item, times of each.
#pragma once

#include <moorage/moorage.hpp>

#include <algorithm>
#include <array>

namespace devices {

inline constexpr uint32_t most = 8;

inline uint32_t count(const moorage::items &items) { return std::min(items.gpus, most); }
inline uint32_t device_of(const moorage::items &items, uint32_t item) {
    return std::min(items.own(item), most - 1);
}
inline uint64_t backlog_ns(const moorage::items &items, uint32_t device) {
    return items.gpus > 1 ? items.host_device_backlog_ns[device] : items.load_backlog_ns;
}

using times = std::array<uint64_t, most>;
inline uint64_t longest(const times &times) {
    return *std::max_element(times.begin(), times.end());
}

}  // namespace devices
