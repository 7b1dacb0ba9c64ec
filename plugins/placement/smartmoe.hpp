// smartmoe.hpp - SmartMoE's placement: equally many experts per layer on every device, even loads.
//
// Source: SmartMoE's placement module, as Prism compares with it in Section IV-A. Layer by layer,
// the expert that all servers together activate most goes first. It goes to the least loaded device
// that is below its share. There are no copies. Experts that do not divide by the devices go one
// each to devices with spare memory. Among devices with equal load in the layer, the one with less
// load in the layers before comes first, then the one with fewer experts there, then the first.
// With a cloud, experts that find no room are left to the cloud. Cost of a plan: O(experts *
// devices).
#pragma once

#include "even_shares.hpp"

namespace moorage::policies {

class smartmoe {
public:
    static constexpr moorage::about about{
        .name = "smartmoe",
        .summary = "as many experts on every device, heaviest first to the least loaded",
        .source = "SmartMoE's placement, as in Prism, Section IV-A",
    };
    static constexpr moorage::param params[] = {placement::cover_parameter};

    explicit smartmoe(const moorage::setup &setup)
        : always_cover_(setup.text("cover") == "always") {}

    void plan(const moorage_cluster &cluster, const moorage_demand &demand,
              std::span<const moorage_copy>, moorage::copies &copies) {
        const placement::scene scene = placement::read_scene(cluster, demand, always_cover_);
        if (scene.models.empty()) return;
        devices_.assign(scene.devices, {});
        // The room beyond whole shares is for the experts that do not divide.
        uint64_t needs = 0;
        for (const placement::model &model : scene.models)
            needs += uint64_t{model.experts / scene.devices} * model.layers * model.expert_bytes;
        for (uint32_t device = 0; device < scene.devices; ++device) {
            if (scene.cover && scene.device_bytes[device] < needs)
                placement::fail_share(device, scene.device_bytes[device], needs);
            devices_[device].left = scene.device_bytes[device];
            devices_[device].reserved = std::min(needs, scene.device_bytes[device]);
        }
        for (const placement::model &model : scene.models)
            for (uint32_t layer = 0; layer < model.layers; ++layer)
                place(scene, model, layer, copies);
    }

private:
    struct device {
        uint64_t left = 0, reserved = 0;  // bytes
        double load = 0, load_before = 0;
        uint32_t count = 0, count_before = 0;
    };
    // Whether the device may get one more expert of the layer, within its share or beyond it.
    static bool can_take(const device &device, uint64_t bytes, uint32_t share, uint32_t beyond) {
        if (device.count < share) return device.left >= bytes;
        return device.count == share && beyond > 0 && device.left >= device.reserved + bytes;
    }
    static bool lighter(const device &a, const device &b) {
        if (a.load != b.load) return a.load < b.load;
        if (a.load_before != b.load_before) return a.load_before < b.load_before;
        return a.count_before < b.count_before;
    }
    void place(const placement::scene &scene, const placement::model &model, uint32_t layer,
               moorage::copies &copies) {
        const uint32_t first = model.first + layer * model.experts;
        const uint32_t share = model.experts / scene.devices;
        const uint64_t bytes = model.expert_bytes;
        uint32_t beyond = model.experts % scene.devices;
        std::vector<double> load(model.experts);
        std::vector<uint32_t> order(model.experts);
        std::iota(order.begin(), order.end(), 0u);
        for (const uint32_t expert : order) load[expert] = scene.total_rate(first + expert);
        std::stable_sort(order.begin(), order.end(),
                         [&](uint32_t a, uint32_t b) { return load[a] > load[b]; });
        for (const uint32_t expert : order) {
            device *best = nullptr;
            for (device &candidate : devices_)
                if (can_take(candidate, bytes, share, beyond) &&
                    (!best || lighter(candidate, *best)))
                    best = &candidate;
            if (best == nullptr) {
                if (!scene.cover) continue;
                throw std::invalid_argument(
                    "no device has room for expert " + std::to_string(first + expert) +
                    " beside its even share; give the devices more memory or a cloud");
            }
            if (best->count == share)
                --beyond;
            else
                best->reserved -= std::min(best->reserved, bytes);
            best->left -= bytes;
            best->load += load[expert];
            ++best->count;
            copies.push(first + expert, static_cast<uint32_t>(best - devices_.data()));
        }
        for (device &device : devices_) {
            device.load_before += device.load;
            device.count_before += device.count;
            device.load = 0;
            device.count = 0;
        }
    }

    const bool always_cover_;
    std::vector<device> devices_;  // for the running plan
};

}  // namespace moorage::policies
