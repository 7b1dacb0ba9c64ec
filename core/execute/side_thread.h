// side_thread.h - a thread beside its owner's that does one thing, as often as it is told to, and
// whose work others may share when they have none.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <thread>

namespace moorage::core {

class side_thread {
public:
    // work(part) does one of the parts that start() names. What it touches is the thread's, and
    // theirs who help, from start() until ended() says so.
    explicit side_thread(std::function<void(uint32_t part)> work);
    ~side_thread();  // when the parts under way have ended; the others are left
    side_thread(const side_thread &) = delete;

    // Parts are begun in their order, and end in any. Requires: not busy, parts >= 1.
    void start(uint32_t parts = 1);
    bool busy() const { return busy_; }
    // Does a part that nobody has begun, on the caller's thread; false: there is none. Any thread,
    // while the owner is not inside another call.
    bool help();
    // Whether what was started has ended; then it is busy no more.
    bool ended();
    // Until ended() would say so. Requires: busy.
    void wait() const;
    // Of what has ended last, from its first part's beginning on.
    uint64_t duration_ns() const;

private:
    void loop();

    const std::function<void(uint32_t)> work_;
    uint32_t parts_ = 0;  // of what is under way
    bool busy_ = false;   // the owner's
    std::chrono::steady_clock::time_point begun_;
    std::atomic<std::chrono::steady_clock::time_point> ended_{};
    std::atomic<uint32_t> waiting_{0};  // parts that nobody has begun, or that the thread is to end
    std::atomic<uint32_t> open_{0};     // parts that have not ended
    std::thread thread_;
};

}  // namespace moorage::core
