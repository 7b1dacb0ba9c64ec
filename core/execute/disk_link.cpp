// disk_link.cpp - which stretches of the files a piece is, read on a thread of its own.
#include "core/execute/disk_link.h"

#include <algorithm>
#include <cassert>
#include <chrono>

namespace moorage::core {

result<std::unique_ptr<disk_link>> disk_link::create(const model &of) {
    auto reader = expert_reader::create(of);
    if (!reader) return reader.failure();
    std::unique_ptr<disk_link> made(new disk_link(of, std::move(*reader)));
    made->thread_ = std::thread([link = made.get()] { link->loop(); });
    return made;
}

disk_link::~disk_link() {
    if (!thread_.joinable()) return;
    {
        const std::lock_guard lock(mutex_);
        stop_ = true;
    }
    wanted_.notify_one();
    thread_.join();
}

void disk_link::send(const link_piece &piece, uint32_t top_rows, std::byte *target) {
    assert(!busy_);
    busy_ = true;
    {
        const std::lock_guard lock(mutex_);
        piece_ = piece;
        top_rows_ = top_rows;
        target_ = target;
        pending_ = true;
    }
    wanted_.notify_one();
}

bool disk_link::ended() {
    if (!busy_ || !finished_.load(std::memory_order_acquire)) return false;
    finished_.store(false, std::memory_order_relaxed);
    busy_ = false;
    return true;
}

void disk_link::loop() {
    std::unique_lock lock(mutex_);
    for (;;) {
        wanted_.wait(lock, [&] { return stop_ || pending_; });
        if (stop_) return;
        pending_ = false;
        lock.unlock();
        const auto begun = std::chrono::steady_clock::now();
        failure_ = read();
        duration_ns_ = static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                                 std::chrono::steady_clock::now() - begun)
                                                 .count());
        finished_.store(true, std::memory_order_release);
        lock.lock();
    }
}

// What went wrong, or nothing.
std::string disk_link::read() {
    const auto experts = of_.config().experts, rows = of_.config().moe_intermediate;
    const uint32_t layer = moe_layers_[piece_.page / experts];
    const mlp_weights &expert = of_.weights().layers[layer].experts[piece_.page % experts];
    uint64_t begin = piece_.offset_bytes, left = piece_.bytes;
    std::byte *target = target_;
    for (const bool bottom : {false, true}) {
        const uint32_t first = bottom ? top_rows_ : 0;
        const uint32_t count = bottom ? rows - top_rows_ : top_rows_;
        if (count == 0 || left == 0) break;
        const segment_image image(expert, first, count);
        const uint64_t end = std::min(begin + left, image.bytes());
        if (begin < end) {
            if (std::string why = reader_->read(image, begin, end, target); !why.empty())
                return why;
            left -= end - begin;
        }
        begin -= std::min(begin, image.bytes());
        target += image.bytes();
    }
    return {};
}

}  // namespace moorage::core
