// side_thread.h - a thread beside its owner's that does one thing, as often as it is told to.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <thread>

namespace moorage::core {

class side_thread {
public:
    // What `work` touches is the thread's from start() until ended() says so.
    explicit side_thread(std::function<void()> work);
    ~side_thread();  // when what is under way has ended
    side_thread(const side_thread &) = delete;

    // Requires: not busy.
    void start();
    bool busy() const { return busy_; }
    // Whether what was started has ended; then it is busy no more.
    bool ended();
    // Until ended() would say so. Requires: busy.
    void wait() const;
    // Of what has ended last.
    uint64_t duration_ns() const { return duration_ns_; }

private:
    enum class state : int { idle, started, ended, stopped };
    void loop();

    const std::function<void()> work_;
    uint64_t duration_ns_ = 0;
    bool busy_ = false;  // the owner's
    std::atomic<state> state_{state::idle};
    std::thread thread_;
};

}  // namespace moorage::core
