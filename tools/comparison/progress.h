// progress.h - one line on a terminal that shows how far long work has come. Silent if piped.
//
//     progress shown("replay", requests);
//     while (...) shown.advance(batch);   // any thread, and any process forked since
//
// The line is redrawn at most ten times a second. The destructor wipes it, so nothing of it remains
// between the results.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>

namespace moorage::core {

class progress {
public:
    // `descriptor`: where the line goes (default: stderr). Nothing is written if it is no terminal,
    // or a dumb one. `total` 0: the number of steps is not known, and only the count is shown.
    progress(std::string label, uint64_t total, int descriptor = 2);
    ~progress();
    progress(const progress &) = delete;
    progress &operator=(const progress &) = delete;

    // Any thread. Cheap if nothing is shown. Otherwise it reads the clock once, so hot loops should
    // report every few thousand steps.
    void advance(uint64_t steps = 1);
    uint64_t done() const { return shared_->done.load(std::memory_order_relaxed); }

private:
    void draw(uint64_t done, std::chrono::nanoseconds elapsed);

    const std::string label_;
    const uint64_t total_;
    const int descriptor_;
    const bool shown_;
    const std::chrono::steady_clock::time_point begin_;
    // In memory that processes forked later share. All of them use the same clock.
    struct counters {
        std::atomic<uint64_t> done = 0;
        std::atomic<int64_t> next_draw_ns = 0;  // since begin_; the thread that moves it draws
        std::atomic<bool> drawn = false;
    };
    struct unmapping {
        void operator()(counters *counters) const;
    };
    static std::unique_ptr<counters, unmapping> make_counters();

    const std::unique_ptr<counters, unmapping> shared_;
    std::mutex drawing_;
};

// A line that names the work and shows how long it has taken, for work that reports no progress:
// "loading demo, 18.6 MB  0:12". On standard error, if that is a terminal.
class loading_line {
public:
    explicit loading_line(std::string label, bool hidden = false, int descriptor = 2);
    ~loading_line() { wipe(); }
    void wipe();  // by one thread; nothing of the line remains

private:
    void draw(std::chrono::nanoseconds elapsed);

    const std::string label_;
    const int descriptor_;
    bool drawn_ = false;  // used by the clock's thread until it has ended
    std::jthread clock_;  // last: it uses the others
};

// The line without its control characters, at most 79 columns: "compare  [########----------------]
// 33 %  8/24  0:12 left". The remaining time is shown once it can be estimated: after a second, and
// with something done.
std::string progress_line(std::string_view label, uint64_t done, uint64_t total,
                          std::chrono::nanoseconds elapsed);

}  // namespace moorage::core
