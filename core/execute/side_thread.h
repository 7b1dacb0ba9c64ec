// side_thread.h - a thread beside its owner's that does one kind of work, as often as it is told
// to. Idle threads may help it.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <thread>

namespace moorage::core {

class side_thread {
public:
    // work(part) does one of the parts that start() names. From start() until try_finish() says
    // so, the data it touches belongs to the thread and to those who help.
    explicit side_thread(std::function<void(uint32_t part)> work);
    ~side_thread();  // returns when the parts under way have ended; the others are left
    side_thread(const side_thread &) = delete;

    // Parts are begun in their order, and end in any. Requires: not busy, parts >= 1.
    void start(uint32_t parts = 1);
    bool busy() const { return busy_; }
    // Does a part that nobody has begun, on the caller's thread. False: there is none. Any thread,
    // while the owner is not inside another call.
    bool help();
    // Whether the started work has ended. Then it is no longer busy.
    bool try_finish();
    // Waits until try_finish() would say so. Requires: busy.
    void wait() const;
    // Duration of the work that has ended last, from the beginning of its first part.
    uint64_t duration_ns() const;

private:
    void loop();

    const std::function<void(uint32_t)> work_;
    uint32_t parts_ = 0;  // number of parts under way
    bool busy_ = false;   // used by the owner only
    std::chrono::steady_clock::time_point begun_at_;
    std::atomic<std::chrono::steady_clock::time_point> ended_at_{};
    std::atomic<uint32_t> unbegun_parts_{0};  // parts that nobody has begun, or the order to end
    std::atomic<uint32_t> open_parts_{0};     // parts that have not ended
    std::thread thread_;
};

}  // namespace moorage::core
