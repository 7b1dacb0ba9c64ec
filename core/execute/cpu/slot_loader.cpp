// slot_loader.cpp - takes the memory of the slots, and copies pieces there on a thread.
#include "core/execute/cpu/slot_loader.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "core/base/text.h"

namespace moorage::core {

slot_loader::slot_loader(const model &of, const arena &places)
    : of_(of),
      places_(places),
      moe_layers_(of.config().moe_layers()),
      experts_(of.config().experts),
      intermediate_(of.config().moe_intermediate),
      begun_(std::chrono::steady_clock::now()) {}

status slot_loader::take_slots(bool from_disk) {
    assert(places_.rows() == intermediate_);
    // Layers may be of different types; an arena's rows are as wide as the widest.
    for (const uint32_t layer : moe_layers_) {
        const mlp_weights &one = of_.weights().layers[layer].experts[0];
        const uint64_t bytes = segment_image(one, 0, intermediate_).bytes();
        row_bytes_ = std::max(row_bytes_, (bytes + places_.rows() - 1) / places_.rows());
    }
    auto memory = memory_block::create(
        row_bytes_ * places_.rows_total(),
        format("the arena of {} expert slots", places_.rows_total() / places_.rows()));
    if (!memory) return error{memory.failure().text + "; lower [memory] experts"};
    memory_ = std::move(*memory);
    has_slots_ = true;
    if (from_disk) {
        auto reader = expert_reader::create(of_);
        if (!reader) return reader.failure();
        reader_ = std::move(*reader);
    }
    thread_ = std::thread([this] { loop(); });
    return success();
}

slot_loader::~slot_loader() {
    if (!thread_.joinable()) return;
    {
        const std::lock_guard lock(mutex_);
        stop_ = true;
    }
    wanted_.notify_one();
    thread_.join();
}

uint64_t slot_loader::elapsed_ns() const {
    return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                     std::chrono::steady_clock::now() - begun_)
                                     .count());
}

const mlp_weights &slot_loader::expert_of(uint32_t page) const {
    const layer_weights &layer = of_.weights().layers[moe_layers_[page / experts_]];
    return layer.experts[page % experts_];
}

std::byte *slot_loader::address(uint32_t page, uint8_t segment) const {
    const uint64_t at = places_.row_of(page, segment);
    assert(at != MOORAGE_NEVER);
    return row(at);
}

void slot_loader::send(const link_piece &piece) {
    link_state &link = links_[piece.link];
    assert(!link.busy);
    link.busy = true;
    link.piece = piece;
    // Fixed now: a piece under way goes on when its transfer is cancelled and the slot given away;
    // what comes there next waits for the link.
    const bool copies = has_slots_ && piece.page != MOORAGE_NONE;
    const bool split = copies && places_.split(piece.page / experts_);
    for (const uint8_t segment : {uint8_t{MOORAGE_TOP}, uint8_t{MOORAGE_BOTTOM}})
        if (copies && (piece.segments & segment) && (segment == MOORAGE_TOP || split))
            link.targets[segment == MOORAGE_BOTTOM] = address(piece.page, segment);
    if (copies) link.top_rows = places_.top_rows(piece.page / experts_);
    link.done.link = piece.link;
    link.done.started_ns = link.done.ended_ns = elapsed_ns();  // the thread moves the end
    {
        const std::lock_guard lock(mutex_);
        // Nothing to copy: the completion is there at once.
        (copies ? pending_ : copied_)[piece.link] = true;
    }
    if (copies) wanted_.notify_one();
}

void slot_loader::loop() {
    std::unique_lock lock(mutex_);
    for (;;) {
        wanted_.wait(lock, [&] { return stop_ || pending_[link_h2d] || pending_[link_d2h]; });
        if (stop_) return;
        const uint32_t which = pending_[link_h2d] ? link_h2d : link_d2h;
        pending_[which] = false;
        const link_state link = links_[which];
        lock.unlock();
        std::string failure = copy(link);
        const uint64_t ended_ns = elapsed_ns();
        lock.lock();
        links_[which].done.ended_ns = ended_ns;
        links_[which].done.failure = std::move(failure);
        copied_[which] = true;
        finished_.notify_one();
    }
}

// The piece's bytes of the image of the whole transfer: those of the top segment, then the
// bottom's. What went wrong, or nothing.
std::string slot_loader::copy(const link_state &link) {
    const link_piece &piece = link.piece;
    const mlp_weights &expert = expert_of(piece.page);
    const uint32_t top = link.top_rows;
    uint64_t begin = piece.offset_bytes, left = piece.bytes;
    for (const uint8_t segment : {uint8_t{MOORAGE_TOP}, uint8_t{MOORAGE_BOTTOM}}) {
        const bool is_top = segment == MOORAGE_TOP;
        if (!(piece.segments & segment) || (!is_top && top == intermediate_)) continue;
        const segment_image image(expert, is_top ? 0 : top, is_top ? top : intermediate_ - top);
        if (begin >= image.bytes()) {
            begin -= image.bytes();
            continue;
        }
        const uint64_t count = std::min(left, image.bytes() - begin);
        std::byte *const target = link.targets[is_top ? 0 : 1];
        if (!reader_) {
            image.copy(begin, begin + count, target);
        } else if (std::string why = reader_->read(image, begin, begin + count, target);
                   !why.empty()) {
            return why;
        }
        left -= count;
        begin = 0;
        if (left == 0) break;
    }
    return {};
}

bool slot_loader::take(copied &out) {
    const std::lock_guard lock(mutex_);
    for (uint32_t which = 0; which < link_count; ++which) {
        if (!copied_[which]) continue;
        copied_[which] = false;
        links_[which].busy = false;
        out = links_[which].done;
        return true;
    }
    return false;
}

void slot_loader::wait() {
    std::unique_lock lock(mutex_);
    assert((links_[link_h2d].busy || links_[link_d2h].busy) && "something must be under way");
    finished_.wait(lock, [&] { return copied_[link_h2d] || copied_[link_d2h]; });
}

}  // namespace moorage::core
