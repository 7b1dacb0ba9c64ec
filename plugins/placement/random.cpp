// random.cpp - fills every server with experts in a random order (SlimCaching, Section VI-A).
//
// For each server it takes all experts of requested models, in an order from the host's seed. It
// skips an expert that does not fit and tries the next one. Cost: experts * servers.
#include "slim_parts.hpp"

namespace {

class random_placement : public moorage::slim::planner {
public:
    static constexpr moorage::about about{
        .name = "random",
        .summary = "fills every server with experts in a random order",
        .source = "SlimCaching, Section VI-A (baseline)"};

    explicit random_placement(const moorage::setup &setup) : host_(setup.host) {}

    void plan(const moorage_cluster &cluster, const moorage_demand &demand,
              std::span<const moorage_copy>, moorage::copies &copies) {
        moorage::latency_model model(cluster, demand);
        moorage::device_room room(model);
        facts_.clear();
        std::vector<uint32_t> experts;
        for (uint32_t m = 0; m < demand.models; ++m)
            if (moorage::slim::wanted(demand, m))
                for (uint32_t x = demand.host_model_first[m]; x < demand.host_model_first[m + 1];
                     ++x)
                    experts.push_back(x);
        for (uint32_t n = 0; n < cluster.servers; ++n) {
            for (auto left = static_cast<uint32_t>(experts.size()); left > 0; --left) {
                std::swap(experts[left - 1], experts[host_.random_below(left)]);
                const uint32_t x = experts[left - 1], device = room.find(x, n);
                if (device == moorage::latency_model::none) continue;
                model.add(x, device);
                room.take(x, device);
            }
        }
        moorage::slim::finish(about.name, model, room, copies, facts_);
    }

private:
    moorage::host host_;
};

}  // namespace

MOORAGE_POLICIES("org.moorage.placement.random", "1.0.0", random_placement)
