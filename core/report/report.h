// report.h - the results of a run: the figures of the contract, and their conversion to text and
// JSON.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/base/causes.h"
#include "core/base/fact.h"
#include "core/base/json_fwd.h"
#include "core/base/setting.h"
#include "core/report/cluster_report.h"
#include "core/report/guarding.h"
#include "core/report/summary.h"
#include "core/source/step_counts.h"

namespace moorage::core {

struct time_ms {
    double compute = 0;   // GPU busy
    double transfer = 0;  // host-to-GPU link busy
    double stall = 0;     // GPU idle because an expert was awaited
    double cpu = 0;       // CPU pool busy
    // Host time of decisions: policies, and the checks of their advice. Not known in virtual time.
    double policy = 0;
};

// Host memory as a cache of the disk.
struct host_report {
    uint32_t slots = 0;
    uint64_t requested = 0;    // by loads and by experts computed on the CPU ...
    uint64_t hits = 0;         // ... of experts that were there
    uint64_t disk_bytes = 0;   // bytes read for misses
    uint64_t first_bytes = 0;  // bytes read earlier, as the first content
    double disk_ms = 0;        // time that the disk was busy, without the first content
};

// One of several GPUs that share the experts.
struct device_report {
    std::string name;
    uint32_t experts = 0, slots = 0;  // experts that belong to it; whole or top segments
    uint64_t requested = 0, hits = 0, loaded = 0;
    uint64_t h2d_bytes = 0;
    double compute_ms = 0, transfer_ms = 0, stall_ms = 0;
};

// The text that a model wrote, or how well it predicted a given text.
struct text_report {
    std::string model;                        // its directory's name; empty: the run had no model
    std::vector<std::string> prompts, texts;  // parallel; texts without their prompts
    uint64_t written = 0;                     // tokens
    uint64_t scored = 0;                      // tokens that follow another token
    double nll = 0;                           // mean of -log p over them
    struct part {
        std::string name;
        uint64_t scored = 0;
        double nll = 0;
    };
    std::vector<part> parts;  // parts of the scored text, if it has several
    // With a lossy router: nll of the same tokens under the model's own choice.
    std::optional<double> own_nll;
    double perplexity() const;
    double nll_change() const;  // nll - *own_nll; Requires: own_nll
};

// Calls of one function of one policy, and the host's time in them.
struct policy_time {
    std::string policy, call;  // "lru", "victims"
    uint64_t calls = 0;
    double ms = 0;  // estimated from the calls that were timed
};

// Bytes loaded while no request was under way: the first content of the caches, as their policy
// names it, and loads after a budget changed splits or sizes. Not part of the other figures.
struct arrangement_report {
    uint64_t first_bytes = 0, bytes = 0, changes = 0;
    bool uneven = false;  // a budget has given layers unequal shares, or splits
    double first_ms = 0, ms = 0;
};

struct run_report {
    uint64_t tokens = 0, requests = 0;
    std::string executor, profile, title;
    uint64_t seed = 0;
    bool virtual_time = false;
    double total_ms = 0;
    summary_ms tpot_ms, ttft_ms;
    double tokens_per_s = 0;
    expert_counts experts;
    routing_counts routing;
    bool lossy = false;  // the router may choose differently from the model
    // Names of the experts' versions, and the work done in each. Empty: there is one version.
    std::vector<std::string> version_names;
    version_counts versions[2];
    byte_counts bytes;
    arrangement_report arrangement;
    std::optional<host_report> host;     // if host memory does not hold all experts
    std::vector<device_report> devices;  // empty: there is one
    time_ms time;                        // sum over several devices
    // [layers + 1][prefill, decode] the time by causes. The last layer stands for heads and for the
    // time between passes. Together they sum to total_ms; for a cluster, to that of each of its
    // pipelines.
    std::vector<std::array<time_causes, 2>> causes;
    bool has_predictions = false;
    uint64_t predicted = 0, predicted_right = 0;  // sums over the layers
    std::vector<layer_report> layers;
    std::vector<policy_time> policy_times;  // empty: they were not timed
    std::vector<guard_arm> guard;           // empty: the run had none
    json_box config;                        // resolved, by section
    std::map<std::string, uint64_t> faults;
    std::map<std::string, uint64_t> without_advice;  // calls that a policy left to the default
    std::map<std::string, std::vector<fact>> facts;  // facts that policies state, by policy
    std::vector<std::string> warnings;
    std::string misfit;  // need beyond an emulated machine's memory
    text_report text;
    std::optional<cluster_report> cluster;
    // Misses of the offline optimum at the same slots and sharing. It loads each request of the
    // trace on demand, into the cache. 0: not counted.
    uint64_t opt_misses = 0;
    std::string opt_reason;  // why it was not counted, if this run counts something else
};

// The contract's JSON. Numbers are written so that equal runs give equal bytes.
json to_json(const run_report &report);
std::string json_text(const run_report &report);  // the same, on one line
// For a terminal, at most 80 columns.
std::string to_text(const run_report &report);

}  // namespace moorage::core
