// operations.h - the operations in the queue of a device, and their names in a timeline.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "core/execute/executor.h"

namespace moorage::core {

// Written and read member by member: a copy in wider pieces would wait for the members' stores. One
// operation fills a cache line.
struct alignas(64) operation {
    event_kind kind;
    uint8_t segments;  // of an expert or a move; of hidden states 1: back; otherwise 0
    uint8_t version;   // of an expert or a move
    uint32_t tag, transfer, page, layer;
    double share;         // of an expert for the CPU; for hidden states, the bytes
    uint64_t to_row;      // target of a move
    uint64_t price_ns;    // its duration if known; otherwise 0
    uint64_t decided_ns;  // part of its price: the time of policies before it, in virtual time
};

inline const char *name_of(event_kind kind) {
    switch (kind) {
        case event_kind::gate:
            return "attention";
        case event_kind::prediction:
            return "prediction";
        case event_kind::moved:
            return "move";
        case event_kind::head:
            return "head";
        case event_kind::hidden_states:
            return "hidden states";
        default:
            return "expert";
    }
}

// Sees every operation of an emulated run when it ends, for a timeline.
class span_sink {
public:
    virtual ~span_sink() = default;
    enum track { gpu, h2d, d2h, cpu, disk, count };
    // A device beyond the first has tracks of its own.
    static constexpr track of_device(track track_id, uint32_t device) {
        return static_cast<track>(track_id + device * count);
    }
    // kind: as name_of() says, "copy" or "read"; page MOORAGE_NONE where there is none.
    virtual void span(track track_id, const char *kind, uint32_t layer, uint32_t page,
                      uint64_t start_ns, uint64_t end_ns) = 0;
};

// First in, first out. Grows when it is full.
template <class T>
class ring {
public:
    bool empty() const { return count_ == 0; }
    size_t size() const { return count_; }
    T &front() { return data_[head_]; }
    const T &front() const { return data_[head_]; }
    // Room for one more element. The caller fills it in.
    T &push() {
        if (count_ > mask_) grow();
        return data_[(head_ + count_++) & mask_];
    }
    template <class Holds>
    bool all_of(Holds &&holds) const {
        size_t i = 0;
        while (i < count_ && holds(data_[(head_ + i) & mask_])) ++i;
        return i == count_;
    }
    // The popped operation stays readable until something is pushed.
    void pop() { head_ = (head_ + 1) & mask_, --count_; }

private:
    [[gnu::noinline]] void grow() {
        auto wider = std::make_unique<T[]>(2 * (mask_ + 1));
        const auto middle = std::copy(&data_[head_], &data_[0] + mask_ + 1, &wider[0]);
        std::copy(&data_[0], &data_[head_], middle);
        data_ = std::move(wider);
        head_ = 0;
        mask_ = 2 * mask_ + 1;
    }

    size_t mask_ = 63, head_ = 0, count_ = 0;
    std::unique_ptr<T[]> data_ = std::make_unique<T[]>(mask_ + 1);
};

// One queue in order: that of a GPU, or of the cores of the CPU.
struct stream {
    ring<operation> queue;    // front: running, or waiting for its transfer
    uint64_t backlog_ns = 0;  // prices of all that is queued
    // Times of the front, in virtual time: when it ends, if it runs; when it began; until when
    // policies decide; until when it is launched; until when it computes; since when it is the
    // front.
    uint64_t due_ns = MOORAGE_NEVER, started_ns = 0, decided_until_ns = 0, launched_until_ns = 0,
             computed_until_ns = 0, front_since_ns = 0;
    // The rest of the front and of its launches at paced_ns (work_pace.h).
    uint64_t paced_ns = 0, launch_parts = 0, work_parts = 0;

    bool running() const { return due_ns != MOORAGE_NEVER; }
    void pop() {
        backlog_ns -= queue.front().price_ns;
        queue.pop();
    }
};

}  // namespace moorage::core
