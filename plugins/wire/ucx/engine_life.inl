// engine_life.inl - how connections end, and the poll.
#pragma once

namespace ucx_wire {

// Ends -------------------------------------------------------------------------------------------

inline void engine::close(uint64_t number, bool at_once) {
    entry *const one = entries_.find(number);
    if (!one) return;
    if (auto *const open = std::get_if<std::unique_ptr<listener>>(one)) {
        for (const caller &who : callers_)
            if (who.listener == number) ucx_.ucp_listener_reject((*open)->handle, who.request);
        std::erase_if(callers_, [&](const caller &who) { return who.listener == number; });
        ucx_.ucp_listener_destroy((*open)->handle);
        entries_.remove(number);
        told made{};
        made.event.kind = MOORAGE_WIRE_CLOSED;
        made.event.connection = number;
        made.event.reason = MOORAGE_WIRE_BY_HOST;
        made.words = "closed by this side";
        events_.push_back(std::move(made));
        return;
    }
    connection &at = *find(number);
    if (at.stands >= connection::stand::closing) return;
    // Only SENT and CLOSED of the connection are still reported.
    std::erase_if(events_, [&](const told &news) {
        if (news.event.connection != number || news.event.kind != MOORAGE_WIRE_MESSAGE)
            return false;
        release(news.event.message);
        return true;
    });
    at.reason = MOORAGE_WIRE_BY_HOST;
    at.words = "closed by this side";
    if (at_once || at.stands != connection::stand::open) return begin_death(at);
    at.stands = connection::stand::closing;
    at.due_ns = now_ns() + limits_.close_ns;
}

// The first reason counts.
inline void engine::end(connection &at, int32_t reason, const std::string &words) {
    if (at.reason == 0) at.reason = reason, at.words = words;
    begin_death(at);
}

inline void engine::begin_death(connection &at) {
    if (at.stands == connection::stand::dying) return;
    const bool answers = at.stands == connection::stand::farewell;
    if (at.stands == connection::stand::greeting) {
        --handshakes_;
        at.quiet = true;
        turn_away(at.listener,
                  at.reason == MOORAGE_WIRE_BY_HOST ? int32_t{MOORAGE_WIRE_LOST} : at.reason,
                  at.address, at.words);
    }
    at.stands = connection::stand::dying;
    at.waiting.clear();
    for (const auto &[place, message] : at.early) lent_.remove(message);
    at.early.clear();
    if (!at.end_point) return;
    ucp_request_param_t how{};
    how.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
    how.flags = answers ? 0 : static_cast<uint32_t>(UCP_EP_CLOSE_FLAG_FORCE);
    void *const request = ucx_.ucp_ep_close_nbx(at.end_point, &how);
    at.end_point = nullptr;
    at.due_ns = now_ns() + limits_.close_ns;
    if (UCS_PTR_IS_PTR(request)) at.closing = request;
}

inline void engine::remove(connection &at) {
    if (!at.quiet) {
        told made{};
        made.event.kind = MOORAGE_WIRE_CLOSED;
        made.event.connection = at.token;
        made.event.reason = at.reason;
        made.words = at.words;
        events_.push_back(std::move(made));
    }
    --connections_;
    entries_.remove(at.token);
}

inline void engine::watch(connection &at, uint64_t now) {
    using stand = connection::stand;
    if (at.stands == stand::open) {
        send_waiting(at);
        if (at.goodbye_place == at.awaited_place) {
            at.reason = MOORAGE_WIRE_BY_PEER, at.words = "closed by the other side";
            at.due_ns = now + limits_.close_ns;
            say(at, frame::goodbye, at.next_place);
            at.stands = stand::farewell;
        }
    }
    if (at.stands == stand::farewell && at.under_way == 0) begin_death(at);
    if (at.stands == stand::closing) {
        send_waiting(at);
        if (at.waiting.empty() && at.under_way == 0) {
            say(at, frame::goodbye, at.next_place);
            at.stands = stand::flushing;
        }
    }
    // Waits until the other end has taken everything and says so.
    if (at.stands == stand::flushing && at.goodbye_place != MOORAGE_NEVER) begin_death(at);
    if (at.stands != stand::dying && now >= at.due_ns) {
        if (at.stands == stand::dialing)
            end(at, MOORAGE_WIRE_UNREACHABLE, at.address + ": no answer in time");
        else if (at.stands == stand::greeting)
            end(at, MOORAGE_WIRE_TOO_SLOW, "no greeting in time");
        else
            begin_death(at);
    }
    if (at.stands != stand::dying) return;
    if (at.closing && now < at.due_ns &&
        ucx_.ucp_request_check_status(at.closing) == UCS_INPROGRESS)
        return;
    // UCX may not end it in time (ucx#8738). It is then freed when UCX ends it.
    if (at.closing) ucx_.ucp_request_free(std::exchange(at.closing, nullptr));
    remove(at);
}

// Moving -----------------------------------------------------------------------------------------

inline void engine::step() {
    for (const caller &who : std::exchange(callers_, {})) accept(who);
    for (const greeting &by : std::exchange(greetings_, {})) greet(by);
    for (const auto &one : std::exchange(failures_, {}))
        each([&](connection &at) {
            if (at.end_point != one.first || !one.first) return;
            if (at.stands == connection::stand::dialing && !at.more_places.empty()) {
                ucp_request_param_t how{};
                how.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
                how.flags = UCP_EP_CLOSE_FLAG_FORCE;
                void *const request = ucx_.ucp_ep_close_nbx(at.end_point, &how);
                if (UCS_PTR_IS_PTR(request)) ucx_.ucp_request_free(request);
                dial_next(at);
                return;
            }
            const bool begun = at.listed;
            end(at, begun ? MOORAGE_WIRE_LOST : MOORAGE_WIRE_UNREACHABLE,
                at.address + ": " + one.second);
        });
    const uint64_t now = now_ns();
    each([&](connection &at) { watch(at, now); });
}

inline uint64_t engine::due_ns() {
    uint64_t due = MOORAGE_NEVER;
    each([&](const connection &at) { due = std::min(due, at.due_ns); });
    return due;
}

inline void engine::sleep(uint64_t until_ns) {
    if (ucx_.ucp_worker_arm(worker_) != UCS_OK) return;  // there is work to do
    const uint64_t now = now_ns(), due = std::min(until_ns, due_ns());
    constexpr uint64_t longest_ms = 60'000;
    const uint64_t ms = due <= now ? 0 : std::min((due - now) / 1'000'000 + 1, longest_ms);
    pollfd both[] = {{worker_socket_, POLLIN, 0}, {waker_, POLLIN, 0}};
    ::poll(both, 2, static_cast<int>(ms));
    uint64_t count = 0;
    if ((both[1].revents & POLLIN) != 0) (void)!::read(waker_, &count, sizeof(count));
}

inline uint32_t engine::poll(std::span<moorage_wire_event> out, uint64_t wait_ns) {
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
        if (now - begun < set_.poll_us * 1000)
            ::sched_yield();
        else
            sleep(end_ns);
    }
    uint32_t count = 0;
    for (; count < out.size() && !events_.empty(); ++count) {
        shown_.push_back(std::move(events_.front()));
        events_.pop_front();
        told &one = shown_.back();
        out[count] = one.event;
        out[count].plugin_identity = "";
        out[count].plugin_address = one.address.c_str();
        out[count].plugin_text = one.words.c_str();
    }
    return count;
}

}  // namespace ucx_wire
