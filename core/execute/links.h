// links.h - the numbers of a machine's links, if several devices have one each.
#pragma once

#include "core/execute/executor.h"

namespace moorage::core {

// The most devices over which experts may be spread, and the number of their links.
inline constexpr uint32_t devices_max = 8, links_max = link_count + devices_max - 1;

// The link towards a device. The first device has link_h2d. The links of the others come after all
// links of a machine with one device.
constexpr uint32_t h2d_of(uint32_t device) {
    return device == 0 ? uint32_t{link_h2d} : link_disk + device;
}
constexpr bool is_h2d(uint32_t link) { return link == link_h2d || link > link_disk; }
constexpr uint32_t device_of_link(uint32_t link) { return link > link_disk ? link - link_disk : 0; }
// The number of a machine's links, as policies are told. With several devices the disk counts even
// if there is none.
constexpr uint32_t links_of(uint32_t devices, bool with_disk) {
    return devices > 1 ? h2d_of(devices - 1) + 1 : with_disk ? link_count : link_disk;
}

}  // namespace moorage::core
