// cluster_figures.h - sums the results of a cluster's nodes into one report.
#pragma once

#include <array>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tools/cluster/arrivals.h"
#include "tools/cluster/cluster_emulator.h"
#include "tools/cluster/rebalancer.h"
#include "core/report/report.h"

namespace moorage::core {

// Width of a bucket of the figures over time.
double bucket_s(const cluster_config &config);

// The name of a network's endpoint: a server, the cloud or a user.
std::string endpoint_name(const scene &scene, const network &links, uint32_t endpoint);

class cluster_sums {
public:
    // All borrowed.
    cluster_sums(const scene &scene, const cluster_emulator &emulator,
                 const cluster_config &config);
    // Adds a node that has done its work. `requests` is null if none enter there.
    void add(const cluster_node &node, pipeline &line, const arrival_source *requests);
    run_report report(const rebalancer &balance, std::string_view policy);

private:
    struct home_sums {
        uint64_t requests = 0, tokens = 0;
        time_collection latency_ns, ttft_ns;
        activation_counts activations;
        std::array<time_causes, 2> causes{};
    };
    struct time_sums {
        activation_counts activations;
        uint64_t requests = 0, latency_ns = 0;
    };
    time_sums &bucket_at(uint64_t ns);
    void add_requests(home_sums &home, const arrival_source &source);
    void add_links(cluster_report &report) const;
    void add_devices(cluster_report &report, const rebalancer &balance) const;

    const scene &scene_;
    const cluster_emulator &emulator_;
    const cluster_config &config_;
    run_report sum_;
    uint64_t experts_ns_ = 0;
    std::map<uint32_t, home_sums> homes_;
    std::vector<time_sums> over_time_;
    time_collection tpot_ns_, ttft_ns_, latency_ns_;
};

}  // namespace moorage::core
