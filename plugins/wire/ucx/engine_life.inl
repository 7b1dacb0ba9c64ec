// engine_life.inl - how connections end, and the poll.
#pragma once

namespace ucx_wire {

// Ends -------------------------------------------------------------------------------------------

inline void engine::close(uint64_t number, bool at_once) {
    entry *const entry = entries_.find(number);
    if (!entry) return;
    if (auto *const open = std::get_if<std::unique_ptr<listener>>(entry)) {
        for (const caller &waiting_caller : callers_)
            if (waiting_caller.listener == number)
                ucx_.ucp_listener_reject((*open)->handle, waiting_caller.request);
        std::erase_if(callers_, [&](const caller &waiting_caller) {
            return waiting_caller.listener == number;
        });
        ucx_.ucp_listener_destroy((*open)->handle);
        entries_.remove(number);
        reported_event report{};
        report.event.kind = MOORAGE_WIRE_CLOSED;
        report.event.connection = number;
        report.event.reason = MOORAGE_WIRE_BY_HOST;
        report.words = "closed by this side";
        events_.push_back(std::move(report));
        return;
    }
    connection &peer = *find(number);
    if (peer.state >= connection::connection_state::closing) return;
    // Only SENT and CLOSED of the connection are still reported.
    std::erase_if(events_, [&](const reported_event &queued) {
        if (queued.event.connection != number || queued.event.kind != MOORAGE_WIRE_MESSAGE)
            return false;
        release(queued.event.message);
        return true;
    });
    peer.reason = MOORAGE_WIRE_BY_HOST;
    peer.words = "closed by this side";
    if (at_once || peer.state != connection::connection_state::open) return begin_death(peer);
    peer.state = connection::connection_state::closing;
    peer.deadline_ns = now_ns() + limits_.close_ns;
}

// The first reason counts.
inline void engine::end(connection &peer, int32_t reason, const std::string &words) {
    if (peer.reason == 0) peer.reason = reason, peer.words = words;
    begin_death(peer);
}

inline void engine::begin_death(connection &peer) {
    if (peer.state == connection::connection_state::dying) return;
    const bool answers = peer.state == connection::connection_state::farewell;
    if (peer.state == connection::connection_state::greeting) {
        --handshakes_;
        peer.quiet = true;
        turn_away(peer.listener,
                  peer.reason == MOORAGE_WIRE_BY_HOST ? int32_t{MOORAGE_WIRE_LOST} : peer.reason,
                  peer.address, peer.words);
    }
    peer.state = connection::connection_state::dying;
    peer.waiting.clear();
    for (const auto &[place, message] : peer.early) lent_.remove(message);
    peer.early.clear();
    if (!peer.end_point) return;
    ucp_request_param_t params{};
    params.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
    params.flags = answers ? 0 : static_cast<uint32_t>(UCP_EP_CLOSE_FLAG_FORCE);
    void *const request = ucx_.ucp_ep_close_nbx(peer.end_point, &params);
    peer.end_point = nullptr;
    peer.deadline_ns = now_ns() + limits_.close_ns;
    if (UCS_PTR_IS_PTR(request)) peer.closing = request;
}

inline void engine::remove(connection &peer) {
    if (!peer.quiet) {
        reported_event report{};
        report.event.kind = MOORAGE_WIRE_CLOSED;
        report.event.connection = peer.token;
        report.event.reason = peer.reason;
        report.words = peer.words;
        events_.push_back(std::move(report));
    }
    --connections_;
    entries_.remove(peer.token);
}

inline void engine::watch(connection &peer, uint64_t now) {
    using connection_state = connection::connection_state;
    if (peer.state == connection_state::open) {
        send_waiting(peer);
        if (peer.goodbye_place == peer.awaited_place) {
            peer.reason = MOORAGE_WIRE_BY_PEER, peer.words = "closed by the other side";
            peer.deadline_ns = now + limits_.close_ns;
            say(peer, frame::goodbye, peer.next_place);
            peer.state = connection_state::farewell;
        }
    }
    if (peer.state == connection_state::farewell && peer.under_way == 0) begin_death(peer);
    if (peer.state == connection_state::closing) {
        send_waiting(peer);
        if (peer.waiting.empty() && peer.under_way == 0) {
            say(peer, frame::goodbye, peer.next_place);
            peer.state = connection_state::flushing;
        }
    }
    // Waits until the other end has taken everything and says so.
    if (peer.state == connection_state::flushing && peer.goodbye_place != MOORAGE_NEVER)
        begin_death(peer);
    if (peer.state != connection_state::dying && now >= peer.deadline_ns) {
        if (peer.state == connection_state::dialing)
            end(peer, MOORAGE_WIRE_UNREACHABLE, peer.address + ": no answer in time");
        else if (peer.state == connection_state::greeting)
            end(peer, MOORAGE_WIRE_TOO_SLOW, "no greeting in time");
        else
            begin_death(peer);
    }
    if (peer.state != connection_state::dying) return;
    if (peer.closing && now < peer.deadline_ns &&
        ucx_.ucp_request_check_status(peer.closing) == UCS_INPROGRESS)
        return;
    // UCX may not end it in time (ucx#8738). It is then freed when UCX ends it.
    if (peer.closing) ucx_.ucp_request_free(std::exchange(peer.closing, nullptr));
    remove(peer);
}

// Moving -----------------------------------------------------------------------------------------

inline void engine::step() {
    for (const caller &caller : std::exchange(callers_, {})) accept(caller);
    for (const greeting &greeting : std::exchange(greetings_, {})) greet(greeting);
    for (const auto &failure : std::exchange(failures_, {}))
        for_each_connection([&](connection &peer) {
            if (peer.end_point != failure.first || !failure.first) return;
            if (peer.state == connection::connection_state::dialing && !peer.more_places.empty()) {
                ucp_request_param_t params{};
                params.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
                params.flags = UCP_EP_CLOSE_FLAG_FORCE;
                void *const request = ucx_.ucp_ep_close_nbx(peer.end_point, &params);
                if (UCS_PTR_IS_PTR(request)) ucx_.ucp_request_free(request);
                dial_next(peer);
                return;
            }
            const bool begun = peer.listed;
            end(peer, begun ? MOORAGE_WIRE_LOST : MOORAGE_WIRE_UNREACHABLE,
                peer.address + ": " + failure.second);
        });
    const uint64_t now = now_ns();
    for_each_connection([&](connection &peer) { watch(peer, now); });
}

inline uint64_t engine::next_deadline_ns() {
    uint64_t due = MOORAGE_NEVER;
    for_each_connection([&](const connection &peer) { due = std::min(due, peer.deadline_ns); });
    return due;
}

inline void engine::sleep(uint64_t until_ns) {
    if (ucx_.ucp_worker_arm(worker_) != UCS_OK) return;  // there is work to do
    const uint64_t now = now_ns(), due = std::min(until_ns, next_deadline_ns());
    constexpr uint64_t longest_ms = 60'000;
    const uint64_t ms = due <= now ? 0 : std::min((due - now) / 1'000'000 + 1, longest_ms);
    pollfd descriptors[] = {{worker_socket_, POLLIN, 0}, {waker_, POLLIN, 0}};
    ::poll(descriptors, 2, static_cast<int>(ms));
    uint64_t count = 0;
    if ((descriptors[1].revents & POLLIN) != 0) (void)!::read(waker_, &count, sizeof(count));
}

inline uint32_t engine::poll(std::span<moorage_wire_event> events, uint64_t wait_ns) {
    shown_.clear();
    const uint64_t begun = now_ns();
    const uint64_t end_ns = wait_ns > MOORAGE_NEVER - begun ? MOORAGE_NEVER : begun + wait_ns;
    for (bool first = true;; first = false) {
        // Stops at the first event to report: each round also asks UCX's sockets. Later data is
        // there at the next poll.
        for (int i = 0; i < 64 && ucx_.ucp_worker_progress(worker_) != 0 && events_.empty(); ++i) {
        }
        step();
        if (!events_.empty() || woken_.exchange(false) || (wait_ns == 0 && first)) break;
        const uint64_t now = now_ns();
        if (now >= end_ns) break;
        if (now - begun < settings_.poll_us * 1000)
            ::sched_yield();
        else
            sleep(end_ns);
    }
    uint32_t count = 0;
    for (; count < events.size() && !events_.empty(); ++count) {
        shown_.push_back(std::move(events_.front()));
        events_.pop_front();
        reported_event &report = shown_.back();
        events[count] = report.event;
        events[count].plugin_identity = "";
        events[count].plugin_address = report.address.c_str();
        events[count].plugin_text = report.words.c_str();
    }
    return count;
}

}  // namespace ucx_wire
