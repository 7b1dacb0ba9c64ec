// links.h - which link of a machine is which, where several devices have one each.
#pragma once

#include "core/execute/executor.h"

namespace moorage::core {

// Devices that experts may be spread over, and the links of so many.
inline constexpr uint32_t devices_max = 8, links_max = link_count + devices_max - 1;

// Towards a device: that of the first is link_h2d, those of the others come after all links that a
// machine with one device has.
constexpr uint32_t h2d_of(uint32_t device) {
    return device == 0 ? uint32_t{link_h2d} : link_disk + device;
}
constexpr bool is_h2d(uint32_t link) { return link == link_h2d || link > link_disk; }
constexpr uint32_t device_of_link(uint32_t link) { return link > link_disk ? link - link_disk : 0; }
// Of a machine: policies are told of so many, the disk's among them where it has none.
constexpr uint32_t links_of(uint32_t devices, bool with_disk) {
    return devices > 1 ? h2d_of(devices - 1) + 1 : with_disk ? link_count : link_disk;
}

}  // namespace moorage::core
