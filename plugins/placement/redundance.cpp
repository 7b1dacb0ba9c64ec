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
              std::span<const moorage_copy>, moorage::copies &out) {
        const placement::scene of = placement::read_scene(cluster, demand, always_cover_);
        std::vector<item> all = items(of);
        std::vector<uint64_t> left = of.device_bytes;
        std::vector<uint8_t> held(size_t{of.servers} * of.experts, 0);
        const auto put = [&](const item &each, uint32_t device) {
            left[device] -= each.bytes;
            held[size_t{of.device_server[device]} * of.experts + each.expert] = 1;
            out.push(each.expert, device);
        };
        shuffle(all);
        std::stable_sort(all.begin(), all.end(),
                         [](const item &a, const item &b) { return a.bytes > b.bytes; });
        for (const item &each : all)
            if (const uint32_t device = draw_device(left, each.bytes); device != moorage::none)
                put(each, device);
            else if (of.cover)
                throw std::invalid_argument(
                    "no device has room for expert " + std::to_string(each.expert) + " of " +
                    std::to_string(each.bytes) + " bytes; give the devices more memory or a cloud");
        for (uint32_t server = 0; server < of.servers; ++server) {
            shuffle(all);
            for (const item &each : all)
                if (!held[size_t{server} * of.experts + each.expert])
                    for (uint32_t d = of.first_device[server]; d < of.first_device[server + 1]; ++d)
                        if (left[d] >= each.bytes) {
                            put(each, d);
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
    static std::vector<item> items(const placement::scene &of) {
        std::vector<item> all;
        for (const placement::model &each : of.models)
            for (uint32_t i = 0; i < each.count(); ++i)
                all.push_back({each.first + i, each.expert_bytes});
        return all;
    }
    void shuffle(std::vector<item> &all) const {
        for (size_t i = 0; i + 1 < all.size(); ++i)
            std::swap(all[i], all[i + host_.random_below(static_cast<uint32_t>(all.size() - i))]);
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
