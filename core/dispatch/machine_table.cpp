// machine_table.cpp - numbers what there is, as links.h and the dispatch stage do.
#include "core/dispatch/machine_table.h"

#include "core/execute/links.h"

namespace moorage::core {

lent_vector<moorage_device> table_of_devices(uint32_t gpus, std::span<const uint8_t> distances) {
    lent_vector<moorage_device> devices;
    const auto add = [&](int32_t kind, uint32_t distance) {
        const auto id = static_cast<uint32_t>(devices.size());
        devices.push_back({sizeof(moorage_device), kind, id, distance});
    };
    while (devices.size() < gpus) add(MOORAGE_DEVICE_GPU, MOORAGE_DISTANCE_OWN);
    add(MOORAGE_DEVICE_CPU, MOORAGE_DISTANCE_OWN);
    for (const uint8_t distance : distances) add(MOORAGE_DEVICE_SERVER, distance);
    return devices;
}

machine_table::machine_table(const device_costs &costs, std::span<const uint32_t> slots,
                             uint32_t host_slots, std::span<const uint8_t> distances)
    : devices(table_of_devices(static_cast<uint32_t>(slots.size()), distances)) {
    const auto gpus = static_cast<uint32_t>(slots.size()), host = gpus;
    const bool has_disk = host_slots != MOORAGE_NONE;
    const uint32_t versions_mask = (1u << costs.first.shape().versions()) - 1;
    const auto add = [&](int32_t kind, uint32_t room, uint32_t versions) {
        stores.push_back({sizeof(moorage_store), kind, room, versions});
    };
    for (const uint32_t room : slots) add(MOORAGE_STORE_FAST, room, versions_mask);
    add(MOORAGE_STORE_HOST, host_slots, versions_mask);
    for (size_t i = 0; i < distances.size(); ++i) add(MOORAGE_STORE_SERVER, 0, 1);
    if (has_disk) add(MOORAGE_STORE_DISK, MOORAGE_NONE, 1);
    links.assign(links_of(gpus, has_disk),
                 {sizeof(moorage_link), MOORAGE_NONE, MOORAGE_NONE, 0, 0});
    for (uint32_t gpu = 0; gpu < gpus; ++gpu)
        links[h2d_of(gpu)] = {sizeof(moorage_link), host, gpu, 0,
                              costs.of_device(gpu).hardware().link.h2d_bytes_per_s};
    if (has_disk)
        links[link_disk] = {sizeof(moorage_link), static_cast<uint32_t>(stores.size()) - 1, host, 0,
                            costs.first.hardware().disk.read_bytes_per_s};
}

void machine_table::show_in(moorage_limits &limits) const {
    limits.stores = static_cast<uint32_t>(stores.size());
    limits.devices = static_cast<uint32_t>(devices.size());
    limits.links = static_cast<uint32_t>(links.size());
    limits.host_stores = stores.data();
    limits.host_devices = devices.data();
    limits.host_links = links.data();
}

}  // namespace moorage::core
