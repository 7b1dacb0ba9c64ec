// lfu.hpp - every server keeps what its own homes use most (SlimCaching, Section VI-A).
//
// Frequencies are those of the homes that enter through the server, weighted by their tokens,
// without experts that a home holds itself. The most frequent expert comes first, ties by the
// smaller one. An expert that does not fit is skipped and the next one tried. An expert that is not
// requested is not kept. Servers do not know of each other. Cost: experts * (homes + servers *
// log(experts)).
#pragma once

#include "slim_parts.hpp"

namespace moorage::policies {

class lfu : public moorage::slim::planner {
public:
    static constexpr moorage::about about{
        .name = "lfu",
        .summary = "every server keeps the experts that its own homes ask for most often",
        .source = "SlimCaching, Section VI-A (baseline)"};

    explicit lfu(const moorage::setup &) {}

    void plan(const moorage_cluster &cluster, const moorage_demand &demand,
              std::span<const moorage_copy>, moorage::copies &copies) {
        moorage::latency_model model(cluster, demand);
        moorage::device_room room(model);
        facts_.clear();
        double tokens_per_s = 0;
        for (uint32_t h = 0; h < demand.homes; ++h)
            tokens_per_s += demand.host_home_tokens_per_s[h];
        std::vector<double> asked(size_t{cluster.servers} * model.experts(), 0);
        for (uint32_t h = 0; h < demand.homes; ++h) {
            double *sum = asked.data() + size_t{cluster.host_home_server[h]} * model.experts();
            const double weight = tokens_per_s > 0 ? demand.host_home_tokens_per_s[h] : 1;
            for (uint32_t x = 0; x < model.experts(); ++x) {
                const size_t entry = size_t{h} * model.experts() + x;
                if (demand.host_home_holds && demand.host_home_holds[entry] != 0) continue;
                sum[x] += weight * demand.host_frequency[entry];
            }
        }
        std::vector<moorage_copy> chosen;
        std::vector<uint32_t> order(model.experts());
        for (uint32_t n = 0; n < cluster.servers; ++n) {
            const double *sum = asked.data() + size_t{n} * model.experts();
            std::iota(order.begin(), order.end(), 0u);
            std::sort(order.begin(), order.end(), [sum](uint32_t a, uint32_t b) {
                return sum[a] != sum[b] ? sum[a] > sum[b] : a < b;
            });
            for (const uint32_t x : order) {
                const uint32_t device = room.find(x, n);
                if (sum[x] <= 0) break;
                if (device == moorage::latency_model::none) continue;
                chosen.push_back({x, device});
                room.take(x, device);
            }
        }
        model.assign(chosen);
        moorage::slim::finish(about.name, model, room, copies, facts_);
    }
};

}  // namespace moorage::policies
