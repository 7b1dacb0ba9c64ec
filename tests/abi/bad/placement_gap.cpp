// placement_gap.cpp - breaks a rule: leaves the last expert out, with and without a cloud.
#include <moorage/moorage.hpp>

#include <cstdint>
#include <vector>

namespace {

class placement_gap {
public:
    static constexpr moorage::about about{.name = "placement_gap", .summary = "breaks a rule"};
    explicit placement_gap(const moorage::setup &) {}
    void reset() {}
    void activate(const moorage::limits &) {}
    // Each expert goes to the first device that has room.
    void plan(const moorage_cluster &cluster, const moorage_demand &demand,
              std::span<const moorage_copy>, moorage::copies &copies) {
        std::vector<uint64_t> room(cluster.host_device_bytes,
                                   cluster.host_device_bytes + cluster.devices);
        for (uint32_t m = 0; m < demand.models; ++m) {
            const uint64_t bytes = demand.host_expert_bytes[m];
            for (uint32_t e = demand.host_model_first[m]; e + 1 < demand.host_model_first[m + 1];
                 ++e)
                for (uint32_t g = 0; g < cluster.devices; ++g) {
                    if (room[g] < bytes) continue;
                    room[g] -= bytes;
                    copies.push(e, g);
                    break;
                }
        }
    }
};

}  // namespace

MOORAGE_POLICIES("org.moorage.bad.placement_gap", "1.0.0", placement_gap)
