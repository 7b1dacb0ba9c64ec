// run_events.h - what the pipeline reports while a run goes on. A timeline shows it.
#pragma once

#include <cstdint>

#include "core/base/causes.h"
#include "core/execute/operations.h"
#include "core/source/source.h"

namespace moorage::core {

class memories;
struct transfer_record;

class run_events {
public:
    virtual ~run_events() = default;

    // A piece of the transfer, of so many bytes, has crossed its link.
    virtual void copied(const transfer_record &record, uint64_t bytes, uint64_t duration_ns,
                        uint64_t now_ns) = 0;
    virtual void computed(event_kind kind, uint32_t layer, uint32_t page, uint64_t duration_ns,
                          uint64_t now_ns) = 0;
    // Loads before a pass begins do not count for any pass's rate.
    virtual void pass_begins(const pass &pass, uint64_t tokens_done, uint64_t loaded_bytes,
                             uint64_t now_ns) = 0;
    // Sums since the run began.
    struct sums {
        uint64_t requested, hits, loaded_bytes, waiting_bytes;
        time_causes causes;
    };
    virtual void pass_ended(const pass &pass, const sums &now, uint64_t now_ns) = 0;
    // A layer step has been decided. Pages that are no longer there were evicted for it.
    virtual void decided(const memories &memories, uint64_t now_ns) = 0;
};

}  // namespace moorage::core
