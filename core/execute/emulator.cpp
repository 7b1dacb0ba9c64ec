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
    : timed_executor(clock),
      costs_(costs),
      sync_ns_(costs.sync_ns()),
      memory_rate_(costs.hardware().node.memory_bytes_per_s / 1e9),
      link_rates_{costs.hardware().link.h2d_bytes_per_s / 1e9,
                  costs.hardware().link.d2h_bytes_per_s / 1e9,
                  costs.hardware().disk.read_bytes_per_s / 1e9},
      sink_(sink),
      overhead_ns_{},
      arrived_(transfers_max, 0) {
    due_.fill(MOORAGE_NEVER);
    const auto overhead = [this](event_kind kind) -> uint64_t & {
        return overhead_ns_[static_cast<size_t>(kind)];
    };
    overhead(event_kind::gate) = overhead(event_kind::prediction) =
        costs.attention_overhead_ns() + sync_ns_;
    overhead(event_kind::gpu_expert) = costs.expert_overhead_ns();
    overhead(event_kind::head) = costs.head_overhead_ns();
    overhead(event_kind::moved) = costs.move_overhead_ns();
}

// The time since then was the GPU's.
inline void emulator::account_gpu() {
    const uint64_t begin_ns = accounted_ns_, took_ns = now_ - begin_ns;
    accounted_ns_ = now_;
    const uint64_t launching_ns =
        begin_ns < launched_until_ns_ ? std::min(took_ns, launched_until_ns_ - begin_ns) : 0;
    (*charged_)[cause::launch] += launching_ns;
    (*charged_)[cause::compute] += took_ns - launching_ns;
}

void emulator::account_until_now() {
    if (gpu_running_) return account_gpu();
    const uint64_t took_ns = now_ - accounted_ns_;
    accounted_ns_ = now_;
    const bool linked = flows_[h2d].busy || flows_[d2h].busy;
    const bool waiting = gpu_queue_.count != 0;
    cause whose = linked ? cause::link : cause::away;
    if (waiting) whose = cause::link;
    if (!waiting && cpu_queue_.count != 0) whose = cause::cpu;
    // While the CPU computes or a copy goes on, the disk is not what is waited for.
    if (flows_[disk].busy && !flows_[cpu].busy && !(waiting && linked)) whose = cause::disk;
    (*charged_)[whose] += took_ns;
}

template <class T>
void emulator::ring<T>::grow() {
    std::rotate(data.begin(), data.begin() + static_cast<ptrdiff_t>(head), data.end());
    head = 0;
    data.resize(data.size() * 2);
}

void emulator::queue(event_kind kind, uint32_t layer, uint64_t duration_ns) {
    operation &next = gpu_queue_.push();
    next.kind = kind;
    next.segments = 0;
    next.tag = 0;
    next.transfer = next.page = MOORAGE_NONE;
    next.layer = layer;
    next.duration_ns = duration_ns;
    queued();
}

void emulator::queue(event_kind kind, const expert_work &work, uint64_t duration_ns) {
    operation &next = gpu_queue_.push();
    next.kind = kind;
    next.segments = work.segments;
    next.tag = work.tag;
    next.transfer = work.transfer;
    next.page = work.page;
    next.layer = layer_;
    next.duration_ns = duration_ns;
    queued();
}

// The last one of the queue has come to it.
void emulator::queued() {
    const size_t last = (gpu_queue_.head + gpu_queue_.count - 1) & (gpu_queue_.data.size() - 1);
    gpu_backlog_ns_ += gpu_queue_.data[last].duration_ns;
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
    launched_until_ns_ = now_ + overhead_ns_[static_cast<size_t>(work.kind)];
    due_[gpu] = now_ + work.duration_ns;
}

uint64_t emulator::attention_ns(const pass &tokens) {
    const uint64_t count = tokens.tokens.size(), context = tokens.context();
    if (count != attention_tokens_ || context != attention_context_) {
        attention_tokens_ = count;
        attention_context_ = context;
        attention_ns_ = costs_.attention_ns(count, context) + sync_ns_;
    }
    return attention_ns_;
}

void emulator::attention(uint32_t layer, const pass &tokens) {
    layer_ = layer;
    queue(event_kind::gate, layer, attention_ns(tokens));
}

void emulator::expert_on_gpu(const expert_work &work) {
    queue(event_kind::gpu_expert, work, costs_.gpu_expert_ns(work.tokens, work.share));
}

void emulator::predict(uint32_t layer, const pass &tokens, std::span<const uint32_t>) {
    queue(event_kind::prediction, layer, attention_ns(tokens));
}

void emulator::move_top(const expert_work &work, uint64_t) {
    queue(event_kind::moved, work, costs_.move_ns(work.share));
}

void emulator::head(uint32_t tokens) { queue(event_kind::head, layer_, costs_.head_ns(tokens)); }

void emulator::expert_on_cpu(const expert_work &work) {
    cpu_queue_.push() = work;
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
    const actor which = static_cast<actor>(piece.link);
    const bool reads = piece.link == link_disk;
    const hardware_profile &hardware = costs_.hardware();
    if (!reads && unified_memory())
        start_flow(which, 0, 0, 1);
    else
        start_flow(which, reads ? hardware.disk.issue_ns : hardware.link.issue_ns,
                   static_cast<double>(piece.bytes), link_rates_[piece.link]);
    flows_[which].page = piece.page;
}

void emulator::start_flow(actor which, uint64_t constant_ns, double bytes, double rate) {
    flow &one = flows_[which];
    one.busy = true;
    one.page = MOORAGE_NONE;
    one.constant_end = now_ + constant_ns;
    one.started = one.updated = now_;
    one.left_bytes = bytes;
    one.alone_rate = rate;
    due_[which] = one.constant_end;
    if (constant_ns == 0) begin_to_flow(which);
}

// Alone, as most are, it goes at its own rate.
void emulator::begin_to_flow(uint32_t which) {
    flow &one = flows_[which];
    one.flowing = true;
    one.updated = now_;
    if (++flowing_ != 1 || one.alone_rate > memory_rate_) return share_memory();
    one.rate = one.alone_rate;
    due_[which] = now_ + rounded_up(one.left_bytes / one.rate);
}

// Gives every flow its share of host memory from now on, and with it the time of its end.
void emulator::share_memory() {
    if (flowing_ == 0) return;
    double wanted = 0;
    for (const flow &one : flows_) wanted += one.flowing ? one.alone_rate : 0;
    const double factor = wanted > memory_rate_ ? memory_rate_ / wanted : 1;
    for (uint32_t which = 0; which < flows_.size(); ++which) {
        flow &one = flows_[which];
        if (!one.flowing) continue;
        const double rate = one.alone_rate * factor;
        if (rate == one.rate) continue;
        one.left_bytes -= one.rate * static_cast<double>(now_ - one.updated);
        one.left_bytes = std::max(one.left_bytes, 0.0);
        one.updated = now_;
        one.rate = rate;
        due_[which] = now_ + rounded_up(one.left_bytes / rate);
    }
}

// The same as the base's, without its calls through the table: this is the innermost loop.
completion emulator::wait() {
    completion done;
    for (;;) {
        const uint32_t which = first();
        assert(due_[which] != MOORAGE_NEVER && "something must be under way");
        now_ = due_[which];
        if (take(which, done)) return done;
    }
}

std::optional<completion> emulator::step() {
    const uint32_t which = first();
    assert(due_[which] == now_ && "whoever moves the clock takes the earliest event");
    completion done;
    if (take(which, done)) return done;
    return {};
}

bool emulator::take(uint32_t which, completion &done) {
    ++events_;
    if (which == gpu) return finish_gpu(done), true;
    if (!gpu_running_) account();  // else it is the GPU's until that ends
    flow &one = flows_[which];
    if (one.flowing) return finish_flow(static_cast<actor>(which), done), true;
    begin_to_flow(which);
    return false;
}

void emulator::finish_gpu(completion &done) {
    account_gpu();
    const operation &work = gpu_queue_.front();  // stays until something is queued
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
    done.kind = work.kind;
    done.tag = work.tag;
    done.duration_ns = work.duration_ns;
    done.segments = work.segments;
}

void emulator::finish_flow(actor which, completion &done) {
    flow &one = flows_[which];
    const uint64_t duration_ns = now_ - one.started;
    one.busy = one.flowing = false;
    --flowing_;
    one.rate = 0;
    done.duration_ns = duration_ns;
    due_[which] = MOORAGE_NEVER;
    share_memory();
    if (which != cpu) {
        (which == h2d ? busy_.h2d : which == d2h ? busy_.d2h : busy_.disk) += duration_ns;
        if (sink_)
            sink_->span(which == h2d   ? span_sink::h2d
                        : which == d2h ? span_sink::d2h
                                       : span_sink::disk,
                        which == disk ? "read" : "copy", layer_, one.page, one.started, now_);
        done.kind = event_kind::piece;
        done.tag = which;
        done.segments = 0;
        return;
    }
    busy_.cpu += duration_ns;
    const expert_work &work = cpu_queue_.front();
    cpu_queue_.pop();
    if (sink_) sink_->span(span_sink::cpu, "expert", layer_, work.page, one.started, now_);
    done.kind = event_kind::cpu_expert;
    done.tag = work.tag;
    done.segments = work.segments;
    if (cpu_queue_.count != 0) start_cpu();
}

}  // namespace moorage::core
