// session.hpp - one socket from its first byte to its end.
//
//   securing -> greeting -> open -> finishing (close) -> over
//
// The keeper gets its news until it is open. The keeper is the dial that began it, or the listener
// that accepted it. Everything runs on the polling thread, so a session needs no locks: its strand
// is that thread. A handler holds the session until it has run.
#pragma once

#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>

#include "desk.hpp"
#include "outbox.hpp"

namespace tcp_wire {

class session;

class keeper {
public:
    virtual ~keeper() = default;
    virtual void secured(session &) = 0;
    virtual void greeted(session &, const hello &) = 0;
    // It failed before it was open.
    virtual void failed(session &, int32_t reason, const std::string &words) = 0;
    // It was open, or has ended.
    virtual void ended(session &) = 0;
};

class session final : public worker, public std::enable_shared_from_this<session> {
public:
    session(wire_context &context, tcp::socket socket, bool client, keeper &keeper)
        : context_(context),
          socket_(std::move(socket)),
          stream_(context.tls ? stream(socket_.native_handle(), *context.tls, client)
                              : stream(socket_.native_handle())),
          inbox_(context.limits.receive_bytes_max),
          timer_(context.io),
          keeper_(&keeper) {
        failure ignored;
        peer_ = text_of(socket_.remote_endpoint(ignored));
        socket_.non_blocking(true, ignored);
        set_options(socket_.native_handle(), context.set.silence_ms);
    }

    const std::string &peer() const { return peer_; }
    const std::string &identity() const { return identity_; }
    bool secure() const { return stream_.secure(); }
    // TLS is agreed, and it waits for the call of greet.
    bool is_ready() const { return ready_ && state_ == state::securing; }
    // When the peer last sent something, or the session began. Valid until it is open.
    std::chrono::steady_clock::time_point last_heard() const { return last_heard_; }

    // Agrees on TLS, if there is any. Ends by itself if it is not open in time.
    void begin(std::chrono::nanoseconds time) {
        timer_.expires_after(time);
        timer_.async_wait([self = shared_from_this()](failure stopped) {
            if (!stopped && self->state_ < state::open)
                self->guard([&] { self->fail(MOORAGE_WIRE_TOO_SLOW, "no greeting in time"); });
        });
        shake_hands();
    }
    // Sends the greeting. The keeper gets the answer.
    void greet(int32_t channel) {
        write_hello(channel);
        listen_for_hello();
    }
    void listen_for_hello() {
        state_ = state::greeting;
        read();
    }
    void write_hello(int32_t channel) {
        outbox_.add(frame::hello, written(hello{version, static_cast<uint8_t>(channel),
                                                context_.limits.message_bytes_max[channel]}));
        write();
    }
    // From now on it has a number and reports events to the host.
    void open(uint64_t number, uint64_t send_bytes_max, int32_t channel, keeper &keeper) {
        state_ = state::open;
        keeper_ = &keeper;
        number_ = number, send_bytes_max_ = send_bytes_max;
        receive_bytes_max_ = context_.limits.message_bytes_max[channel];
        timer_.cancel();
    }
    uint64_t number() const { return number_; }
    // The host does not know of it and gets no event of its end.
    void hide_from_host(bool hidden = true) { hidden_ = hidden; }
    // All work that begins with this session, not work that begins with its keeper.
    template <class Work>
    void guard(Work &&work) {
        context_.short_of_memory.guard(shared_from_this(), work);
    }
    void out_of_memory() override { end(MOORAGE_WIRE_LOST, "no memory"); }

    uint32_t send(std::span<const moorage_wire_part> parts, uint64_t user, std::string &refused);
    // Tells the peer why, if it can receive that, and ends. The keeper was told.
    void refuse(int32_t reason, const std::string &words);
    // Before it is open: ends at once.
    void fail(int32_t reason, const std::string &words);
    void close(bool at_once);
    void pace(uint64_t bytes_per_s) { set_pace(socket_.native_handle(), bytes_per_s); }
    void look_for_silence(uint64_t now_ms) {
        if (state_ != state::open) return;
        const auto seen = look_at(socket_.native_handle());
        if (seen && silence_.silent(*seen, now_ms))
            end(MOORAGE_WIRE_LOST, "nothing is acknowledged any more");
    }
    void resume() {
        if (!starved_) return;
        starved_ = false;
        read();
    }
    // At once and without an event: the instance ends.
    void drop() {
        state_ = state::over;
        failure ignored;
        timer_.cancel();
        socket_.close(ignored);
        outbox_.clear();
    }

private:
    enum class state { securing, greeting, open, finishing, over };

    // Nothing is left to do, or nothing before its end is reported.
    bool is_over() const { return state_ == state::over || short_of_memory(); }
    void shake_hands();
    bool write_at_once(std::span<iovec> parts, uint64_t whole, uint64_t &sent_bytes);
    void read();
    void read_later();
    bool read_some();
    void discard();
    void write();
    void wait_to_read();
    void wait_to_write();
    bool allowed(const head &h) const;
    bool take(const received_frame &message);
    void misread(inbox::verdict verdict);
    void lost(const io_result &result);
    void leave_keeper(int32_t reason, const std::string &words);
    void end(int32_t reason, std::string words);
    void linger(std::chrono::nanoseconds time);
    moorage_wire_event event(int32_t kind) const {
        moorage_wire_event report{};
        report.kind = kind, report.connection = number_;
        return report;
    }
    void sent(uint64_t user) {
        moorage_wire_event report = event(MOORAGE_WIRE_SENT);
        report.user = user;
        context_.events.add(report);
    }
    void report_room();

    wire_context &context_;
    tcp::socket socket_;
    stream stream_;
    inbox inbox_;
    outbox outbox_;
    asio::steady_timer timer_;
    keeper *keeper_;  // null: the session has failed
    silence_watch silence_;
    std::chrono::steady_clock::time_point last_heard_ = std::chrono::steady_clock::now();
    std::string peer_, identity_;
    state state_ = state::securing;
    uint64_t number_ = 0, send_bytes_max_ = 0, receive_bytes_max_ = 0;
    bool waits_to_read_ = false, waits_to_write_ = false;
    bool starved_ = false, full_ = false, deaf_ = false;  // deaf: the peer takes no more data
    bool ready_ = false;
    bool hidden_ = false;  // its end is not reported
};

}  // namespace tcp_wire

#include "session.inl"
