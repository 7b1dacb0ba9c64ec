// redundance.cpp - every expert once on a random device, then random copies until memory is full.
//
// Source: baseline of Prism, Section IV-A. Experts come in random order, larger ones first. Each
// goes to a random device with room. Then every server fills its devices with random experts that
// it lacks, so none is twice on a server. It places once and then stays, as in the paper. Cost of a
// plan: O(experts * (devices + servers)).

#include "server_demand.hpp"

namespace {

namespace placement = moorage::placement;

class redundance {
public:
    static constexpr moorage::about about{
        .name = "redundance",
        .summary = "random placement with random copies in what memory is left",
        .source = "Prism, Section IV-A, baseline Redundance",
        .flags = MOORAGE_POLICY_RANDOMISED,
    };
    static constexpr moorage::param params[] = {placement::cover_parameter};

    explicit redundance(const moorage::setup &setup)
        : host_(setup.host), always_cover_(setup.text("cover") == "always") {}

    void plan(const moorage_cluster &cluster, const moorage_demand &demand,
              std::span<const moorage_copy>, moorage::copies &copies) {
        const placement::scene scene = placement::read_scene(cluster, demand, always_cover_);
        std::vector<item> order = items(scene);
        std::vector<uint64_t> left = scene.device_bytes;
        std::vector<uint8_t> held(size_t{scene.servers} * scene.experts, 0);
        const auto put = [&](const item &entry, uint32_t device) {
            left[device] -= entry.bytes;
            held[size_t{scene.device_server[device]} * scene.experts + entry.expert] = 1;
            copies.push(entry.expert, device);
        };
        shuffle(order);
        std::stable_sort(order.begin(), order.end(),
                         [](const item &a, const item &b) { return a.bytes > b.bytes; });
        for (const item &entry : order)
            if (const uint32_t device = draw_device(left, entry.bytes); device != moorage::none)
                put(entry, device);
            else if (scene.cover)
                throw std::invalid_argument("no device has room for expert " +
                                            std::to_string(entry.expert) + " of " +
                                            std::to_string(entry.bytes) +
                                            " bytes; give the devices more memory or a cloud");
        for (uint32_t server = 0; server < scene.servers; ++server) {
            shuffle(order);
            for (const item &entry : order)
                if (!held[size_t{server} * scene.experts + entry.expert])
                    for (uint32_t d = scene.first_device[server];
                         d < scene.first_device[server + 1]; ++d)
                        if (left[d] >= entry.bytes) {
                            put(entry, d);
                            break;
                        }
        }
    }
    bool adopt(const moorage_move &) { return false; }

private:
    struct item {
        uint32_t expert;
        uint64_t bytes;
    };
    static std::vector<item> items(const placement::scene &scene) {
        std::vector<item> list;
        for (const placement::model &model : scene.models)
            for (uint32_t i = 0; i < model.count(); ++i)
                list.push_back({model.first + i, model.expert_bytes});
        return list;
    }
    void shuffle(std::vector<item> &items) const {
        for (size_t i = 0; i + 1 < items.size(); ++i)
            std::swap(items[i],
                      items[i + host_.random_below(static_cast<uint32_t>(items.size() - i))]);
    }
    uint32_t draw_device(std::span<const uint64_t> left, uint64_t bytes) const {
        uint32_t count = 0;
        for (const uint64_t room : left) count += room >= bytes;
        if (count == 0) return moorage::none;
        uint32_t chosen = host_.random_below(count), device = 0;
        for (;; ++device)
            if (left[device] >= bytes && chosen-- == 0) return device;
    }

    const moorage::host host_;
    const bool always_cover_;
};

}  // namespace

MOORAGE_POLICIES("org.moorage.redundance", "1.0.0", redundance)
