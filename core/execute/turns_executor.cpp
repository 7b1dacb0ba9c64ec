// turns_executor.cpp - whose turn it is, and what goes in one.
#include "core/execute/turns_executor.h"

#include <algorithm>

namespace moorage::core {

void turns_executor::queue(event_kind kind, uint32_t layer, uint64_t price_ns) {
    expert_work none;
    none.page = MOORAGE_NONE;
    device_queue_.push_back({kind, none, layer, 0, price_ns});
}

void turns_executor::attention(uint32_t layer, const pass &tokens) {
    layer_ = layer;
    queue(event_kind::gate, layer, price_of_pass(event_kind::gate, tokens));
}

void turns_executor::predict(uint32_t layer, const pass &tokens, std::span<const uint32_t>) {
    queue(event_kind::prediction, layer, price_of_pass(event_kind::prediction, tokens));
}

void turns_executor::head(uint32_t tokens) {
    queue(event_kind::head, layer_, price_of_head(tokens));
}

void turns_executor::expert_on_gpu(const expert_work &work) {
    device_queue_.push_back(
        {event_kind::gpu_expert, work, layer_, 0, price_of_expert(event_kind::gpu_expert, work)});
}

void turns_executor::expert_on_cpu(const expert_work &work) {
    cpu_queue_.push_back(
        {event_kind::cpu_expert, work, layer_, 0, price_of_expert(event_kind::cpu_expert, work)});
}

void turns_executor::move_top(const expert_work &work, uint64_t to_row) {
    device_queue_.push_back(
        {event_kind::moved, work, layer_, to_row, price_of_expert(event_kind::moved, work)});
}

completion turns_executor::wait() {
    completion out{};
    for (;;) {
        if (take_piece(out)) break;
        if (!done_.empty()) {
            out = done_.front();
            done_.pop_front();
            break;
        }
        if (!device_queue_.empty() && runnable(device_queue_.front())) {
            take_turn(device_queue_);
        } else if (!cpu_queue_.empty()) {
            take_turn(cpu_queue_);
        } else {
            const uint64_t begin_ns = time_ns();
            wait_for_piece();
            if (!device_queue_.empty()) busy_.stall += time_ns() - begin_ns;
        }
    }
    returns();
    return out;
}

// All experts at the front that can run, in the order of the queue.
void turns_executor::gather(std::deque<operation> &from) {
    const event_kind kind = from.front().kind;
    while (!from.empty() && from.front().kind == kind && runnable(from.front())) {
        const operation &next = from.front();
        // A bottom segment adds to what its top wrote, so it begins a loop of its own.
        if (next.work.segments == MOORAGE_BOTTOM &&
            std::ranges::any_of(
                turn_, [&](const operation &before) { return before.work.page == next.work.page; }))
            return;
        turn_.push_back(next);
        from.pop_front();
    }
}

void turns_executor::take_turn(std::deque<operation> &from) {
    const uint64_t begin_ns = time_ns();
    const event_kind kind = from.front().kind;
    turn_.clear();
    if (kind == event_kind::gpu_expert || kind == event_kind::cpu_expert) {
        gather(from);
        compute(turn_);
    } else {
        turn_.push_back(from.front());
        from.pop_front();
        compute(turn_.front());
    }
    const uint64_t duration_ns = time_ns() - begin_ns;
    (kind == event_kind::cpu_expert ? busy_.cpu : busy_.gpu) += duration_ns;
    for (const operation &one : turn_)
        done_.push_back({kind, one.work.tag, duration_ns / turn_.size(),
                         one.work.page == MOORAGE_NONE || kind == event_kind::moved
                             ? uint8_t{0}
                             : one.work.segments});
    computed(turn_.front(), begin_ns);
}

}  // namespace moorage::core
