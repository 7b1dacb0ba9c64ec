// devices_emulator.cpp - takes the next event of all devices, and says where the time went.
#include "core/execute/devices_emulator.h"

#include <algorithm>
#include <cassert>

namespace moorage::core {

devices_emulator::devices_emulator(const device_costs &costs, uint32_t transfers_max,
                                   span_sink *sink)
    : stream_executor(transfers_max, sink, nullptr),
      costs_(costs),
      flows_(costs.first.hardware().node.memory_bytes_per_s / 1e9),
      further_streams_(costs.rest.size()),
      device_busy_(costs.rest.size() + 1) {
    for (uint32_t device = 0; device < device_count(); ++device)
        paces_.emplace_back(costs_.of_device(device).hardware().device.busy_link_slowdown);
}

void devices_emulator::hidden_states(uint32_t device, uint32_t tokens, bool back) {
    stream &stream = stream_of(device);
    const cost_model &costs = costs_.of_device(device);
    operation &next = stream.queue.push();
    next.kind = event_kind::hidden_states;
    next.segments = back;
    next.tag = device;
    next.transfer = next.page = MOORAGE_NONE;
    next.layer = layer_;
    next.share = static_cast<double>(costs.activation_bytes(tokens));
    next.decided_ns = 0;
    next.price_ns = back ? costs.results_back_ns(tokens) : costs.states_out_ns(tokens);
    stream.backlog_ns += next.price_ns;
    queued(stream);
}

void devices_emulator::queued(stream &stream) {
    if (stream.queue.size() != 1) return;
    if (&stream == &cpu_) return start_cpu(costs_.first.hardware().node.cpu_handover_ns);
    stream.front_since_ns = now_;
    start(&stream == &device_ ? 0 : static_cast<uint32_t>(&stream - further_streams_.data()) + 1);
}

void devices_emulator::opened() {
    for (uint32_t device = 0; device < device_count(); ++device)
        if (!is_occupied(device) && !stream_of(device).queue.empty()) start(device);
}

// Starts the operation at the front, if it can.
void devices_emulator::start(uint32_t device) {
    stream &stream = stream_of(device);
    const operation &work = stream.queue.front();
    if (!ready(work)) return;
    const uint64_t waited_ns = now_ - stream.front_since_ns;
    busy_.stall += waited_ns;
    device_busy_[device].stall += waited_ns;
    stream.started_ns = now_;
    const hardware_profile &hardware = costs_.of_device(device).hardware();
    if (work.kind == event_kind::hidden_states && hardware.peer_through_host) {
        const link_profile &peer = hardware.peer;
        flows_.start(states_flow(device), now_, peer.issue_ns, work.share,
                     (work.segments ? peer.d2h_bytes_per_s : peer.h2d_bytes_per_s) / 1e9);
        return;
    }
    stream.decided_until_ns = now_ + work.decided_ns;
    stream.launched_until_ns =
        stream.decided_until_ns + launching_ns(costs_.of_device(device), work.kind);
    stream.due_ns = stream.computed_until_ns = now_ + work.price_ns;
    if (work.kind == event_kind::head) stream.computed_until_ns -= drawing_ns_;
    paces_[device].begin(stream, flows_.is_under_way(h2d_of(device)));
}

// Changes the pace of the device to which the link leads.
void devices_emulator::change_pace(uint32_t link, bool busy) {
    const uint32_t device = device_of_link(link);
    paces_[device].change(stream_of(device), now_, busy);
}

void devices_emulator::start_cpu(uint64_t handover_ns) {
    const operation &work = cpu_.queue.front();
    flows_.start_cpu(now_, costs_.first, work.share, work.price_ns, handover_ns);
}

void devices_emulator::send(const link_piece &piece) {
    assert(!flows_.is_under_way(piece.link) && piece.bytes > 0);
    const bool from_disk = piece.link == link_disk;
    const hardware_profile &hardware = costs_.of_device(device_of_link(piece.link)).hardware();
    const double rate = from_disk ? hardware.disk.read_bytes_per_s : hardware.link.h2d_bytes_per_s;
    begin_piece(piece.link);
    loading_links_ += !from_disk;
    if (!from_disk) change_pace(piece.link, /*busy=*/true);
    pages_[piece.link] = piece.page;
    flows_.start(piece.link, now_, from_disk ? hardware.disk.issue_ns : hardware.link.issue_ns,
                 static_cast<double>(piece.bytes), rate / 1e9);
}

// While no device computes.
cause devices_emulator::waits_for() const {
    bool waiting = false;
    for (uint32_t device = 0; device < device_count(); ++device) {
        if (is_occupied(device)) return cause::link;  // hidden states are on their way
        waiting |= !stream_of(device).queue.empty();
    }
    return stream_executor::waits_for(waiting, loading_links_ != 0);
}

void devices_emulator::settle_until_now() {
    for (uint32_t device = 0; device < device_count(); ++device) {
        const stream &stream = stream_of(device);
        if (stream.running() && stream.queue.front().kind != event_kind::hidden_states)
            return account_device(stream, now_);
    }
    account(waits_for(), now_);
}

uint64_t devices_emulator::due() const {
    uint64_t earliest = flows_.due();
    for (uint32_t device = 0; device < device_count(); ++device)
        earliest = std::min(earliest, stream_of(device).due_ns);
    return earliest;
}

std::optional<completion> devices_emulator::step() {
    settle();
    completion done;
    if (flows_.due() == now_) {
        const uint32_t user = flows_.take(now_);
        if (user == flows::users) return {};
        const uint64_t duration_ns = now_ - flows_.started_ns(user);
        if (user == flows::cpu) {
            finish_cpu(done);
        } else if (user >= links_max) {
            finish(user - links_max, duration_ns, done);
        } else {
            loading_links_ -= user != link_disk;
            if (user != link_disk) {
                device_busy_[device_of_link(user)].h2d += duration_ns;
                change_pace(user, /*busy=*/false);
            }
            end_piece(user, duration_ns, done);
            show_piece(user, pages_[user], now_ - duration_ns, now_);
        }
        return done;
    }
    uint32_t device = 0;
    while (stream_of(device).due_ns != now_) ++device;
    finish(device, stream_of(device).computed_until_ns - stream_of(device).started_ns, done);
    return done;
}

void devices_emulator::finish(uint32_t device, uint64_t duration_ns, completion &done) {
    stream &stream = stream_of(device);
    const operation work = stream.queue.front();
    stream.pop();
    stream.due_ns = MOORAGE_NEVER;
    if (work.kind != event_kind::hidden_states) {
        busy_.gpu += duration_ns;
        device_busy_[device].gpu += duration_ns;
    }
    show(work, stream.started_ns, now_, device);
    done = {work.kind, work.tag, duration_ns, work.segments};
    stream.front_since_ns = now_;
    if (!stream.queue.empty()) start(device);
}

void devices_emulator::finish_cpu(completion &done) {
    end_on_cpu(flows_.started_ns(flows::cpu), now_, done);
    if (!cpu_.queue.empty()) start_cpu(0);
}

}  // namespace moorage::core
