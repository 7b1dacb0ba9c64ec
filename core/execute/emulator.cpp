// emulator.cpp - moves virtual time from event to event.
#include "core/execute/emulator.h"

#include <cassert>
#include <iterator>

namespace moorage::core {

emulator::emulator(const cost_model &costs, uint32_t transfers_max, span_sink *sink,
                   uint64_t *clock)
    : stream_executor(transfers_max, sink, clock),
      costs_(costs),
      sync_ns_(costs.sync_ns()),
      overlap_(clock == nullptr ? costs.hardware().engine.overlap : load_overlap::layer),
      link_rates_{costs.hardware().link.h2d_bytes_per_s / 1e9,
                  costs.hardware().disk.read_bytes_per_s / 1e9},
      flows_(costs.hardware().node.memory_bytes_per_s / 1e9),
      pace_(costs.hardware().device.busy_link_slowdown) {
    for (size_t kind = 0; kind < std::size(launching_ns_); ++kind)
        launching_ns_[kind] = launching_ns(costs, static_cast<event_kind>(kind));
}

uint64_t emulator::price_of_attention(const pass &tokens) {
    const uint64_t count = tokens.tokens.size(), context = tokens.context();
    const uint64_t sequences = tokens.sequences();
    if (count != attention_tokens_ || context != attention_context_ ||
        sequences != attention_sequences_) {
        attention_tokens_ = count;
        attention_context_ = context;
        attention_sequences_ = sequences;
        attention_ns_ = costs_.attention_ns(count, context, sequences) + sync_ns_;
    }
    return attention_ns_;
}

void emulator::settle_until_now() {
    if (device_.running()) return account_device(device_, now_);
    account(waits_for(), now_);
}

void emulator::queued(stream &on) {
    if (on.queue.size() != 1) return;
    if (&on == &cpu_) return start_cpu(costs_.hardware().node.cpu_handover_ns);
    on.front_since_ns = now_;
    if (!blocking()) start(on, now_);
}

// Whether the operation that could begin waits for the link: for any work on it, or while it
// carries bytes that another expert of the queue lacks.
bool emulator::held(const operation &work) {
    if (!flows_.under_way(link_h2d)) return false;
    if (overlap_ == load_overlap::none) return true;
    if (work.kind != event_kind::gpu_expert) return false;
    return !device_.queue.all_of([&](const operation &one) { return ready(one); });
}

// Starts the operation at the front, if it can.
void emulator::start(stream &on, uint64_t now_ns) {
    const operation &work = on.queue.front();
    if (!ready(work) || (blocking() && held(work))) return;
    busy_.stall += now_ns - on.front_since_ns;
    on.started_ns = now_ns;
    on.decided_until_ns = now_ns + work.decided_ns;
    on.launched_until_ns = on.decided_until_ns + launching_ns_[static_cast<size_t>(work.kind)];
    on.due_ns = on.computed_until_ns = now_ns + work.price_ns;
    if (work.kind == event_kind::head) on.computed_until_ns -= drawing_ns_;
    pace_.begin(on, flows_.under_way(link_h2d));
}

void emulator::start_cpu(uint64_t handover_ns) {
    const operation &work = cpu_.queue.front();
    flows_.start_cpu(now_, costs_, work.share, work.price_ns, handover_ns);
}

void emulator::send(const link_piece &piece) {
    assert(!flows_.under_way(piece.link) && piece.bytes > 0);
    const bool reads = piece.link == link_disk;
    const hardware_profile &hardware = costs_.hardware();
    begin_piece(piece.link);
    pages_[piece.link] = piece.page;
    if (!reads) pace_.change(device_, now_, /*busy=*/true);
    if (!reads && unified_memory())
        flows_.start(piece.link, now_, 0, 0, 1);
    else
        flows_.start(piece.link, now_, reads ? hardware.disk.issue_ns : hardware.link.issue_ns,
                     static_cast<double>(piece.bytes), link_rates_[piece.link]);
}

// The same as the base's, without its calls through the table: this is the innermost loop.
completion emulator::wait() {
    completion done;
    while (!take(done)) {
    }
    return done;
}

std::optional<completion> emulator::step() {
    assert(due() == now_ && "whoever moves the clock takes the earliest event");
    completion done;
    if (take(done)) return done;
    return {};
}

inline bool emulator::take(completion &done) {
    ++events_;
    // By now an expert to load behind another one has been sent.
    if (blocking() && !device_.running() && !device_.queue.empty()) start(device_, now_);
    const uint64_t flow_ns = flows_.due();
    const bool computed = device_.due_ns < flow_ns;
    now_ = computed ? device_.due_ns : flow_ns;
    assert(now_ != MOORAGE_NEVER && "something must be under way");
    if (!computed) return take_flow(done);
    finish(device_, done);
    return true;
}

bool emulator::take_flow(completion &done) {
    if (!device_.running()) settle();  // else it is the GPU's until that ends
    const uint32_t which = flows_.take(now_);
    if (which == memory_flows::users) return false;
    if (which == memory_flows::cpu) return finish_cpu(done), true;
    if (which == link_h2d) pace_.change(device_, now_, /*busy=*/false);
    const uint64_t started_ns = flows_.started_ns(which);
    end_piece(which, now_ - started_ns, done);
    show_piece(which, pages_[which], started_ns, now_);
    return true;
}

inline void emulator::finish(stream &on, completion &done) {
    const uint64_t now_ns = now_;
    account_device(on, now_ns);
    const operation &work = on.queue.front();  // stays until something is queued
    const uint64_t price_ns = on.computed_until_ns - on.started_ns;
    on.pop();
    on.due_ns = MOORAGE_NEVER;
    busy_.gpu += price_ns;
    show(work, on.started_ns, now_ns);
    done.kind = work.kind;
    done.tag = work.tag;
    done.duration_ns = price_ns;
    done.segments = work.segments;
    on.front_since_ns = now_ns;
    if (!on.queue.empty()) start(on, now_ns);
}

void emulator::finish_cpu(completion &done) {
    end_on_cpu(flows_.started_ns(memory_flows::cpu), now_, done);
    if (!cpu_.queue.empty()) start_cpu(0);
}

}  // namespace moorage::core
