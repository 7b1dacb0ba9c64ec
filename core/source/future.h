// future.h - when each expert is next requested: the future of a trace, for offline optima.
//
// A `future` is built once per trace and shared by all runs over it. Each run has a cursor
// (future_cursor). For each page the gaps between its requests are stored as variable-length
// integers. This takes about one byte per request, so the total is close to the size of the trace's
// experts.
#pragma once

#include <cstdint>
#include <vector>

#include "core/host/instance.h"
#include "core/source/trace.h"

namespace moorage::core {

// The order in which the requests of a trace come (contract, "Replay semantics").
enum class order { rounds, token, serial };

class future {
public:
    // Reads the trace once or twice. `tokens`: only the first ones (0: all).
    explicit future(const trace &source, uint64_t tokens = 0);

    uint64_t bytes() const { return gaps_.size(); }

private:
    friend class future_cursor;
    uint32_t layers_, experts_, top_k_;
    std::vector<uint8_t> gaps_;  // per page, one after the other: LEB128 of the difference between
                                 // token * top_k + rank and that of the previous request (first: +
                                 // 1 from -1)
    std::vector<uint64_t> offsets_;  // [pages + 1] into gaps_
};

// Answers next_use for one run that follows the trace in `order`, one token per step. Steps are
// numbered like moorage_step.index. rounds and serial count single requests: rounds (token * top_k
// + rank) * layers + layer, serial (token * layers + layer) * top_k + rank. token counts layer
// steps: token * layers + layer.
class future_cursor final : public future_view {
public:
    future_cursor(const future &future, order requests);
    uint64_t next_use(uint32_t page, uint64_t step, uint64_t *token) override;
    void rewind() override;

private:
    struct place {
        uint64_t offset;  // of the gap after the current request
        uint64_t
            request;  // token * top_k + rank of the next known request; MOORAGE_NEVER at the end
    };
    void advance(uint32_t page);
    uint64_t step_of(uint32_t page, uint64_t request) const;
    const future &future_;
    order order_;
    std::vector<place> places_;
};

}  // namespace moorage::core
