// load_table.hpp - utilisation of devices and links, and the waiting at them, for the joint policy.
//
// Each call goes to the holder that is nearest for it alone.
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "entry_demand.hpp"
#include "serving_table.hpp"

namespace moorage::joint {

class load_table {
public:
    // All are borrowed.
    load_table(const latency_model &latency, const call_times &times, const entry_demand &demand,
               const serving_table &serving)
        : latency_(latency), times_(times), demand_(demand), serving_(serving) {}

    // Calls per second that wait: r^2 / (1 - r), which is r / (1 - r) services of an M/M/1 queue
    // for every call. From r = 0.9 on a straight line.
    static double waiting(double utilisation) {
        if (utilisation >= 0.9) return 8.1 + 99 * (utilisation - 0.9);
        return utilisation * utilisation / (1 - utilisation);
    }
    // Devices, then links [servers, servers]. Empty before refresh().
    const std::vector<double> &utilisation() const { return utilisation_; }
    // Computes all anew.
    void refresh() {
        const moorage_cluster &cluster = latency_.cluster();
        utilisation_.assign(cluster.devices + size_t{cluster.servers} * cluster.servers, 0);
        for (uint32_t expert = 0; expert < latency_.experts(); ++expert)
            for (uint32_t entry = 0; entry < times_.entries(); ++entry)
                visit(expert, entry, serving_.device(demand_.pair_index(expert, entry)),
                      [this](size_t resource, double added) { utilisation_[resource] += added; });
    }

    // The change of the sum of waiting(). `keep`: makes the change. Requires: serving_ does not
    // have the change yet.
    double change(const copy_change &change, bool keep) {
        differences_.clear();
        for (uint32_t entry = 0; entry < times_.entries(); ++entry) {
            const uint32_t serving = serving_.device(demand_.pair_index(change.expert, entry)),
                           next_serving = serving_.device_after(change, entry);
            if (serving == next_serving) continue;
            visit(change.expert, entry, serving, [this](size_t resource, double removed) {
                differences_.emplace_back(static_cast<uint32_t>(resource), -removed);
            });
            visit(change.expert, entry, next_serving, [this](size_t resource, double added) {
                differences_.emplace_back(static_cast<uint32_t>(resource), added);
            });
        }
        std::stable_sort(
            differences_.begin(), differences_.end(),
            [](const auto &left, const auto &right) { return left.first < right.first; });
        double sum = 0;
        for (size_t index = 0; index < differences_.size();) {
            const uint32_t resource = differences_[index].first;
            double added = 0;
            for (; index < differences_.size() && differences_[index].first == resource; ++index)
                added += differences_[index].second;
            const double new_utilisation = std::max(0.0, utilisation_[resource] + added);
            sum += waiting(new_utilisation) - waiting(utilisation_[resource]);
            if (keep) utilisation_[resource] = new_utilisation;
        }
        return sum;
    }

private:
    // Calls `call(resource, utilisation)` with what the expert's calls by the entry's homes add if
    // `device` serves them.
    template <class Each>
    void visit(uint32_t expert, uint32_t entry, uint32_t device, Each call) const {
        const double calls_per_s =
            demand_.calls(demand_.pair_index(expert, entry)) * demand_.tokens_per_s();
        if (device == none || calls_per_s <= 0) return;
        const moorage_cluster &cluster = latency_.cluster();
        const uint32_t model = latency_.model_of(expert), own_server = times_.entry_server(entry);
        const uint32_t server = times_.server_of(device);
        call(device, calls_per_s * times_.call_s(device, model));
        if (server == own_server) return;
        const size_t request_link = size_t{own_server} * cluster.servers + server,
                     reply_link = size_t{server} * cluster.servers + own_server;
        const double bytes_per_s =
            calls_per_s * static_cast<double>(latency_.demand().host_hidden_bytes[model]);
        call(cluster.devices + request_link,
             bytes_per_s / cluster.host_link_bytes_per_s[request_link]);
        call(cluster.devices + reply_link, bytes_per_s / cluster.host_link_bytes_per_s[reply_link]);
    }

    const latency_model &latency_;
    const call_times &times_;
    const entry_demand &demand_;
    const serving_table &serving_;
    std::vector<double> utilisation_;
    std::vector<std::pair<uint32_t, double>> differences_;  // of the running change()
};

}  // namespace moorage::joint
