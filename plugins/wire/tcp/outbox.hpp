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
        item &one = items_.emplace_back();
        one.user = user, one.of_host = true, one.h = h;
        one.parts.reserve(parts.size() + 2);
        one.parts.push_back(part_of(one.h.data(), head_bytes));
        for (const moorage_wire_part &part : parts)
            if (part.bytes > 0) one.parts.push_back(part_of(part.host_data, part.bytes));
        if (padding(length) > 0) one.parts.push_back(part_of(zeros, padding(length)));
        one.left = frame_bytes(length);
        bytes_ += one.left;
        ++messages_;
        advance(one, written);
    }
    // A frame of the wire itself.
    void add(frame kind, std::string payload) {
        item &one = items_.emplace_back();
        one.h = tcp_wire::written(head{static_cast<uint32_t>(payload.size()), kind});
        one.own = std::move(payload);
        one.own.append(padding(one.own.size()), '\0');
        one.parts = {part_of(one.h.data(), head_bytes), part_of(one.own.data(), one.own.size())};
        one.left = head_bytes + one.own.size();
        bytes_ += one.left;
    }

    bool empty() const { return items_.empty(); }
    uint64_t bytes() const { return bytes_; }
    uint64_t messages() const { return messages_; }

    // Writes what the stream takes. Calls `sent(user)` for each message whose bytes the host owns
    // again.
    template <class Sent>
    progress write(stream &to, Sent &&sent) {
        while (!items_.empty()) {
            iovec batch[64];
            size_t count = 0;
            for (auto at = items_.begin(); at != items_.end() && count < 64; ++at)
                for (size_t i = at->next; i < at->parts.size() && count < 64; ++i)
                    batch[count++] = at->parts[i];
            const progress done = to.write({batch, count});
            if (done.what != moved::done) return done;
            took(done.bytes, sent);
        }
        return to.flush();
    }
    // Drops everything.
    void clear() {
        items_.clear();
        bytes_ = messages_ = 0;
    }

private:
    struct item {
        uint64_t user = 0, left = 0;
        bool of_host = false;
        head_image h{};
        std::string own;
        std::vector<iovec> parts;
        size_t next = 0;  // first part that is not completely sent
    };
    template <class Sent>
    void took(uint64_t bytes, Sent &&sent) {
        while (bytes > 0) {
            item &first = items_.front();
            const uint64_t here = std::min(bytes, first.left);
            bytes -= here;
            if (here < first.left) {
                advance(first, here);
                return;
            }
            bytes_ -= first.left;
            if (first.of_host) {
                --messages_;
                sent(first.user);
            }
            items_.pop_front();
        }
    }
    void advance(item &one, uint64_t bytes) {
        one.left -= bytes, bytes_ -= bytes;
        while (bytes > 0) {
            iovec &part = one.parts[one.next];
            const uint64_t here = std::min<uint64_t>(bytes, part.iov_len);
            part.iov_base = static_cast<char *>(part.iov_base) + here;
            part.iov_len -= here;
            bytes -= here;
            if (part.iov_len == 0) ++one.next;
        }
    }

    std::deque<item> items_;
    uint64_t bytes_ = 0, messages_ = 0;
};

}  // namespace tcp_wire
