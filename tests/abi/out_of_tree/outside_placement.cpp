// outside_placement.cpp - a placement policy of another project that asks for the latency model:
// each expert goes to the device where it saves most.
#include <moorage/latency.hpp>
#include <moorage/moorage.hpp>

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
        for (uint32_t expert = 0; expert < demand.host_model_first[demand.models]; ++expert) {
            uint32_t best = 0;
            for (uint32_t device = 1; device < cluster.devices; ++device)
                if (model.gain(expert, device) > model.gain(expert, best)) best = device;
            model.add(expert, best);
            copies.push(expert, best);
        }
    }
};

}  // namespace

MOORAGE_POLICIES("com.example.outside_placement", "0.1.0", outside_placement)
