// side_thread.cpp - hands over by one word that both sides wait for.
#include "core/execute/side_thread.h"

#include <cassert>
#include <chrono>
#include <utility>

namespace moorage::core {

side_thread::side_thread(std::function<void()> work)
    : work_(std::move(work)), thread_([this] { loop(); }) {}

side_thread::~side_thread() {
    state_.store(state::stopped, std::memory_order_release);
    state_.notify_all();
    thread_.join();
}

void side_thread::start() {
    assert(!busy_);
    busy_ = true;
    state_.store(state::started, std::memory_order_release);
    state_.notify_all();
}

bool side_thread::ended() {
    if (!busy_ || state_.load(std::memory_order_acquire) != state::ended) return false;
    busy_ = false;
    return true;
}

void side_thread::wait() const {
    assert(busy_);
    state_.wait(state::started, std::memory_order_acquire);
}

void side_thread::loop() {
    for (;;) {
        const state now = state_.load(std::memory_order_acquire);
        if (now == state::stopped) return;
        if (now != state::started) {
            state_.wait(now, std::memory_order_acquire);
            continue;
        }
        const auto begun = std::chrono::steady_clock::now();
        work_();
        duration_ns_ = static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                                 std::chrono::steady_clock::now() - begun)
                                                 .count());
        state expected = state::started;  // else the owner stops it
        state_.compare_exchange_strong(expected, state::ended, std::memory_order_release,
                                       std::memory_order_relaxed);
        state_.notify_all();
    }
}

}  // namespace moorage::core
