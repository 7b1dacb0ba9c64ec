// engine.hpp - an open instance: one worker of UCX, its listeners and connections by number.
//
// Callbacks of UCX only note what has happened. step() acts on it, between two rounds of progress.
#pragma once

#include <poll.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "../handshake_limits.hpp"
#include "../tcp/numbers.hpp"
#include "connection.hpp"
#include "library.hpp"

namespace ucx_wire {

struct settings {
    std::string trusted, transports;
    uint64_t poll_us = 0, silence_ms = 2000;
};

class engine {
public:
    // Throws std::invalid_argument or std::runtime_error.
    engine(const settings &set, const moorage_wire_limits &limits);
    ~engine();
    engine(const engine &) = delete;
    engine &operator=(const engine &) = delete;

    uint64_t listen(std::string_view text, std::string &bound);
    uint64_t connect(const moorage::wire_target &target);
    uint32_t send(uint64_t number, std::span<const moorage_wire_part> parts, uint64_t user,
                  std::string &refused);
    uint32_t poll(std::span<moorage_wire_event> events, uint64_t wait_ns);
    void wake() {
        const uint64_t increment = 1;
        if (!woken_.exchange(true)) (void)!::write(waker_, &increment, sizeof(increment));
    }
    void release(uint64_t message);
    void close(uint64_t number, bool at_once);

private:
    struct listener {
        uint64_t number = 0;
        ucp_listener_h handle = nullptr;
        engine *owner = nullptr;
    };
    struct caller {  // a connecting peer
        uint64_t listener;
        ucp_conn_request_h request;
        std::string address;
        bool trusted;
    };
    struct greeting {  // hello or welcome
        head said;
        ucp_ep_h end_point;
    };
    struct outgoing_message {  // memory that UCX reads until it is done
        engine *owner;
        uint64_t connection = 0, user = 0, bytes = 0;
        bool from_host = false;
        head said;
        std::vector<ucp_dt_iov> parts;
    };
    struct reported_event {
        moorage_wire_event event;
        std::string address, words;
    };
    using entry =
        std::variant<std::monostate, std::unique_ptr<connection>, std::unique_ptr<listener>>;

    static void check(const moorage_wire_limits &limits);
    static ucs_status_t arrived(void *self, const void *header, size_t header_bytes, void *data,
                                size_t bytes, const ucp_am_recv_param_t *params);
    static void called(ucp_conn_request_h request, void *listener);
    static void failed(void *self, ucp_ep_h end_point, ucs_status_t status);
    static void sent(void *request, ucs_status_t status, void *user_data);

    connection *find(uint64_t number) {
        entry *entry = entries_.find(number);
        auto *open = entry ? std::get_if<std::unique_ptr<connection>>(entry) : nullptr;
        return open ? open->get() : nullptr;
    }
    template <class Work>
    void for_each_connection(Work &&work) {
        entries_.for_each([&](entry &entry) {
            if (auto *open = std::get_if<std::unique_ptr<connection>>(&entry)) work(**open);
        });
    }
    connection &add();
    // The most that a connection may hold. A message costs more than its bytes, and the longest
    // must fit.
    uint64_t window_of(int32_t channel) const {
        return std::max(limits_.receive_bytes_max,
                        limits_.message_bytes_max[channel] + message_cost);
    }
    // Released bytes that need not be granted yet, because a grant wakes the other end for nothing
    // else. Even the longest message may be sent without them.
    uint64_t owed_max(int32_t channel) const {
        return std::min(limits_.receive_bytes_max / 4,
                        window_of(channel) - limits_.message_bytes_max[channel] - message_cost);
    }
    void take_data(connection &peer, const head &said, void *data, size_t bytes, bool &keeps);
    void tell_in_order(connection &peer, uint64_t place, uint64_t message);
    void say(connection &peer, frame kind, uint64_t value);
    bool give(connection &peer, waiting_message &message);
    uint32_t hand_over(connection &peer, std::unique_ptr<outgoing_message> outgoing, bool reply);
    void send_waiting(connection &peer);
    void done(const outgoing_message &outgoing);
    void grant(connection &peer);
    bool dial_next(connection &peer);
    void accept(const caller &caller);
    void greet(const greeting &greeting);
    void end(connection &peer, int32_t reason, const std::string &words);
    void begin_death(connection &peer);
    void step();
    void watch(connection &peer, uint64_t now);
    void remove(connection &peer);
    void tell_open(connection &peer);
    void turn_away(uint64_t listener, int32_t reason, const std::string &address,
                   const std::string &words);
    uint64_t next_deadline_ns();
    void sleep(uint64_t until_ns);

    const settings settings_;
    const moorage_wire_limits limits_;
    const trusted_networks trusted_;
    const library ucx_;
    ucp_context_h context_ = nullptr;
    ucp_worker_h worker_ = nullptr;
    int worker_socket_ = -1, waker_ = -1;
    tcp_wire::numbered<entry, 1> entries_;
    tcp_wire::numbered<lent_message, 2> lent_;
    uint32_t connections_ = 0, handshakes_ = 0;
    wire::handshake_limits handshake_limits_;
    // Noted by callbacks.
    std::vector<caller> callers_;
    std::vector<greeting> greetings_;
    std::vector<std::pair<ucp_ep_h, std::string>> failures_;
    std::deque<reported_event> events_;
    std::deque<reported_event> shown_;  // the host may read their texts
    std::atomic<bool> woken_ = false;
    bool destroying_ = false;
};

}  // namespace ucx_wire

#include "engine.inl"
#include "engine_life.inl"
