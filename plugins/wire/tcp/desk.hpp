// desk.hpp - shared by all connections of an instance: limits, events for the host, lent messages.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "inbox.hpp"
#include "numbers.hpp"
#include "shortage.hpp"
#include "secure.hpp"

namespace tcp_wire {

namespace asio = boost::asio;
using asio::ip::tcp;
using failure = boost::system::error_code;

// The wire's own parameters.
struct settings {
    bool tls = false;
    bool open_network = false;  // in the clear beyond loopback
    std::string certificate, key, ca, revoked;
    uint64_t poll_us = 0, silence_ms = 2000;
};

// The texts of an event. They stay until the poll after the one that reported the event.
struct texts {
    std::string identity, address, words;
};

class event_queue {
public:
    event_queue() { shown_.reserve(shown_max); }
    moorage_wire_event &add(const moorage_wire_event &event) {
        return waiting_.emplace_back(item{event, nullptr}).event;
    }
    void add(const moorage_wire_event &event, texts details) {
        waiting_.push_back({event, std::make_unique<texts>(std::move(details))});
    }
    // Joins the unreported ones with the same listener and reason. So a client that is turned away
    // in a loop costs no memory.
    void turned_away(uint64_t listener, int32_t reason, std::string address, std::string words) {
        for (item &queued : waiting_)
            if (queued.event.kind == MOORAGE_WIRE_TURNED_AWAY && queued.event.reason == reason &&
                queued.event.connection == listener) {
                ++queued.event.count;
                queued.details->address = std::move(address),
                queued.details->words = std::move(words);
                return;
            }
        moorage_wire_event event{};
        event.kind = MOORAGE_WIRE_TURNED_AWAY, event.reason = reason;
        event.connection = listener, event.count = 1;
        add(event, {"", std::move(address), std::move(words)});
    }
    bool empty() const { return waiting_.empty(); }
    uint32_t take(std::span<moorage_wire_event> events) {
        uint32_t count = 0;
        for (; count < events.size() && !waiting_.empty(); ++count) {
            item &first = waiting_.front();
            if (first.details && shown_.size() == shown_max) break;
            events[count] = first.event;
            static const texts none;
            const texts &details = first.details ? *first.details : none;
            events[count].plugin_identity = details.identity.c_str();
            events[count].plugin_address = details.address.c_str();
            events[count].plugin_text = details.words.c_str();
            if (first.details) shown_.push_back(std::move(first.details));
            waiting_.pop_front();
        }
        return count;
    }
    void forget_shown() { shown_.clear(); }
    void clear() { waiting_.clear(), shown_.clear(); }

private:
    struct item {
        moorage_wire_event event;
        std::unique_ptr<texts> details;
    };
    static constexpr size_t shown_max = 64;  // their memory is there from the start
    std::deque<item> waiting_;
    std::vector<std::unique_ptr<texts>> shown_;
};

class session;

struct wire_context {
    settings set;
    moorage_wire_limits limits{};
    std::unique_ptr<secure_context> tls;  // null: in the clear
    event_queue events;
    memory_shortage short_of_memory;
    numbered<block *, 2> lent;
    std::vector<std::weak_ptr<session>> starved;  // sessions whose inbox was full
    asio::io_context io{1};
};

inline std::string text_of(const tcp::endpoint &endpoint) {
    const std::string host = endpoint.address().to_string();
    return (endpoint.address().is_v6() ? "[" + host + "]" : host) + ":" +
           std::to_string(endpoint.port());
}

inline std::chrono::nanoseconds duration_of(uint64_t ns) {
    constexpr uint64_t year_ns = uint64_t{365} * 24 * 3600 * 1'000'000'000;
    return std::chrono::nanoseconds(std::min(ns, year_ns));
}

}  // namespace tcp_wire
