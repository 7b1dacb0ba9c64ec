// emulator.cpp - moves virtual time from event to event.
#include "core/execute/emulator.h"

#include <algorithm>
#include <cassert>
#include <cmath>

namespace moorage::core {

completion timed_executor::wait() {
    for (;;) {
        assert(due() != MOORAGE_NEVER && "something must be under way");
        now_ = due();
        if (const auto done = step()) return *done;
    }
}

emulator::emulator(const cost_model &costs, uint32_t transfers_max, span_sink *sink,
                   uint64_t *clock)
    : timed_executor(clock), costs_(costs), sink_(sink), arrived_(transfers_max, 0) {
    due_.fill(MOORAGE_NEVER);
}

template <class T>
void emulator::ring<T>::push(const T &value) {
    if (count == data.size()) {
        std::rotate(data.begin(), data.begin() + static_cast<ptrdiff_t>(head), data.end());
        head = 0;
        data.resize(data.size() * 2);
    }
    data[(head + count++) & (data.size() - 1)] = value;
}

void emulator::queue(const operation &work) {
    gpu_queue_.push(work);
    gpu_backlog_ns_ += work.duration_ns;
    if (gpu_queue_.count == 1) {
        gpu_waiting_since_ = now_;
        start_gpu();
    }
}

// Starts the operation at the front, if it can.
void emulator::start_gpu() {
    const operation &work = gpu_queue_.front();
    if (work.transfer != MOORAGE_NONE && !arrived_[work.transfer]) return;
    busy_.stall += now_ - gpu_waiting_since_;
    gpu_running_ = true;
    gpu_started_ = now_;
    due_[gpu] = now_ + work.duration_ns;
}

void emulator::attention(uint32_t layer, const pass &tokens) {
    layer_ = layer;
    const uint64_t compute_ns = costs_.attention_ns(tokens.tokens.size(), tokens.context());
    queue({event_kind::gate, 0, MOORAGE_NONE, MOORAGE_NONE, layer, compute_ns + costs_.sync_ns()});
}

void emulator::expert_on_gpu(const expert_work &work) {
    const uint64_t duration_ns = costs_.gpu_expert_ns(work.tokens, work.share);
    queue({event_kind::gpu_expert, work.tag, work.transfer, work.page, layer_, duration_ns,
           work.segments});
}

void emulator::predict(uint32_t layer, const pass &tokens, std::span<const uint32_t>) {
    const uint64_t compute_ns = costs_.attention_ns(tokens.tokens.size(), tokens.context());
    queue({event_kind::prediction, 0, MOORAGE_NONE, MOORAGE_NONE, layer,
           compute_ns + costs_.sync_ns()});
}

void emulator::move_top(const expert_work &work, uint64_t) {
    queue({event_kind::moved, work.tag, work.transfer, work.page, layer_,
           costs_.move_ns(work.share), work.segments});
}

void emulator::head(uint32_t tokens) {
    queue({event_kind::head, 0, MOORAGE_NONE, MOORAGE_NONE, layer_, costs_.head_ns(tokens)});
}

void emulator::expert_on_cpu(const expert_work &work) {
    cpu_queue_.push(work);
    if (cpu_queue_.count == 1) start_cpu();
}

void emulator::start_cpu() {
    const expert_work &work = cpu_queue_.front();
    const uint64_t constant_ns = costs_.hardware().node.cpu_issue_ns;
    const double bytes = static_cast<double>(costs_.expert_bytes(work.share));
    const uint64_t alone_ns = costs_.cpu_expert_ns(work.tokens, work.share) - constant_ns;
    start_flow(cpu, constant_ns, bytes,
               bytes / static_cast<double>(std::max<uint64_t>(alone_ns, 1)));
}

void emulator::arrived(uint32_t transfer) {
    arrived_[transfer] = 1;
    if (!gpu_running_ && gpu_queue_.count != 0) start_gpu();
}

void emulator::send(const link_piece &piece) {
    assert(idle(piece.link) && piece.bytes > 0);
    const link_profile &profile = costs_.hardware().link;
    const double rate = piece.link == link_h2d ? profile.h2d_bytes_per_s : profile.d2h_bytes_per_s;
    const actor which = static_cast<actor>(piece.link);
    if (unified_memory())
        start_flow(which, 0, 0, 1);
    else
        start_flow(which, profile.issue_ns, static_cast<double>(piece.bytes), rate / 1e9);
    flows_[piece.link].page = piece.page;
}

void emulator::start_flow(actor which, uint64_t constant_ns, double bytes, double rate) {
    flow &one = flows_[which];
    one = {true, false, MOORAGE_NONE, now_ + constant_ns, now_, now_, bytes, rate, 0};
    due_[which] = one.constant_end;
    if (constant_ns == 0) {
        one.flowing = true;
        share_memory();
    }
}

// Gives every flow its share of host memory from now on, and with it the time of its end.
void emulator::share_memory() {
    double wanted = 0;
    for (const flow &one : flows_) wanted += one.flowing ? one.alone_rate : 0;
    const double ceiling = costs_.hardware().node.memory_bytes_per_s / 1e9;
    const double factor = wanted > ceiling ? ceiling / wanted : 1;
    for (uint32_t which = 0; which < flows_.size(); ++which) {
        flow &one = flows_[which];
        if (!one.flowing) continue;
        const double rate = one.alone_rate * factor;
        if (rate == one.rate) continue;
        one.left_bytes -= one.rate * static_cast<double>(now_ - one.updated);
        one.left_bytes = std::max(one.left_bytes, 0.0);
        one.updated = now_;
        one.rate = rate;
        due_[which] = now_ + static_cast<uint64_t>(std::ceil(one.left_bytes / rate - 1e-6));
    }
}

uint32_t emulator::first() const {
    uint32_t first = 0;
    for (uint32_t which = 1; which < actor_count; ++which)
        if (due_[which] < due_[first]) first = which;
    return first;
}

std::optional<completion> emulator::step() {
    const uint32_t which = first();
    assert(due_[which] == now_ && "whoever moves the clock takes the earliest event");
    ++events_;
    if (which == gpu) return finish_gpu();
    flow &one = flows_[which];
    if (one.flowing) return finish_flow(static_cast<actor>(which));
    one.flowing = true;
    one.updated = now_;
    share_memory();
    return {};
}

completion emulator::finish_gpu() {
    const operation work = gpu_queue_.front();
    gpu_queue_.pop();
    gpu_running_ = false;
    due_[gpu] = MOORAGE_NEVER;
    busy_.gpu += work.duration_ns;
    gpu_backlog_ns_ -= work.duration_ns;
    if (sink_) {
        const char *kind = work.kind == event_kind::gate         ? "attention"
                           : work.kind == event_kind::head       ? "head"
                           : work.kind == event_kind::moved      ? "move"
                           : work.kind == event_kind::prediction ? "prediction"
                                                                 : "expert";
        sink_->span(span_sink::gpu, kind, work.layer, work.page, gpu_started_, now_);
    }
    gpu_waiting_since_ = now_;
    if (gpu_queue_.count != 0) start_gpu();
    return {work.kind, work.tag, work.duration_ns, work.segments};
}

completion emulator::finish_flow(actor which) {
    flow &one = flows_[which];
    const uint64_t duration_ns = now_ - one.started;
    one.busy = one.flowing = false;
    one.rate = 0;
    due_[which] = MOORAGE_NEVER;
    share_memory();
    if (which != cpu) {
        (which == h2d ? busy_.h2d : busy_.d2h) += duration_ns;
        if (sink_)
            sink_->span(which == h2d ? span_sink::h2d : span_sink::d2h, "copy", layer_, one.page,
                        one.started, now_);
        return {event_kind::piece, which, duration_ns, 0};
    }
    busy_.cpu += duration_ns;
    const expert_work work = cpu_queue_.front();
    cpu_queue_.pop();
    if (sink_) sink_->span(span_sink::cpu, "expert", layer_, work.page, one.started, now_);
    if (cpu_queue_.count != 0) start_cpu();
    return {event_kind::cpu_expert, work.tag, duration_ns, work.segments};
}

}  // namespace moorage::core
