// gpus_emulator.cpp - takes the next event of all devices, and says where the time went.
#include "core/execute/gpus_emulator.h"

#include <algorithm>
#include <cassert>

namespace moorage::core {

gpus_emulator::gpus_emulator(const device_costs &costs, uint32_t transfers_max, span_sink *sink)
    : stream_executor(transfers_max, sink, nullptr),
      costs_(costs),
      flows_(costs.first.hardware().node.memory_bytes_per_s / 1e9),
      more_(costs.more.size()),
      each_busy_(costs.more.size() + 1) {
    for (uint32_t device = 0; device < count(); ++device)
        paces_.emplace_back(costs_.of(device).hardware().device.busy_link_slowdown);
}

void gpus_emulator::hidden_states(uint32_t device, uint32_t tokens, bool back) {
    stream &on = at(device);
    const cost_model &costs = costs_.of(device);
    operation &next = on.queue.push();
    next.kind = event_kind::hidden_states;
    next.segments = back;
    next.tag = device;
    next.transfer = next.page = MOORAGE_NONE;
    next.layer = layer_;
    next.share = static_cast<double>(costs.activation_bytes(tokens));
    next.decided_ns = 0;
    next.price_ns = back ? costs.back_ns(tokens) : costs.there_ns(tokens);
    on.backlog_ns += next.price_ns;
    queued(on);
}

void gpus_emulator::queued(stream &on) {
    if (on.queue.size() != 1) return;
    if (&on == &cpu_) return start_cpu(costs_.first.hardware().node.cpu_handover_ns);
    on.front_since_ns = now_;
    start(&on == &device_ ? 0 : static_cast<uint32_t>(&on - more_.data()) + 1);
}

void gpus_emulator::opened() {
    for (uint32_t device = 0; device < count(); ++device)
        if (!occupied(device) && !at(device).queue.empty()) start(device);
}

// Starts the operation at the front, if it can.
void gpus_emulator::start(uint32_t device) {
    stream &on = at(device);
    const operation &work = on.queue.front();
    if (!ready(work)) return;
    const uint64_t waited_ns = now_ - on.front_since_ns;
    busy_.stall += waited_ns;
    each_busy_[device].stall += waited_ns;
    on.started_ns = now_;
    const hardware_profile &hardware = costs_.of(device).hardware();
    if (work.kind == event_kind::hidden_states && hardware.peer_through_host) {
        const link_profile &peer = hardware.peer;
        flows_.start(states_of(device), now_, peer.issue_ns, work.share,
                     (work.segments ? peer.d2h_bytes_per_s : peer.h2d_bytes_per_s) / 1e9);
        return;
    }
    on.decided_until_ns = now_ + work.decided_ns;
    on.launched_until_ns = on.decided_until_ns + launching_ns(costs_.of(device), work.kind);
    on.due_ns = on.computed_until_ns = now_ + work.price_ns;
    if (work.kind == event_kind::head) on.computed_until_ns -= drawing_ns_;
    paces_[device].begin(on, flows_.under_way(h2d_of(device)));
}

// Changes the pace of the device to which the link leads.
void gpus_emulator::change_pace(uint32_t link, bool busy) {
    const uint32_t device = device_of_link(link);
    paces_[device].change(at(device), now_, busy);
}

void gpus_emulator::start_cpu(uint64_t handover_ns) {
    const operation &work = cpu_.queue.front();
    flows_.start_cpu(now_, costs_.first, work.share, work.price_ns, handover_ns);
}

void gpus_emulator::send(const link_piece &piece) {
    assert(!flows_.under_way(piece.link) && piece.bytes > 0);
    const bool reads = piece.link == link_disk;
    const hardware_profile &hardware = costs_.of(device_of_link(piece.link)).hardware();
    const double rate = reads ? hardware.disk.read_bytes_per_s : hardware.link.h2d_bytes_per_s;
    begin_piece(piece.link);
    loading_ += !reads;
    if (!reads) change_pace(piece.link, /*busy=*/true);
    pages_[piece.link] = piece.page;
    flows_.start(piece.link, now_, reads ? hardware.disk.issue_ns : hardware.link.issue_ns,
                 static_cast<double>(piece.bytes), rate / 1e9);
}

// While no device computes.
cause gpus_emulator::waits_for() const {
    bool waiting = false;
    for (uint32_t device = 0; device < count(); ++device) {
        if (occupied(device)) return cause::link;  // hidden states are on their way
        waiting |= !at(device).queue.empty();
    }
    return stream_executor::waits_for(waiting, loading_ != 0);
}

void gpus_emulator::settle_until_now() {
    for (uint32_t device = 0; device < count(); ++device) {
        const stream &on = at(device);
        if (on.running() && on.queue.front().kind != event_kind::hidden_states)
            return account_device(on, now_);
    }
    account(waits_for(), now_);
}

uint64_t gpus_emulator::due() const {
    uint64_t earliest = flows_.due();
    for (uint32_t device = 0; device < count(); ++device)
        earliest = std::min(earliest, at(device).due_ns);
    return earliest;
}

std::optional<completion> gpus_emulator::step() {
    settle();
    completion done;
    if (flows_.due() == now_) {
        const uint32_t which = flows_.take(now_);
        if (which == flows::users) return {};
        const uint64_t took_ns = now_ - flows_.started_ns(which);
        if (which == flows::cpu) {
            finish_cpu(done);
        } else if (which >= links_max) {
            finish(which - links_max, took_ns, done);
        } else {
            loading_ -= which != link_disk;
            if (which != link_disk) {
                each_busy_[device_of_link(which)].h2d += took_ns;
                change_pace(which, /*busy=*/false);
            }
            end_piece(which, took_ns, done);
            show_piece(which, pages_[which], now_ - took_ns, now_);
        }
        return done;
    }
    uint32_t device = 0;
    while (at(device).due_ns != now_) ++device;
    finish(device, at(device).computed_until_ns - at(device).started_ns, done);
    return done;
}

void gpus_emulator::finish(uint32_t device, uint64_t duration_ns, completion &done) {
    stream &on = at(device);
    const operation work = on.queue.front();
    on.pop();
    on.due_ns = MOORAGE_NEVER;
    if (work.kind != event_kind::hidden_states) {
        busy_.gpu += duration_ns;
        each_busy_[device].gpu += duration_ns;
    }
    show(work, on.started_ns, now_, device);
    done = {work.kind, work.tag, duration_ns, work.segments};
    on.front_since_ns = now_;
    if (!on.queue.empty()) start(device);
}

void gpus_emulator::finish_cpu(completion &done) {
    end_on_cpu(flows_.started_ns(flows::cpu), now_, done);
    if (!cpu_.queue.empty()) start_cpu(0);
}

}  // namespace moorage::core
