// holder_options.hpp - the least times of an expert for each choice of holders, for joint's bound.
//
// For few servers an option is a set of holders, as bits. For many servers options are each server
// alone, and none as the last one. A server alone that cannot be reached takes infinitely long.
#pragma once

#include <algorithm>
#include <vector>

#include "call_times.hpp"

namespace moorage::joint {

class holder_options {
public:
    // The times are borrowed. `by_subsets`: for few servers.
    holder_options(const call_times &times, uint32_t models, uint32_t servers, bool by_subsets)
        : times_(times),
          servers_(servers),
          by_subsets_(by_subsets),
          count_(by_subsets ? size_t{1} << servers : servers + 1) {
        for (uint32_t model = 0; model < models; ++model)
            for (uint32_t entry = 0; entry < times.entries(); ++entry) read(model, entry);
    }

    size_t count() const { return count_; }
    // [options] seconds that are paid once, whatever the experts.
    const double *once_s(uint32_t model, uint32_t entry) const {
        return &once_s_[(size_t{model} * times_.entries() + entry) * count_];
    }
    // [options] seconds that are paid for each expert.
    const double *each_s(uint32_t model, uint32_t entry) const {
        return &each_s_[(size_t{model} * times_.entries() + entry) * count_];
    }

private:
    struct cost {
        double once_s = infinity, each_s = infinity;
    };

    void read(uint32_t model, uint32_t entry) {
        const uint32_t own_server = times_.entry_server(entry);
        double least_reply_s = infinity;
        const std::vector<cost> servers = server_costs(model, entry, least_reply_s);
        const bool serial = times_.is_serial();
        const cost absent{
            serial ? times_.absent_once_s(model, entry) : times_.absent_s(model, entry),
            serial ? times_.absent_each_s(model, entry) : 0};
        for (size_t option = 0; option < count_; ++option) {
            cost least;
            if (by_subsets_)
                least = subset_cost(option, servers, own_server);
            else if (option < servers_)
                least = {servers[option].once_s,
                         option == own_server ? servers[option].each_s : least_reply_s};
            const bool served = least.once_s < infinity;
            if (!served && (by_subsets_ || option == servers_)) least = absent;
            once_s_.push_back(least.once_s);
            each_s_.push_back(least.once_s < infinity ? least.each_s : 0);
        }
    }
    // [servers], and the least time for each expert on another server than the entry's own.
    std::vector<cost> server_costs(uint32_t model, uint32_t entry, double &least_reply_s) const {
        // If outputs return one by one and calls are serial, replies are paid for each expert.
        const bool pays_replies = times_.is_serial() && times_.returns_each();
        std::vector<cost> servers(servers_);
        for (uint32_t device = 0; device < times_.devices(); ++device) {
            const uint32_t server = times_.server_of(device);
            if (!times_.is_reached(entry, server)) continue;
            const double reply_s = times_.reply_s(model, entry, server);
            cost &least = servers[server];
            least.once_s = std::min(least.once_s, times_.request_s(model, entry, server) +
                                                      times_.call_s(device, model) +
                                                      (pays_replies ? 0 : reply_s));
            least.each_s = pays_replies ? reply_s : 0;
            if (server != times_.entry_server(entry))
                least_reply_s = std::min(least_reply_s, least.each_s);
        }
        return servers;
    }
    cost subset_cost(size_t subset, const std::vector<cost> &servers, uint32_t own_server) const {
        const bool has_own = (subset >> own_server & 1) != 0;
        if (has_own && servers[own_server].once_s < infinity) return servers[own_server];
        cost least;
        for (uint32_t server = 0; server < servers_; ++server)
            if ((subset >> server & 1) != 0) {
                least.once_s = std::min(least.once_s, servers[server].once_s);
                least.each_s = std::min(least.each_s, servers[server].each_s);
            }
        return least;
    }

    const call_times &times_;
    const uint32_t servers_;
    const bool by_subsets_;
    const size_t count_;
    std::vector<double> once_s_, each_s_;  // [models, entries, options]
};

}  // namespace moorage::joint
