// cluster_report.h - the additional figures of a run over a cluster: requests, homes, links, and
// figures over time.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/base/causes.h"
#include "core/base/json_fwd.h"
#include "core/report/summary.h"

namespace moorage::core {

struct cluster_report {
    // Requests that enter at one server, or those of one user.
    struct home {
        std::string name;
        uint64_t requests = 0, tokens = 0;
        summary_ms latency_ms;  // arrival to last output token
        summary_ms ttft_ms;     // arrival to first output token
        // Share of expert activations on the home's own server. null: nobody counted them.
        std::optional<double> local_ratio = 1;
        std::array<time_causes, 2> causes{};  // [prefill, decode] of its pipelines
    };
    struct device {
        std::string name;
        double utilisation = 0;  // GPU busy over the time of the run
        uint64_t used_bytes = 0, bytes = 0;
        uint64_t served = 0;  // experts that it computed for others
    };
    struct link {
        std::string source, target;
        uint64_t activation_bytes = 0, migration_bytes = 0, queue_peak = 0;
        std::optional<double> utilisation = {};  // null: not measured
    };
    // By time since the run began. Latency is by the arrival of requests.
    struct bucket {
        double local_ratio = 1, latency_ms = 0;
        uint64_t requests = 0, activation_bytes = 0, migration_bytes = 0;
    };
    struct migration {
        double at_s = 0, done_s = 0;  // time of the decision; time of the last copy's arrival,
                                      // negative: not yet
        bool adopted = false;
        uint64_t added_copies = 0, added_bytes = 0, given_up = 0;
        double remote_per_s_current = 0, remote_per_s_candidate = 0;
    };
    std::string policy;  // of placement
    double duration_s = 0, bucket_s = 0;
    summary_ms latency_ms;
    // Time from a layer's routing to its last output, over all layers. null: not measured.
    std::optional<double> experts_ms_per_token = {};
    bool by_token = false;  // experts are counted once for each token that chose them, not once a
                            // pass
    double local_ratio = 1;
    double remote_call_ms = 0;  // mean for one server in one step, with any number of experts
    uint64_t calls = 0, events = 0;
    std::vector<home> homes;
    std::vector<device> devices;
    std::vector<link> links;  // links that carried anything; local ones apart
    std::vector<bucket> over_time;
    std::vector<migration> migrations;
    // [servers][layers] copies held at the end. Layers of all models, one model after the other.
    std::vector<std::vector<uint32_t>> servers_layers;
    std::vector<uint32_t> layers_experts;  // [layers] number of experts
    std::vector<uint32_t> models_layers;   // [models]
};

json to_json(const cluster_report &report);
// Lines of a run's text report, at most 80 columns.
std::string to_text(const cluster_report &report);

}  // namespace moorage::core
