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
    unbegun_parts_.store(stopped, std::memory_order_release);
    unbegun_parts_.notify_all();
    thread_.join();
}

void side_thread::start(uint32_t parts) {
    assert(!busy_ && parts != 0 && parts != stopped);
    busy_ = true;
    parts_ = parts;
    open_parts_.store(parts, std::memory_order_relaxed);
    unbegun_parts_.store(parts, std::memory_order_release);
    unbegun_parts_.notify_one();
}

// A helper may read what start() was given: nothing starts anew before its part has ended.
bool side_thread::help() {
    uint32_t unbegun = unbegun_parts_.load(std::memory_order_relaxed);
    do {
        if (unbegun == 0 || unbegun == stopped) return false;
    } while (!unbegun_parts_.compare_exchange_weak(unbegun, unbegun - 1, std::memory_order_acquire,
                                                   std::memory_order_relaxed));
    if (unbegun == parts_) begun_at_ = clock::now();
    work_(parts_ - unbegun);
    ended_at_.store(clock::now(), std::memory_order_relaxed);
    if (open_parts_.fetch_sub(1, std::memory_order_acq_rel) == 1) open_parts_.notify_all();
    return true;
}

bool side_thread::try_finish() {
    if (!busy_ || open_parts_.load(std::memory_order_acquire) != 0) return false;
    busy_ = false;
    return true;
}

void side_thread::wait() const {
    assert(busy_);
    while (const uint32_t open_parts = open_parts_.load(std::memory_order_acquire))
        open_parts_.wait(open_parts);
}

uint64_t side_thread::duration_ns() const {
    const auto taken = ended_at_.load(std::memory_order_relaxed) - begun_at_;
    return static_cast<uint64_t>(
        std::chrono::duration_cast<std::chrono::nanoseconds>(taken).count());
}

void side_thread::loop() {
    while (unbegun_parts_.load(std::memory_order_relaxed) != stopped)
        if (!help()) unbegun_parts_.wait(0, std::memory_order_relaxed);
}

}  // namespace moorage::core
