// session.hpp - one socket from its first byte to its end.
//
//   securing -> greeting -> open -> finishing (close) -> over
//
// The keeper hears of it until it is open: a dial, which began it, or a listener, which accepted
// it. Everything runs on the thread that polls, so a session needs no locks: its strand is that
// thread. A handler holds the session until it has run.
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
    // It came to nothing before it was open.
    virtual void failed(session &, int32_t reason, const std::string &words) = 0;
    // It was open, or is at its end.
    virtual void over(session &) = 0;
};

class session final : public worker, public std::enable_shared_from_this<session> {
public:
    session(desk &with, tcp::socket socket, bool client, keeper &by)
        : desk_(with),
          socket_(std::move(socket)),
          stream_(with.tls ? stream(socket_.native_handle(), *with.tls, client)
                           : stream(socket_.native_handle())),
          inbox_(with.limits.receive_bytes_max),
          timer_(with.io),
          keeper_(&by) {
        failure ignored;
        peer_ = text_of(socket_.remote_endpoint(ignored));
        socket_.non_blocking(true, ignored);
        set_options(socket_.native_handle(), with.set.silence_ms);
    }

    const std::string &peer() const { return peer_; }
    const std::string &identity() const { return identity_; }
    bool secure() const { return stream_.secure(); }
    // Agreed on TLS, and waits to be told to greet.
    bool is_ready() const { return ready_ && state_ == state::securing; }
    // When the peer last said something, or this began; until it is open.
    std::chrono::steady_clock::time_point heard() const { return heard_; }

    // Agrees on TLS, where there is any. Ends by itself if it is not open in time.
    void begin(std::chrono::nanoseconds time) {
        timer_.expires_after(time);
        timer_.async_wait([self = shared_from_this()](failure stopped) {
            if (!stopped && self->state_ < state::open)
                self->guard([&] { self->fail(MOORAGE_WIRE_TOO_SLOW, "no greeting in time"); });
        });
        shake_hands();
    }
    // Says who this is; the answer comes to the keeper.
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
                                                desk_.limits.message_bytes_max[channel]}));
        write();
    }
    // From now on it has a number, and tells the host what happens.
    void open(uint64_t number, uint64_t send_bytes_max, int32_t channel, keeper &by) {
        state_ = state::open;
        keeper_ = &by;
        number_ = number, send_bytes_max_ = send_bytes_max;
        receive_bytes_max_ = desk_.limits.message_bytes_max[channel];
        timer_.cancel();
    }
    uint64_t number() const { return number_; }
    // The host does not know of it, and need not know of its end.
    void hush(bool so = true) { refused_ = so; }
    // Everything that begins with this session; not what begins with its keeper.
    template <class Work>
    void guard(Work &&work) {
        desk_.short_of_memory.guard(shared_from_this(), work);
    }
    void out_of_memory() override { end(MOORAGE_WIRE_LOST, "no memory"); }

    uint32_t send(std::span<const moorage_wire_part> parts, uint64_t user, std::string &refused);
    // Tells the peer why, if it can hear that, and ends. The keeper has been told.
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
    // At once and without a word to anybody: the instance ends.
    void drop() {
        state_ = state::over;
        failure ignored;
        timer_.cancel();
        socket_.close(ignored);
        outbox_.clear();
    }

private:
    enum class state { securing, greeting, open, finishing, over };

    // Nothing more is to be done, or not before its end was told.
    bool is_over() const { return state_ == state::over || short_of_memory(); }
    void shake_hands();
    bool write_at_once(std::span<iovec> parts, uint64_t whole, uint64_t &gone);
    void read();
    void read_later();
    bool read_some();
    void discard();
    void write();
    void wait_to_read();
    void wait_to_write();
    bool allowed(const head &h) const;
    bool take(const arrived &one);
    void misread(inbox::verdict what);
    void lost(const progress &how);
    void leave_keeper(int32_t reason, const std::string &words);
    void end(int32_t reason, std::string words);
    void linger(std::chrono::nanoseconds time);
    moorage_wire_event event(int32_t kind) const {
        moorage_wire_event made{};
        made.kind = kind, made.connection = number_;
        return made;
    }
    void sent(uint64_t user) {
        moorage_wire_event made = event(MOORAGE_WIRE_SENT);
        made.user = user;
        desk_.events.add(made);
    }
    void tell_of_room();

    desk &desk_;
    tcp::socket socket_;
    stream stream_;
    inbox inbox_;
    outbox outbox_;
    asio::steady_timer timer_;
    keeper *keeper_;  // null: it has come to nothing
    silence_watch silence_;
    std::chrono::steady_clock::time_point heard_ = std::chrono::steady_clock::now();
    std::string peer_, identity_;
    state state_ = state::securing;
    uint64_t number_ = 0, send_bytes_max_ = 0, receive_bytes_max_ = 0;
    bool waits_to_read_ = false, waits_to_write_ = false;
    bool starved_ = false, full_ = false, deaf_ = false;  // deaf: the peer takes nothing any more
    bool ready_ = false;
    bool refused_ = false;  // nobody is to be told of its end
};

}  // namespace tcp_wire

#include "session.inl"
