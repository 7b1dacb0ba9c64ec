// executor.h - where a run happens: streams, copies and compute behind one interface.
//
// The pipeline is the same code over every executor. It queues work and then waits for completions,
// one at a time. The GPU is one in-order stream: an operation starts when the one before it has
// ended and the transfer it needs has arrived. A link carries its pieces in order, one or a few
// under way; the CPU pool computes one expert at a time, with all its cores.
//
// Executors that compute (cpu, cuda) read weights of experts from the arena (arena.h), whose slots
// the pipeline assigns before it starts a transfer, and offer what they computed as pass_results.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <string>

#include "core/base/causes.h"
#include "core/source/source.h"
#include "core/store/segments.h"
#include "moorage/transport.h"

namespace moorage::core {

// Links of a single device: to it, and where not all experts are in host memory, from the disk to
// that.
enum : uint32_t { link_h2d = 0, link_disk = 1, link_count = 2 };
constexpr uint32_t pieces_at_once_max = 4;

struct expert_work {
    uint32_t page = 0;
    uint32_t tokens = 0;
    double share = 1;                  // of the expert: 1 whole, less for a segment
    uint32_t transfer = MOORAGE_NONE;  // must have arrived first
    uint32_t tag = 0;                  // comes back with the completion
    uint8_t segments = MOORAGE_WHOLE;  // the bottom segment comes after the top one
    uint8_t device = 0;                // that has the expert, where there are several
    uint8_t version = 0;               // that is computed with; on the CPU always the first
};

// A run of bytes of the segments of one page, in the order of their image (model/segment.h).
struct link_piece {
    uint32_t link = link_h2d;
    uint32_t page = MOORAGE_NONE;      // MOORAGE_NONE: of none
    uint8_t segments = MOORAGE_WHOLE;  // of the whole transfer
    uint64_t offset_bytes = 0;         // within it
    uint64_t bytes = 0;                // >= 1
    uint8_t version = 0;               // of the page

    // What of it lies in the image of the top segment and in that of the bottom one, which are of
    // so many bytes; a whole expert is its top segment.
    struct part {
        uint64_t begin, end;
    };
    std::array<part, 2> parts(uint64_t top_bytes, uint64_t bottom_bytes) const {
        const uint64_t top = segments & first_segment ? top_bytes : 0;
        const uint64_t all = top + (segments & last_segment ? bottom_bytes : 0);
        // Transfers are as long as the largest expert; what others lack is no part of them.
        const uint64_t begin = std::min(offset_bytes, all),
                       end = std::min(offset_bytes + bytes, all);
        return {{{std::min(begin, top), std::min(end, top)},
                 {std::max(begin, top) - top, std::max(end, top) - top}}};
    }
};

enum class event_kind : uint8_t {
    gate,
    gpu_expert,
    cpu_expert,
    remote_expert,
    moved,
    head,
    piece,
    prediction,
    hidden_states
};

struct completion {
    event_kind kind;
    uint32_t tag;          // of the work; the link for a piece
    uint64_t duration_ns;  // of the work itself, waiting excluded
    uint8_t segments = 0;  // of an expert: those of the work
};

// Busy times since the run began. stall_ns: the GPU had work queued that waited for a transfer.
struct busy_ns {
    uint64_t gpu = 0, h2d = 0, cpu = 0, stall = 0, disk = 0;
};

class executor {
public:
    virtual ~executor() = default;

    // Nanoseconds since the run began; the pointer stays valid and is what policies read.
    virtual const uint64_t *clock() const = 0;
    // The run begins now, with all that it needs made: a clock that is not virtual stands at 0.
    virtual void begin_run() {}
    // A pass enters: its tokens are embedded.
    virtual void begin(const pass &) {}
    // Attention, gate and shared experts of a layer; completes (gate) when the host knows the
    // scores.
    virtual void attention(uint32_t layer, const pass &tokens) = 0;
    // The router's final choice for every token of the step, before its experts are queued:
    // chosen [B, k], MOORAGE_NONE where fewer are to be computed, and their weights [B, k], empty
    // where the source has none. Borrowed for the call.
    virtual void route(std::span<const uint32_t>, std::span<const float>) {}
    virtual void expert_on_gpu(const expert_work &work) = 0;
    // Reads host memory, where the expert is.
    virtual void expert_on_cpu(const expert_work &work) = 0;
    // Whether predict() is offered; without it predictions are made with the gate, from what is
    // known before any expert of the layer.
    virtual bool predicts() const { return false; }
    // The next layer's router scores from the shared and from `experts` of the layer, which are
    // queued already and wait for no transfer, through the next layer's attention; they stand in
    // pass_results once it completes (prediction). In the GPU's order: whatever is queued later
    // waits for it, though not longer than for a transfer that takes longer. `experts` is borrowed
    // for the call. Requires: predicts(), not the last layer.
    virtual void predict(uint32_t, const pass &, std::span<const uint32_t>) {}
    // Copies the top segment of the work's page within fast memory, from where the arena says it
    // lies to the slot at `to_row`, after all work queued before; completes (moved) with the tag.
    virtual void move_top(const expert_work &work, uint64_t to_row) = 0;
    // The arena was divided anew. Requires: nothing is under way, no link is busy.
    virtual void divided() {}
    virtual void head(uint32_t tokens) = 0;
    // Policies have taken so long until now; in virtual time the next part of a layer waits for it.
    virtual void policies_took(uint64_t) {}
    // Brings the hidden states of `tokens` tokens from the first device to another one, before the
    // work that is queued for it later, and what it has made of them back, behind all that was
    // queued for it before. Each completes (hidden_states).
    virtual void hidden_states(uint32_t, uint32_t, bool) {}
    // Nothing of the transfer has crossed yet: work that names it will wait.
    virtual void expect(uint32_t transfer) = 0;
    // All bytes of the transfer have crossed: work that waits for it may start.
    virtual void arrived(uint32_t transfer) = 0;
    // Starts a piece; it lands where the arena says. Pieces of a link complete in the order in
    // which they were sent. Requires: fewer than pieces_at_once() of it are under way.
    virtual void send(const link_piece &piece) = 0;
    // Always the same for a link, from 1 to pieces_at_once_max.
    virtual uint32_t pieces_at_once(uint32_t) const { return 1; }
    // The next completion; time moves to it. Requires: something is under way.
    virtual completion wait() = 0;
    virtual busy_ns busy() const = 0;
    // Of one of several devices: gpu, h2d and stall.
    virtual busy_ns busy_of(uint32_t) const { return busy(); }
    virtual uint64_t stall_ns() const { return busy().stall; }  // asked for once a step
    // From now on the time goes to `to`, borrowed until the next call; none of it is lost between.
    virtual void charge(time_causes &to) { charged_ = &to; }
    // What waiting for other machines counts as from now on: the network, or what they compute.
    void wait_for_others(cause as) { others_ = as; }
    virtual bool virtual_time() const = 0;
    // Loads copy nothing: host and device read the same memory.
    virtual bool unified_memory() const = 0;
    // What happened to the machine under it, for a message; empty while all is well. From then on
    // wait() must not be called: nothing will complete.
    virtual std::string failure() const { return {}; }
    bool failed() const { return failed_; }

protected:
    bool failed_ = false;
    time_causes uncharged_;  // before the first charge()
    time_causes *charged_ = &uncharged_;
    cause others_ = cause::network;
};

}  // namespace moorage::core
