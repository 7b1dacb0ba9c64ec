// executor.h - the interface of an executor: streams, copies and compute.
//
// The pipeline is the same code over every executor. It queues work and then waits for completions,
// one at a time. The GPU is one in-order stream: an operation starts when the one before it has
// ended and the transfer it needs has arrived. A link carries its pieces in order, with one or a
// few under way. The CPU pool computes one expert at a time, with all its cores.
//
// Executors that compute (cpu, cuda) read weights of experts from the arena (arena.h). The pipeline
// assigns its slots before it starts a transfer. These executors offer their results as
// pass_results.
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

// The links of a single device. link_h2d leads to the device. link_disk leads from disk to host
// memory, if not all experts are in host memory.
enum : uint32_t { link_h2d = 0, link_disk = 1, link_count = 2 };
constexpr uint32_t pieces_at_once_max = 4;

struct expert_work {
    uint32_t page = 0;
    uint32_t tokens = 0;
    double share = 1;                  // part of the expert: 1 whole, less for a segment
    uint32_t transfer = MOORAGE_NONE;  // the transfer that must have arrived first
    uint32_t tag = 0;                  // comes back with the completion
    uint8_t segments = MOORAGE_WHOLE;  // the bottom segment comes after the top one
    uint8_t device = 0;                // the device that has the expert, if there are several
    uint8_t version = 0;               // the version to compute with; on the CPU always the first
};

// A run of bytes of the segments of one page, in the order of their image (model/segment.h).
struct link_piece {
    uint32_t link = link_h2d;
    uint32_t page = MOORAGE_NONE;      // MOORAGE_NONE: no page
    uint8_t segments = MOORAGE_WHOLE;  // segments of the whole transfer
    uint64_t offset_bytes = 0;         // offset within the transfer
    uint64_t bytes = 0;                // >= 1
    uint8_t version = 0;               // version of the page

    // The parts of this piece in the images of the top and the bottom segment, whose sizes are
    // given. A whole expert is its top segment.
    struct part {
        uint64_t begin, end;
    };
    std::array<part, 2> parts(uint64_t top_bytes, uint64_t bottom_bytes) const {
        const uint64_t top = segments & first_segment ? top_bytes : 0;
        const uint64_t total = top + (segments & last_segment ? bottom_bytes : 0);
        // All transfers are as long as the largest expert. The bytes beyond a smaller expert belong
        // to no part.
        const uint64_t begin = std::min(offset_bytes, total),
                       end = std::min(offset_bytes + bytes, total);
        return {{{std::min(begin, top), std::min(end, top)},
                 {std::max(begin, top) - top, std::max(end, top) - top}}};
    }
};

enum class event_kind : uint8_t {
    gate,
    device_expert,
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
    uint32_t tag;          // tag of the work; for a piece, its link
    uint64_t duration_ns;  // duration of the work itself, without waiting
    uint8_t segments = 0;  // for an expert: the segments of the work
};

// Busy times since the run began. stall: the GPU had work queued that waited for a transfer.
struct busy_ns {
    uint64_t gpu = 0, h2d = 0, cpu = 0, stall = 0, disk = 0;
};

class executor {
public:
    virtual ~executor() = default;

    // Nanoseconds since the run began. The pointer stays valid. Policies read it.
    virtual const uint64_t *clock() const = 0;
    // The run begins now, when everything it needs is made. A clock that is not virtual is set to
    // 0.
    virtual void begin_run() {}
    // Begins a pass: its tokens are embedded.
    virtual void begin(const pass &) {}
    // Runs attention, gate and shared experts of a layer. Completes (gate) when the host knows the
    // scores.
    virtual void attention(uint32_t layer, const pass &tokens) = 0;
    // Gives the router's final choice for every token of the step, before its experts are queued:
    // chosen [B, k], MOORAGE_NONE if fewer are to be computed. The weights are [B, k], or empty if
    // the source has none. Borrowed for the call.
    virtual void route(std::span<const uint32_t>, std::span<const float>) {}
    virtual void expert_on_device(const expert_work &work) = 0;
    // The expert's weights are read from host memory.
    virtual void expert_on_cpu(const expert_work &work) = 0;
    // Whether predict() is offered. Without it, predictions use the gate and what is known before
    // any expert of the layer.
    virtual bool predicts() const { return false; }
    // Predicts the next layer's router scores from the shared expert and from `experts` of the
    // layer, through the next layer's attention. `experts` are already queued and wait for no
    // transfer. The scores are in pass_results once the prediction completes (prediction). The GPU
    // computes it in order, so later work waits for it, but not longer than for a transfer that
    // takes longer. `experts` is borrowed for the call. Requires: predicts(), not the last layer.
    virtual void predict(uint32_t, const pass &, std::span<const uint32_t>) {}
    // Copies the top segment of the work's page within fast memory, from its place in the arena to
    // the slot at `to_row`, after all work queued before. Completes (moved) with the tag.
    virtual void move_top(const expert_work &work, uint64_t to_row) = 0;
    // The arena has a new division. Requires: nothing is under way, no link is busy.
    virtual void divided() {}
    virtual void head(uint32_t tokens) = 0;
    // Policies have taken so long until now. In virtual time the next part of a layer waits for it.
    virtual void policies_took(uint64_t) {}
    // Brings the hidden states of `tokens` tokens from the first device to another one, before work
    // that is queued for that device later. Or brings its results back, behind everything queued
    // for it before. Each completes (hidden_states).
    virtual void hidden_states(uint32_t, uint32_t, bool) {}
    // Nothing of the transfer has crossed yet: work that names it will wait.
    virtual void expect(uint32_t transfer) = 0;
    // All bytes of the transfer have crossed: work that waits for it may start.
    virtual void arrived(uint32_t transfer) = 0;
    // Starts a piece, which goes to the place that the arena gives. Pieces of a link complete in
    // the order of sending. Requires: fewer than pieces_at_once() of the link are under way.
    virtual void send(const link_piece &piece) = 0;
    // From 1 to pieces_at_once_max. The value of a link never changes.
    virtual uint32_t pieces_at_once(uint32_t) const { return 1; }
    // Returns the next completion and moves the time to it. Requires: something is under way.
    virtual completion wait() = 0;
    virtual busy_ns busy() const = 0;
    // The busy times of one of several devices: gpu, h2d and stall.
    virtual busy_ns busy_of(uint32_t) const { return busy(); }
    virtual uint64_t stall_ns() const { return busy().stall; }  // asked for once a step
    // From now on the time is charged to `causes`, which is borrowed until the next call. No time
    // is lost between calls.
    virtual void charge(time_causes &causes) { charged_ = &causes; }
    // From now on, waiting for other machines counts as this cause: the network, or their compute.
    void set_remote_wait_cause(cause wait_cause) { remote_wait_cause_ = wait_cause; }
    virtual bool virtual_time() const = 0;
    // Loads copy nothing: host and device read the same memory.
    virtual bool unified_memory() const = 0;
    // A failure of the machine below, as a message. Empty while all is well. After a failure wait()
    // must not be called: nothing will complete.
    virtual std::string failure() const { return {}; }
    bool failed() const { return failed_; }

protected:
    bool failed_ = false;
    time_causes uncharged_;  // times before the first charge()
    time_causes *charged_ = &uncharged_;
    cause remote_wait_cause_ = cause::network;
};

}  // namespace moorage::core
