// step_counts.h - what is counted of layer steps: by the stages, and summed up in reports.
#pragma once

#include <cstdint>

namespace moorage::core {

// Counts of experts per layer step, summed. requested = hits + partial_hits + misses.
struct expert_counts {
    uint64_t requested = 0;
    uint64_t hits = 0;          // whole and there when the routing was known
    uint64_t partial_hits = 0;  // top segment there, or in flight
    uint64_t misses = 0;
    uint64_t substituted = 0;  // of the model's own choices: routing_counts says how
    uint64_t on_cpu = 0;
    uint64_t remote = 0;
    uint64_t loaded = 0;      // moved to fast memory on demand
    double hit_rate() const;  // hits / requested; 0 when nothing was
    expert_counts &operator+=(const expert_counts &other);
};

// What became of the model's own choices, k of them in a row: a token at a layer. A row is
// unchanged when the router left it its experts and the weights that the model gives them.
struct routing_counts {
    uint64_t choices = 0, rows = 0, rows_unchanged = 0;
    // Of what was substituted, its own experts: with another weight, or with none.
    uint64_t reweighted = 0, dropped = 0;
    uint64_t small = 0;       // its own, for which a second version was good enough
    uint64_t held_exact = 0;  // substitutions undone: the request was to be exact ...
    uint64_t held_cap = 0;    // ... or would have had more of them than [router] allows
    routing_counts &operator+=(const routing_counts &other);
};

// What was computed and brought in one version of the experts, where there are several.
struct version_counts {
    uint64_t computed = 0;      // experts, for a token each
    uint64_t loaded_bytes = 0;  // by transfers that a step waited for
    version_counts &operator+=(const version_counts &other);
};

struct byte_counts {
    uint64_t h2d = 0, d2h = 0, network = 0;
    // h2d = demand + prefetched + behind, handed to the link until the run ended.
    uint64_t demand = 0;
    // prefetched = used + wasted; of what was wasted, cut_off: it was ended before it had arrived.
    uint64_t prefetched = 0, prefetch_used = 0, prefetch_wasted = 0, prefetch_cut_off = 0;
    uint64_t prefetch_late = 0;  // of what was used: still under way when it was asked for
    uint64_t behind = 0;         // into the cache, as a dispatch policy said, with nobody waiting
};

struct layer_report {
    expert_counts experts;
    routing_counts routing;
    version_counts versions[2];    // [version]
    uint64_t h2d_bytes = 0;        // of its experts, by demand or before
    double stall_ms = 0;           // of time_ms::stall, until its last expert was computed
    uint32_t slots = 0;            // at the end
    double split = 1;              // share of an expert that is its top segment, at the end
    uint64_t predicted = 0;        // experts asked for at visits that had a prediction
    uint64_t predicted_right = 0;  // of them, among the first top_k predicted
};

}  // namespace moorage::core
