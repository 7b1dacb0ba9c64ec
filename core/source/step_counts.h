// step_counts.h - counts of layer steps, kept by the stages and summed in reports.
#pragma once

#include <cstdint>

namespace moorage::core {

// Numbers of experts, summed over layer steps. requested = hits + partial_hits + misses.
struct expert_counts {
    uint64_t requested = 0;
    uint64_t hits = 0;          // complete when the routing was known
    uint64_t partial_hits = 0;  // top segment there, or being loaded
    uint64_t misses = 0;
    uint64_t substituted = 0;  // of the model's own choices; routing_counts has details
    uint64_t on_cpu = 0;
    uint64_t remote = 0;
    uint64_t loaded = 0;      // loaded to fast memory on demand
    double hit_rate() const;  // hits / requested; 0 if nothing was requested
    expert_counts &operator+=(const expert_counts &right);
};

// The fate of the model's own choices. A row is a token at a layer and has k choices. It is
// unchanged if the router kept its experts and their weights.
struct routing_counts {
    uint64_t choices = 0, rows = 0, rows_unchanged = 0;
    // Own experts among the substituted choices: with another weight, or with none.
    uint64_t reweighted = 0, dropped = 0;
    uint64_t small = 0;       // own experts computed in the second version
    uint64_t held_exact = 0;  // substitutions undone because the request must be exact
    uint64_t held_cap = 0;    // substitutions undone because of [router] substitution_max
    routing_counts &operator+=(const routing_counts &right);
};

// Experts computed and loaded in one version, if there are several.
struct version_counts {
    uint64_t computed = 0;      // pairs of expert and token
    uint64_t loaded_bytes = 0;  // by transfers that a step waited for
    version_counts &operator+=(const version_counts &right);
};

struct byte_counts {
    uint64_t h2d = 0, d2h = 0, network = 0;
    // h2d = demand + prefetched + behind: bytes handed to the link until the run ended.
    uint64_t demand = 0;
    // prefetched = used + wasted. cut_off: the wasted ones that were stopped before they arrived.
    uint64_t prefetched = 0, prefetch_used = 0, prefetch_wasted = 0, prefetch_cut_off = 0;
    uint64_t prefetch_late = 0;  // used ones that were still being loaded when requested
    uint64_t behind = 0;         // loaded into the cache for a dispatch policy, while nothing waits
};

struct layer_report {
    expert_counts experts;
    routing_counts routing;
    version_counts versions[2];    // [version]
    uint64_t h2d_bytes = 0;        // of its experts, on demand or before
    double stall_ms = 0;           // part of time_ms::stall until its last expert was computed
    uint32_t slots = 0;            // at the end of the run
    double split = 1;              // share of an expert that is its top segment, at the end
    uint64_t predicted = 0;        // experts requested at visits with a prediction
    uint64_t predicted_right = 0;  // of these, among the first top_k predicted
};

}  // namespace moorage::core
