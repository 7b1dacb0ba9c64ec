// emulated_prices.h - the price of an operation on an emulated GPU, and the part of it that is
// launching.
#pragma once

#include "core/execute/cost_model.h"
#include "core/execute/executor.h"

namespace moorage::core {

// The price of an expert, or of a move.
inline uint64_t price_of_work(const cost_model &costs, event_kind kind, const expert_work &work) {
    return kind == event_kind::device_expert
               ? costs.gpu_expert_ns(work.tokens, work.share, work.version)
           : kind == event_kind::cpu_expert ? costs.cpu_expert_ns(work.tokens, work.share)
                                            : costs.move_ns(work.share, work.version);
}

inline uint64_t launching_ns(const cost_model &costs, event_kind kind) {
    switch (kind) {
        case event_kind::gate:
        case event_kind::prediction:
            return costs.attention_overhead_ns() + costs.sync_ns();
        case event_kind::device_expert:
            return costs.expert_overhead_ns();
        case event_kind::head:
            return costs.head_overhead_ns();
        case event_kind::moved:
            return costs.move_overhead_ns();
        default:
            return 0;
    }
}

}  // namespace moorage::core
