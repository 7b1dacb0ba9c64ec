// even_shares.hpp - the number of experts of each layer on a device if all get equally many.
//
// E experts on G devices: E / G each. The E mod G that are left go one each to the devices in turn,
// and each layer continues where the last one stopped. So with fewer experts than devices the
// layers go round all devices.
#pragma once

#include "server_demand.hpp"

namespace moorage::placement {

// Calls `visit(model, layer, first device in turn)` for each layer.
template <class Visit>
void for_each_layer(const scene &scene, Visit visit) {
    uint64_t turn = 0;
    for (const model &model : scene.models)
        for (uint32_t layer = 0; layer < model.layers; ++layer) {
            visit(model, layer, static_cast<uint32_t>(turn % scene.devices));
            turn += model.experts % scene.devices;
        }
}

// Infeasible: a device cannot hold its share, and no other device does.
[[noreturn]] inline void fail_share(uint32_t device, uint64_t has, uint64_t needs) {
    throw std::invalid_argument("device " + std::to_string(device) + " has " + std::to_string(has) +
                                " bytes for experts, its even share of every layer takes " +
                                std::to_string(needs) +
                                "; give it more memory or choose a policy for unequal devices");
}

}  // namespace moorage::placement
