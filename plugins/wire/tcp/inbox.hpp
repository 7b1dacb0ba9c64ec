// inbox.hpp - cuts arriving bytes into frames, and owns the memory that messages are lent from.
//
// Bytes are read into blocks of 64 KiB. A message that lies completely in a block is lent where it
// is. A longer message gets memory of its own, and its rest is read into that. Only a message that
// crosses the end of a block is copied, up to the end. Memory counts as held once it is no longer
// the block being read into, until every message in it was released.
#pragma once

#include <cstdlib>
#include <memory>
#include <new>
#include <utility>
#include <vector>

#include "frame.hpp"

namespace tcp_wire {

inline constexpr size_t block_bytes = 64 << 10;
inline constexpr size_t moved_bytes_max = 16 << 10;  // longer frames get memory of their own
inline constexpr size_t room_bytes_min = 4 << 10;    // a smaller read is not worth the call

class inbox;

// Memory with messages. It outlives the connection until its last message is released.
struct block {
    inbox *owner;  // null: the connection has ended
    uint64_t bytes;
    uint32_t lent = 0;
    bool filling = true;  // the inbox reads into it
    unsigned char *data;
};

inline block *new_block(inbox *owner, uint64_t bytes) {
    auto *data = static_cast<unsigned char *>(std::malloc(bytes));
    if (!data) return nullptr;
    auto *created = new (std::nothrow) block{owner, bytes, 0, true, data};
    if (!created) std::free(data);
    return created;
}
inline void free_block(block *old) {
    std::free(old->data);
    delete old;
}

// A frame as it lies in a block.
struct received_frame {
    head h;
    std::span<const unsigned char> payload;
    block *source;
};

class inbox {
public:
    explicit inbox(uint64_t receive_bytes_max) : bytes_max_(receive_bytes_max) {}
    inbox(const inbox &) = delete;
    inbox &operator=(const inbox &) = delete;
    ~inbox() {
        if (reading_) leave(reading_);
        if (long_) leave(long_);
        for (block *held_block : held_) held_block->owner = nullptr;
    }

    enum class state { open, full, no_memory };
    // Where the next bytes go. Empty if held memory must be released first, or there is no memory.
    std::span<unsigned char> room() {
        state_ = state::open;
        if (long_) return {long_->data + long_end_, long_need_ - long_end_};
        if (reading_ && need_ == 0 && reading_->bytes - end_ >= room_bytes_min)
            return {reading_->data + end_, reading_->bytes - end_};
        if (need_ > moved_bytes_max) {
            if (!begin_long()) return {};
            return {long_->data + long_end_, long_need_ - long_end_};
        }
        if (!fresh_block()) return {};
        return {reading_->data + end_, reading_->bytes - end_};
    }
    state room_state() const { return state_; }

    // Call after `bytes` were read into the room. Calls `take(frame)` for each whole frame; it
    // returns whether to continue. `allow(head)` returns whether a frame may be that long.
    enum class verdict { fine, no_frame, too_long, stopped };
    template <class Allow, class Take>
    verdict got(size_t bytes, Allow &&allow, Take &&take) {
        if (long_) {
            long_end_ += bytes;
            if (long_end_ < long_need_) return verdict::fine;
            return deliver_long(take);
        }
        end_ += bytes;
        return cut(allow, take);
    }

    // The bytes that are no frame.
    std::span<const unsigned char> rest() const {
        if (!reading_) return {};
        return {reading_->data + begin_, end_ - begin_};
    }
    uint64_t held_bytes() const { return held_bytes_; }

    // A message in `lent_block` was released. Returns true if memory that a full inbox waits for is
    // free.
    static bool release(block *lent_block) {
        if (--lent_block->lent > 0 || lent_block->filling) return false;
        inbox *owner = lent_block->owner;
        if (owner) owner->forget(lent_block);
        free_block(lent_block);
        return owner != nullptr;
    }

private:
    template <class Allow, class Take>
    verdict cut(Allow &&allow, Take &&take) {
        need_ = 0;
        while (end_ - begin_ >= head_bytes) {
            const auto h = read_head(reading_->data + begin_);
            if (!h) return verdict::no_frame;
            if (!allow(*h)) return verdict::too_long;
            const uint64_t whole = frame_bytes(h->length);
            if (end_ - begin_ < whole) {
                if (begin_ + whole > reading_->bytes) need_ = whole;
                return verdict::fine;
            }
            const received_frame message{
                *h, {reading_->data + begin_ + head_bytes, h->length}, reading_};
            begin_ += whole;
            if (!take(message)) return verdict::stopped;
        }
        return verdict::fine;
    }
    template <class Take>
    verdict deliver_long(Take &&take) {
        block *const done = std::exchange(long_, nullptr);
        const received_frame message{*read_head(done->data), {}, done};
        done->filling = false;
        ++done->lent;  // until it is known whether `take` keeps it
        const std::unique_ptr<block, bool (*)(block *)> release_guard(done, release);
        const bool keep_going =
            take(received_frame{message.h, {done->data + head_bytes, message.h.length}, done});
        return keep_going ? verdict::fine : verdict::stopped;
    }
    // Whether `bytes` more fit within the bound. A single piece always fits.
    bool allowed(uint64_t bytes) {
        if (held_bytes_ == 0 || held_bytes_ + bytes <= bytes_max_) return true;
        state_ = state::full;
        return false;
    }
    bool begin_long() {
        if (!allowed(need_)) return false;
        room_to_hold();
        block *long_block = new_block(this, need_);
        if (!long_block) return state_ = state::no_memory, false;
        long_end_ = end_ - begin_;
        std::memcpy(long_block->data, reading_->data + begin_, long_end_);
        long_ = long_block, long_need_ = need_;
        hold(long_block);
        need_ = 0;
        end_ = begin_;  // the copied bytes have moved
        return true;
    }
    // A block with the rest of the current one at its start. The same block, if no message uses it.
    bool fresh_block() {
        const size_t kept = reading_ ? end_ - begin_ : 0;
        if (reading_ && reading_->lent == 0) {
            std::memmove(reading_->data, reading_->data + begin_, kept);
        } else {
            if (reading_ && !allowed(reading_->bytes)) return false;
            room_to_hold();
            block *next_block = new_block(this, block_bytes);
            if (!next_block) return state_ = state::no_memory, false;
            if (kept) std::memcpy(next_block->data, reading_->data + begin_, kept);
            if (reading_) reading_->filling = false, hold(reading_);
            reading_ = next_block;
        }
        begin_ = 0, end_ = kept, need_ = 0;
        return true;
    }
    // So `hold` needs no memory.
    void room_to_hold() {
        if (held_.size() == held_.capacity()) held_.reserve(2 * held_.size() + 4);
    }
    void hold(block *held_block) {
        held_.push_back(held_block);
        held_bytes_ += held_block->bytes;
    }
    void forget(block *held_block) {
        held_bytes_ -= held_block->bytes;
        for (block *&slot : held_)
            if (slot == held_block) slot = held_.back();
        held_.pop_back();
    }
    // The connection ends; lent messages stay.
    void leave(block *old_block) {
        old_block->filling = false;
        if (old_block->lent > 0) {
            old_block->owner = nullptr;
            return;
        }
        for (block *&slot : held_)
            if (slot == old_block) {
                slot = held_.back();
                held_.pop_back();
                break;
            }
        free_block(old_block);
    }

    const uint64_t bytes_max_;
    uint64_t held_bytes_ = 0;
    std::vector<block *> held_;  // not being read into, or long
    block *reading_ = nullptr;
    size_t begin_ = 0, end_ = 0;  // in `reading_`: bytes that are not cut yet
    uint64_t need_ = 0;           // for the frame at `begin_`, if the block is too short for it
    block *long_ = nullptr;
    uint64_t long_end_ = 0, long_need_ = 0;
    state state_ = state::open;
};

}  // namespace tcp_wire
