// gpu_lane.h - the work under way on one GPU: batches of launches, and pieces of loads. Each has an
// event at its end, which the waiting side asks in turn.
//
// Device: the interface of a GPU (gpu/README.md lists its functions).
#pragma once

#include <array>
#include <cassert>
#include <memory>
#include <utility>
#include <vector>

#include "core/execute/executor.h"
#include "core/execute/gpu/forward.h"
#include "core/execute/gpu/gpu_memory.h"
#include "core/execute/gpu/pinned_experts.h"
#include "core/execute/operations.h"
#include "core/store/arena.h"

namespace moorage::core::gpu {

// First in, first out. Elements are made once and used again.
template <class Value, uint32_t most>
class fixed_ring {
public:
    bool empty() const { return count_ == 0; }
    bool has_room(uint32_t count) const { return count_ + count <= most; }
    uint32_t size() const { return count_; }
    Value &front() { return values_[first_]; }
    Value &back() { return values_[(first_ + count_ - 1) % most]; }
    Value &push() { return assert(has_room(1)), ++count_, back(); }
    void pop() { first_ = (first_ + 1) % most, --count_; }
    std::array<Value, most> &values() { return values_; }

private:
    std::array<Value, most> values_;
    uint32_t first_ = 0, count_ = 0;
};

template <class Device>
struct event_pair {
    typename Device::event begin, end;
    bool make(Device &device) { return begin.make(device) && end.make(device); }
    uint64_t ns() const { return end.since_ns(begin); }
};

template <class Device>
class gpu_lane {
public:
    // Two pieces at once: while the host sees the end of one, the next crosses.
    static constexpr uint32_t batches_max = 64, pieces_max = 2;
    // Launches that end together.
    struct batch {
        event_pair<Device> events;
        std::vector<completion> done;
        bool ahead = false;  // nobody has asked for it yet
        bool gate = false;
        uint32_t notification_number =
            0;  // number that the host is told before the end; 0: at the end
    };
    struct sent_piece {
        typename Device::stream copy_stream{};
        event_pair<Device> events;
    };

    // number: among the run's devices. The first computes everything but other devices' experts.
    // `shared_queue`: the queue with its operations. The rest is borrowed.
    gpu_lane(std::unique_ptr<Device> device, uint32_t number, const arena &places,
             const pinned_experts &experts, stream *shared_queue)
        : gpu(std::move(device)),
          number(number),
          queue(shared_queue ? *shared_queue : own_queue_),
          places_(places),
          experts_(experts) {}

    uint64_t arena_bytes() const { return places_.rows_total() * experts_.row_bytes(); }
    bool first() const { return number == 0; }
    // Takes memory, weights and events. Call once, before the functions below. False: a call has
    // failed.
    bool prepare(const model &model, const forward_limits &limits, const gpu_needs &needs) {
        memory_plan weights_plan(gpu->take_memory(needs.weights_bytes));
        memory_plan device(gpu->take_memory(needs.buffers_bytes));
        memory_plan pinned(gpu->take_pinned(needs.pinned_bytes, /*written=*/true));
        slots_ = gpu->take_memory(arena_bytes());
        bool has_events = returned.make(*gpu);
        for (batch &batch : batches.values()) has_events = has_events && batch.events.make(*gpu);
        for (sent_piece &piece : pieces.values())
            has_events = has_events && piece.events.make(*gpu);
        if (gpu->notes().failed()) return false;
        const model_config &config = model.config();
        weights_loader loader(*gpu, weights_plan);
        weights = first() ? loader.load(model.weights()) : loader.load_experts(model.weights());
        buffers = first() ? lay_out(config, limits, device, pinned)
                          : lay_out_experts(config, limits, device, pinned);
        if (first()) gpu->use_scratch(buffers.high, buffers.low, buffers.workspace);
        compute = std::make_unique<forward<Device>>(*gpu, model, weights, buffers, limits);
        return !gpu->notes().failed();
    }

    std::byte *row(uint64_t row) const { return slots_ + row * experts_.row_bytes(); }
    // segment: 0 top, 1 bottom.
    std::byte *slot(uint32_t page, uint32_t segment) const {
        const uint64_t first_row =
            places_.row_of(page, segment == 0 ? first_segment : last_segment);
        assert(first_row != MOORAGE_NEVER);
        return row(first_row);
    }

    // Launches body(batch). Further work waits in the queue while there is no room for two batches.
    template <class Body>
    batch &launch(Body &&body) {
        batch &new_batch = batches.push();
        new_batch.done.clear();
        new_batch.ahead = new_batch.gate = false;
        new_batch.notification_number = 0;
        new_batch.events.begin.record(gpu->compute());
        body(new_batch);
        new_batch.events.end.record(gpu->compute());
        return new_batch;
    }

    // `urgent`: the layer under way asks for the piece. It goes before pieces for later layers.
    void send(const link_piece &piece, bool urgent) {
        const auto copy_stream = urgent ? gpu->demand() : gpu->prefetch();
        // The piece before may belong to a cancelled transfer, and its slot may be this one's.
        if (!pieces.empty() && pieces.back().copy_stream != copy_stream)
            pieces.back().events.end.hold(copy_stream);
        sent_piece &sent = pieces.push();
        sent.copy_stream = copy_stream;
        sent.events.begin.record(copy_stream);
        if (piece.page != MOORAGE_NONE) copy(piece, copy_stream);
        sent.events.end.record(copy_stream);
    }

    const std::unique_ptr<Device> gpu;
    const uint32_t number;
    stream &queue;
    device_weights weights;
    forward_buffers buffers;
    std::unique_ptr<forward<Device>> compute;
    busy_ns busy;
    // For a device beyond the first. `reached`: the two devices reach each other's memory.
    // `computed`: experts that it has computed since it got hidden states. `returned`: the event
    // behind which their outputs are on the way back.
    bool reached = false;
    std::vector<uint32_t> computed;
    typename Device::event returned;
    fixed_ring<batch, batches_max> batches;
    fixed_ring<sent_piece, pieces_max> pieces;

private:
    void copy(const link_piece &piece, typename Device::stream copy_stream) {
        const auto parts =
            piece.parts(experts_.image_bytes(piece.page, 0), experts_.image_bytes(piece.page, 1));
        for (uint32_t segment = 0; segment < parts.size(); ++segment)
            if (const auto [begin, end] = parts[segment]; begin != end)
                gpu->copy(slot(piece.page, segment) + begin,
                          experts_.image(piece.page, segment) + begin, end - begin, copy_stream);
    }

    stream own_queue_;
    const arena &places_;
    const pinned_experts &experts_;
    std::byte *slots_ = nullptr;
};

}  // namespace moorage::core::gpu
