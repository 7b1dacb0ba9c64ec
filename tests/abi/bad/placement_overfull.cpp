// placement_overfull.cpp - breaks a rule: puts every expert on every device, even if they do not
// fit.
#include <moorage/moorage.hpp>

#include <cstdint>

namespace {

class placement_overfull {
public:
    static constexpr moorage::about about{.name = "placement_overfull", .summary = "breaks a rule"};
    explicit placement_overfull(const moorage::setup &) {}
    void reset() {}
    void activate(const moorage::limits &) {}
    void plan(const moorage_cluster &cluster, const moorage_demand &demand,
              std::span<const moorage_copy>, moorage::copies &copies) {
        for (uint32_t e = 0; e < demand.host_model_first[demand.models]; ++e)
            for (uint32_t g = 0; g < cluster.devices; ++g) copies.push(e, g);
    }
};

}  // namespace

MOORAGE_POLICIES("org.moorage.bad.placement_overfull", "1.0.0", placement_overfull)
