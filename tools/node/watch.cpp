// watch.cpp - pings, listens, notices.
#include "tools/node/watch.h"

#include <algorithm>

#include "core/base/log.h"
#include "core/base/text.h"

namespace moorage::core {

watch::watch(std::unique_ptr<wire> message_wire, const node_plan &plan,
             const node_identity &identity, std::function<void()> changed, uint64_t beat_ns)
    : wire_(std::move(message_wire)),
      plan_(plan),
      identity_(identity),
      links_(*wire_, plan_, identity_, *this),
      changed_(std::move(changed)),
      beat_ns_(beat_ns),
      pulses_(plan.servers.size()),
      trips_ns_(plan.servers.size()),
      heard_ns_(plan.servers.size(), 0),
      clocks_(plan.servers.size()),
      troubles_(plan.servers.size()),
      refused_(plan.servers.size(), 0) {}

watch::~watch() {
    stopping_ = true;
    wire_->wake();
    if (thread_.joinable()) thread_.join();
}

void watch::begin() {
    thread_ = std::thread([this] { run(); });
}

void watch::run() {
    links_.dial();
    while (!stopping_.load(std::memory_order_relaxed)) {
        const uint64_t now_ns = steady_ns();
        turned_ns_ = now_ns;
        if (now_ns >= next_beat_ns_) beat(now_ns);
        links_.turn(next_beat_ns_ > now_ns ? next_beat_ns_ - now_ns : 0);
    }
}

void watch::beat(uint64_t now_ns) {
    next_beat_ns_ = now_ns + beat_ns_;
    for (uint32_t server = 0; server < pulses_.size(); ++server) {
        if (pulse_of(server) == pulse::alive && now_ns - heard_ns_[server] > dead_after * beat_ns_)
            set_pulse(server, pulse::dead);
        link *const target = links_.call_link(server);
        {
            const std::lock_guard lock(guard_);
            troubles_[server] = target ? "" : links_.trouble(server);
            refused_[server] = !target && links_.is_refused_by(server);
        }
        if (!target || !target->waiting.empty()) continue;  // one beat on its way is enough
        message_bytes written = links_.take_memory();
        write(written, ping_view{now_ns});
        links_.send(*target, std::move(written), message_kind::ping, 0);
    }
}

void watch::set_pulse(uint32_t server, pulse now) {
    if (pulse_of(server) == now) return;
    log_info(format("node: {} is {}", plan_.servers[server].name,
                    now == pulse::alive ? "alive" : "dead"));
    pulses_[server].store(now, std::memory_order_relaxed);
    if (now == pulse::dead) changed_();
}

void watch::ready(link &peer) {
    if (!peer.dialed) return;
    heard_ns_[peer.server] = steady_ns();
    {
        // Perhaps of another machine.
        const std::lock_guard lock(guard_);
        clocks_[peer.server].forget();
    }
    set_pulse(peer.server, pulse::alive);
}

bool watch::arrived(link &sender, const frame &message, uint64_t) {
    pong_view answer;
    if (message.header.kind == message_kind::refusal) {
        links_.handle_refusal(sender, message);
    } else if (message.header.kind == message_kind::pong && sender.dialed) {
        if (const objection problem = read(message.body, answer);
            problem.reason != refusal_reason::none) {
            links_.refuse(sender, problem.reason, problem.text);
            return false;
        }
        heard_ns_[sender.server] = steady_ns();
        if (answer.sent_ns <= heard_ns_[sender.server] &&
            answer.received_ns <= answer.answered_ns) {
            const std::lock_guard lock(guard_);
            clocks_[sender.server].add(clock_sample_of(
                answer.sent_ns, answer.received_ns, answer.answered_ns, heard_ns_[sender.server]));
        }
        trips_ns_[sender.server].store(
            heard_ns_[sender.server] - std::min(answer.sent_ns, heard_ns_[sender.server]),
            std::memory_order_relaxed);
        set_pulse(sender.server, pulse::alive);
    } else if (message.header.kind != message_kind::goodbye) {
        links_.refuse(sender, refusal_reason::unexpected, "heartbeats alone are taken here");
    }
    return false;
}

void watch::gone(link &peer) {
    if (peer.dialed) set_pulse(peer.server, pulse::dead);
}

}  // namespace moorage::core
