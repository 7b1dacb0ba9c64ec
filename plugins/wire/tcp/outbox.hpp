// outbox.hpp - frames that wait to be written, and the parts that the host has lent.
#pragma once

#include <sys/uio.h>

#include <deque>
#include <vector>

#include "frame.hpp"
#include "stream.hpp"

namespace tcp_wire {

inline constexpr unsigned char zeros[8] = {};

inline iovec part_of(const void *data, size_t bytes) { return {const_cast<void *>(data), bytes}; }

class outbox {
public:
    // A message of the host. `written` bytes of its frame are already sent.
    void add(const head_image &h, std::span<const moorage_wire_part> parts, uint64_t length,
             uint64_t user, uint64_t written) {
        item &frame = items_.emplace_back();
        frame.user = user, frame.from_host = true, frame.h = h;
        frame.parts.reserve(parts.size() + 2);
        frame.parts.push_back(part_of(frame.h.data(), head_bytes));
        for (const moorage_wire_part &part : parts)
            if (part.bytes > 0) frame.parts.push_back(part_of(part.host_data, part.bytes));
        if (padding(length) > 0) frame.parts.push_back(part_of(zeros, padding(length)));
        frame.left = frame_bytes(length);
        bytes_ += frame.left;
        ++messages_;
        advance(frame, written);
    }
    // A frame of the wire itself.
    void add(frame kind, std::string payload) {
        item &frame = items_.emplace_back();
        frame.h = tcp_wire::written(head{static_cast<uint32_t>(payload.size()), kind});
        frame.payload = std::move(payload);
        frame.payload.append(padding(frame.payload.size()), '\0');
        frame.parts = {part_of(frame.h.data(), head_bytes),
                       part_of(frame.payload.data(), frame.payload.size())};
        frame.left = head_bytes + frame.payload.size();
        bytes_ += frame.left;
    }

    bool empty() const { return items_.empty(); }
    uint64_t bytes() const { return bytes_; }
    uint64_t messages() const { return messages_; }

    // Writes what the stream takes. Calls `sent(user)` for each message whose bytes the host owns
    // again.
    template <class Sent>
    io_result write(stream &stream, Sent &&sent) {
        while (!items_.empty()) {
            iovec batch[64];
            size_t count = 0;
            for (auto position = items_.begin(); position != items_.end() && count < 64; ++position)
                for (size_t i = position->next; i < position->parts.size() && count < 64; ++i)
                    batch[count++] = position->parts[i];
            const io_result done = stream.write({batch, count});
            if (done.status != io_status::done) return done;
            took(done.bytes, sent);
        }
        return stream.flush();
    }
    // Drops everything.
    void clear() {
        items_.clear();
        bytes_ = messages_ = 0;
    }

private:
    struct item {
        uint64_t user = 0, left = 0;
        bool from_host = false;
        head_image h{};
        std::string payload;
        std::vector<iovec> parts;
        size_t next = 0;  // first part that is not completely sent
    };
    template <class Sent>
    void took(uint64_t bytes, Sent &&sent) {
        while (bytes > 0) {
            item &first = items_.front();
            const uint64_t taken = std::min(bytes, first.left);
            bytes -= taken;
            if (taken < first.left) {
                advance(first, taken);
                return;
            }
            bytes_ -= first.left;
            if (first.from_host) {
                --messages_;
                sent(first.user);
            }
            items_.pop_front();
        }
    }
    void advance(item &frame, uint64_t bytes) {
        frame.left -= bytes, bytes_ -= bytes;
        while (bytes > 0) {
            iovec &part = frame.parts[frame.next];
            const uint64_t taken = std::min<uint64_t>(bytes, part.iov_len);
            part.iov_base = static_cast<char *>(part.iov_base) + taken;
            part.iov_len -= taken;
            bytes -= taken;
            if (part.iov_len == 0) ++frame.next;
        }
    }

    std::deque<item> items_;
    uint64_t bytes_ = 0, messages_ = 0;
};

}  // namespace tcp_wire
