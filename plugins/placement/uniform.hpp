// uniform.hpp - every device holds an equal share of every layer, no expert twice.
//
// Source: baseline of Prism, Section IV-A: the placement of expert parallelism. Shares are
// contiguous blocks of experts, or random ones. Experts that do not divide go to the devices in
// turn (even_shares.hpp). With a cloud a device keeps what fits, every layer in turn, and the cloud
// has the rest. It places once and then stays: it adopts no candidate, as in the paper. Cost of a
// plan: O(experts of all layers).
#pragma once

#include "even_shares.hpp"

namespace moorage::policies {

class uniform {
public:
    static constexpr moorage::about about{
        .name = "uniform",
        .summary = "an equal share of every layer on every device, no copies",
        .source = "Prism, Section IV-A, baseline Uniform",
        .flags = MOORAGE_POLICY_RANDOMISED,
    };
    static constexpr moorage::param params[] = {
        moorage::text("order", "contiguous", "contiguous|random",
                      "shares are blocks of neighbouring experts, or drawn"),
        placement::cover_parameter,
    };

    explicit uniform(const moorage::setup &setup)
        : host_(setup.host),
          random_(setup.text("order") == "random"),
          always_cover_(setup.text("cover") == "always") {}

    void plan(const moorage_cluster &cluster, const moorage_demand &demand,
              std::span<const moorage_copy>, moorage::copies &copies) {
        const placement::scene scene = placement::read_scene(cluster, demand, always_cover_);
        if (scene.models.empty()) return;
        shares_.assign(scene.devices, {});
        placement::for_each_layer(scene, [&](const placement::model &model, uint32_t layer,
                                             uint32_t turn) { deal(scene, model, layer, turn); });
        for (uint32_t device = 0; device < scene.devices; ++device) give(scene, device, copies);
    }
    bool adopt(const moorage_move &) { return false; }

private:
    struct entry {
        uint32_t rank;  // in the device's share of the layer
        uint32_t expert;
        uint64_t bytes;
    };
    void deal(const placement::scene &scene, const placement::model &model, uint32_t layer,
              uint32_t turn) {
        std::vector<uint32_t> order(model.experts);
        std::iota(order.begin(), order.end(), model.first + layer * model.experts);
        for (uint32_t i = 0; random_ && i + 1 < model.experts; ++i)
            std::swap(order[i], order[i + host_.random_below(model.experts - i)]);
        uint32_t next = 0;
        for (uint32_t block = 0; block < scene.devices; ++block) {
            const uint32_t size =
                model.experts / scene.devices + (block < model.experts % scene.devices ? 1 : 0);
            for (uint32_t i = 0; i < size; ++i)
                shares_[(block + turn) % scene.devices].push_back(
                    {i, order[next++], model.expert_bytes});
        }
    }
    // By rank, so that layers keep about equally many if not all fit.
    void give(const placement::scene &scene, uint32_t device, moorage::copies &copies) {
        std::vector<entry> &share = shares_[device];
        std::stable_sort(share.begin(), share.end(),
                         [](const entry &a, const entry &b) { return a.rank < b.rank; });
        uint64_t needs = 0;
        for (const entry &placed : share) needs += placed.bytes;
        if (scene.cover && needs > scene.device_bytes[device])
            placement::fail_share(device, scene.device_bytes[device], needs);
        uint64_t left = scene.device_bytes[device];
        for (const entry &placed : share) {
            if (placed.bytes > left) continue;
            left -= placed.bytes;
            copies.push(placed.expert, device);
        }
    }

    const moorage::host host_;
    const bool random_, always_cover_;
    std::vector<std::vector<entry>> shares_;  // for the running plan
};

}  // namespace moorage::policies
