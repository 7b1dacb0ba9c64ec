// side_thread.cpp - hands over by two counts: of parts to begin, and of parts to end.
#include "core/execute/side_thread.h"

#include <cassert>
#include <utility>

namespace moorage::core {

namespace {

using clock = std::chrono::steady_clock;
constexpr uint32_t stopped = UINT32_MAX;  // in the place of parts

}  // namespace

side_thread::side_thread(std::function<void(uint32_t)> work)
    : work_(std::move(work)), thread_([this] { loop(); }) {}

side_thread::~side_thread() {
    waiting_.store(stopped, std::memory_order_release);
    waiting_.notify_all();
    thread_.join();
}

void side_thread::start(uint32_t parts) {
    assert(!busy_ && parts != 0 && parts != stopped);
    busy_ = true;
    parts_ = parts;
    open_.store(parts, std::memory_order_relaxed);
    waiting_.store(parts, std::memory_order_release);
    waiting_.notify_one();
}

// A helper may read what start() was given: nothing starts anew before its part has ended.
bool side_thread::help() {
    uint32_t left = waiting_.load(std::memory_order_relaxed);
    do {
        if (left == 0 || left == stopped) return false;
    } while (!waiting_.compare_exchange_weak(left, left - 1, std::memory_order_acquire,
                                             std::memory_order_relaxed));
    if (left == parts_) begun_ = clock::now();
    work_(parts_ - left);
    ended_.store(clock::now(), std::memory_order_relaxed);
    if (open_.fetch_sub(1, std::memory_order_acq_rel) == 1) open_.notify_all();
    return true;
}

bool side_thread::ended() {
    if (!busy_ || open_.load(std::memory_order_acquire) != 0) return false;
    busy_ = false;
    return true;
}

void side_thread::wait() const {
    assert(busy_);
    while (const uint32_t open = open_.load(std::memory_order_acquire)) open_.wait(open);
}

uint64_t side_thread::duration_ns() const {
    const auto taken = ended_.load(std::memory_order_relaxed) - begun_;
    return static_cast<uint64_t>(
        std::chrono::duration_cast<std::chrono::nanoseconds>(taken).count());
}

void side_thread::loop() {
    while (waiting_.load(std::memory_order_relaxed) != stopped)
        if (!help()) waiting_.wait(0, std::memory_order_relaxed);
}

}  // namespace moorage::core
