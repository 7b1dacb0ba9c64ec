// slim_greedy.hpp - places the copy that saves most per byte, repeatedly (Algorithm 1).
//
// greedy_search.hpp says how. `guarantee` is 1/2 for K = 1 and equal sizes, else 0: the printed 1 -
// 1/e is wrong for several servers.
#pragma once

#include "greedy_search.hpp"

namespace moorage::policies {

class slim_greedy : public moorage::slim::planner {
public:
    static constexpr moorage::about about{
        .name = "slim_greedy",
        .summary = "places the copy that saves most seconds per byte, again and again",
        .source = "SlimCaching, Algorithm 1"};
    static constexpr moorage::param params[] = {moorage::flag(
        "per_byte", true,
        "false: the copy that saves most seconds, whatever its size, as the words of SlimCaching, "
        "Section VI-A, have it (Algorithm 1 divides by the size)")};

    explicit slim_greedy(const moorage::setup &setup) : per_byte_(setup.flag("per_byte")) {}

    void plan(const moorage_cluster &cluster, const moorage_demand &demand,
              std::span<const moorage_copy>, copies &copies) {
        latency_model model(cluster, demand);
        device_room room(model);
        facts_.clear();
        moorage::slim::greedy_search search(model, room, per_byte_);
        search.run();
        moorage::slim::finish(about.name, model, room, copies, facts_);
        facts_.add("guarantee", has_guarantee(model) ? 0.5 : 0);
        facts_.add("marginals", static_cast<double>(search.marginals()));
    }

private:
    static bool has_guarantee(const latency_model &model) {
        uint64_t size = 0;
        bool equal = model.cluster().devices == model.cluster().servers;
        for (uint32_t m = 0; m < model.demand().models; ++m) {
            if (!moorage::slim::wanted(model.demand(), m)) continue;
            if (size == 0) size = model.demand().host_expert_bytes[m];
            equal = equal && size == model.demand().host_expert_bytes[m] &&
                    model.demand().host_model_top_k[m] == 1;
        }
        return equal;
    }

    const bool per_byte_;
};

}  // namespace moorage::policies
