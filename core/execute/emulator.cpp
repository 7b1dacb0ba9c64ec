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

void emulator::queued(stream &stream) {
    if (stream.queue.size() != 1) return;
    if (&stream == &cpu_) return start_cpu(costs_.hardware().node.cpu_handover_ns);
    stream.front_since_ns = now_;
    if (!is_blocking()) start(stream, now_);
}

// Whether the operation that could begin waits for the link: for any work on it, or while it
// carries bytes that another expert of the queue lacks.
bool emulator::waits_for_link(const operation &work) {
    if (!flows_.is_under_way(link_h2d)) return false;
    if (overlap_ == load_overlap::none) return true;
    if (work.kind != event_kind::device_expert) return false;
    return !device_.queue.all_of([&](const operation &entry) { return ready(entry); });
}

// Starts the operation at the front, if it can.
void emulator::start(stream &stream, uint64_t now_ns) {
    const operation &work = stream.queue.front();
    if (!ready(work) || (is_blocking() && waits_for_link(work))) return;
    busy_.stall += now_ns - stream.front_since_ns;
    stream.started_ns = now_ns;
    stream.decided_until_ns = now_ns + work.decided_ns;
    stream.launched_until_ns =
        stream.decided_until_ns + launching_ns_[static_cast<size_t>(work.kind)];
    stream.due_ns = stream.computed_until_ns = now_ns + work.price_ns;
    if (work.kind == event_kind::head) stream.computed_until_ns -= drawing_ns_;
    pace_.begin(stream, flows_.is_under_way(link_h2d));
}

void emulator::start_cpu(uint64_t handover_ns) {
    const operation &work = cpu_.queue.front();
    flows_.start_cpu(now_, costs_, work.share, work.price_ns, handover_ns);
}

void emulator::send(const link_piece &piece) {
    assert(!flows_.is_under_way(piece.link) && piece.bytes > 0);
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
    while (!take_event(done)) {
    }
    return done;
}

std::optional<completion> emulator::step() {
    assert(due() == now_ && "whoever moves the clock takes the earliest event");
    completion done;
    if (take_event(done)) return done;
    return {};
}

inline bool emulator::take_event(completion &done) {
    ++events_;
    // By now an expert to load behind another one has been sent.
    if (is_blocking() && !device_.running() && !device_.queue.empty()) start(device_, now_);
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
    const uint32_t user = flows_.take(now_);
    if (user == memory_flows::users) return false;
    if (user == memory_flows::cpu) return finish_cpu(done), true;
    if (user == link_h2d) pace_.change(device_, now_, /*busy=*/false);
    const uint64_t started_ns = flows_.started_ns(user);
    end_piece(user, now_ - started_ns, done);
    show_piece(user, pages_[user], started_ns, now_);
    return true;
}

inline void emulator::finish(stream &stream, completion &done) {
    const uint64_t now_ns = now_;
    account_device(stream, now_ns);
    const operation &work = stream.queue.front();  // stays until something is queued
    const uint64_t price_ns = stream.computed_until_ns - stream.started_ns;
    stream.pop();
    stream.due_ns = MOORAGE_NEVER;
    busy_.gpu += price_ns;
    show(work, stream.started_ns, now_ns);
    done.kind = work.kind;
    done.tag = work.tag;
    done.duration_ns = price_ns;
    done.segments = work.segments;
    stream.front_since_ns = now_ns;
    if (!stream.queue.empty()) start(stream, now_ns);
}

void emulator::finish_cpu(completion &done) {
    end_on_cpu(flows_.started_ns(memory_flows::cpu), now_, done);
    if (!cpu_.queue.empty()) start_cpu(0);
}

}  // namespace moorage::core
