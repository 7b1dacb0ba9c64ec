// watch.cpp - pings, listens, notices.
#include "core/node/watch.h"

#include <algorithm>

#include "core/base/log.h"
#include "core/base/text.h"

namespace moorage::core {

watch::watch(std::unique_ptr<wire> over, const node_plan &plan, const node_identity &own,
             std::function<void()> changed, uint64_t beat_ns)
    : wire_(std::move(over)),
      plan_(plan),
      own_(own),
      links_(*wire_, plan_, own_, *this),
      changed_(std::move(changed)),
      beat_ns_(beat_ns),
      pulses_(plan.servers.size()),
      trips_ns_(plan.servers.size()),
      heard_ns_(plan.servers.size(), 0),
      clocks_(plan.servers.size()),
      troubles_(plan.servers.size()),
      refused_(plan.servers.size(), 0) {}

watch::~watch() {
    over_ = true;
    wire_->wake();
    if (thread_.joinable()) thread_.join();
}

void watch::begin() {
    thread_ = std::thread([this] { run(); });
}

void watch::run() {
    links_.dial();
    while (!over_.load(std::memory_order_relaxed)) {
        const uint64_t now_ns = steady_ns();
        turned_ns_ = now_ns;
        if (now_ns >= next_beat_ns_) beat(now_ns);
        links_.turn(next_beat_ns_ > now_ns ? next_beat_ns_ - now_ns : 0);
    }
}

void watch::beat(uint64_t now_ns) {
    next_beat_ns_ = now_ns + beat_ns_;
    for (uint32_t server = 0; server < pulses_.size(); ++server) {
        if (of(server) == pulse::alive && now_ns - heard_ns_[server] > dead_after * beat_ns_)
            set(server, pulse::dead);
        link *const to = links_.to(server);
        {
            const std::lock_guard lock(told_guard_);
            troubles_[server] = to ? "" : links_.trouble(server);
            refused_[server] = !to && links_.refused(server);
        }
        if (!to || !to->waiting.empty()) continue;  // one beat on its way is enough
        message_bytes written = links_.take_memory();
        write(written, ping_view{now_ns});
        links_.send(*to, std::move(written), message_kind::ping, 0);
    }
}

void watch::set(uint32_t server, pulse now) {
    if (of(server) == now) return;
    log_info(format("node: {} is {}", plan_.servers[server].name,
                    now == pulse::alive ? "alive" : "dead"));
    pulses_[server].store(now, std::memory_order_relaxed);
    if (now == pulse::dead) changed_();
}

void watch::ready(link &which) {
    if (!which.dialed) return;
    heard_ns_[which.server] = steady_ns();
    {
        // Perhaps of another machine.
        const std::lock_guard lock(told_guard_);
        clocks_[which.server].forget();
    }
    set(which.server, pulse::alive);
}

bool watch::arrived(link &from, const frame &of, uint64_t) {
    pong_view answer;
    if (of.header.kind == message_kind::refusal) {
        links_.refused(from, of);
    } else if (of.header.kind == message_kind::pong && from.dialed) {
        if (const objection bad = read(of.body, answer); bad.why != refusal_reason::none) {
            links_.refuse(from, bad.why, bad.text);
            return false;
        }
        heard_ns_[from.server] = steady_ns();
        if (answer.sent_ns <= heard_ns_[from.server] && answer.received_ns <= answer.answered_ns) {
            const std::lock_guard lock(told_guard_);
            clocks_[from.server].add(clock_sample_of(answer.sent_ns, answer.received_ns,
                                                     answer.answered_ns, heard_ns_[from.server]));
        }
        trips_ns_[from.server].store(
            heard_ns_[from.server] - std::min(answer.sent_ns, heard_ns_[from.server]),
            std::memory_order_relaxed);
        set(from.server, pulse::alive);
    } else if (of.header.kind != message_kind::goodbye) {
        links_.refuse(from, refusal_reason::unexpected, "heartbeats alone are taken here");
    }
    return false;
}

void watch::gone(link &which) {
    if (which.dialed) set(which.server, pulse::dead);
}

}  // namespace moorage::core
