// outside_placement.cpp - a placement policy of another project that uses the latency model. Each
// expert goes to the device where it saves most.
#include <moorage/latency.hpp>
#include <moorage/moorage.hpp>

#include <stdexcept>
#include <vector>

namespace {

class outside_placement {
public:
    static constexpr moorage::about about{.name = "outside_placement",
                                          .summary = "each expert where it saves most"};
    explicit outside_placement(const moorage::setup &) {}
    void activate(const moorage::limits &) {}
    void reset() {}
    void plan(const moorage_cluster &cluster, const moorage_demand &demand,
              std::span<const moorage_copy>, moorage::copies &copies) {
        moorage::latency_model model(cluster, demand);
        std::vector<uint64_t> room(cluster.host_device_bytes,
                                   cluster.host_device_bytes + cluster.devices);
        for (uint32_t m = 0; m < demand.models; ++m)
            for (uint32_t expert = demand.host_model_first[m];
                 expert < demand.host_model_first[m + 1]; ++expert) {
                const uint64_t bytes = demand.host_expert_bytes[m];
                uint32_t best = moorage::none;
                for (uint32_t device = 0; device < cluster.devices; ++device)
                    if (room[device] >= bytes &&
                        (best == moorage::none ||
                         model.gain(expert, device) > model.gain(expert, best)))
                        best = device;
                if (best == moorage::none) throw std::runtime_error("the devices are full");
                room[best] -= bytes;
                model.add(expert, best);
                copies.push(expert, best);
            }
    }
};

}  // namespace

MOORAGE_POLICIES("com.example.outside_placement", "0.1.0", outside_placement)
