// wire_receiver_test.cpp - goal: the tcp wire restores the frames that were sent from any pieces,
// within its memory limit. Method: random frames in random pieces, compared with the list that they
// were made from, released in random order. The heads and tables underneath are tested by hand.
#include <doctest/doctest.h>

#include "plugins/wire/tcp/inbox.hpp"
#include "plugins/wire/tcp/numbers.hpp"
#include "plugins/wire/tcp/silence.hpp"

#include <deque>
#include <random>
#include <set>

namespace {

using namespace tcp_wire;

struct lent {
    block *source;
    std::span<const unsigned char> payload;
    size_t frame;
};

std::string frame_bytes_of(const std::string &payload) {
    const head_image h = written(head{static_cast<uint32_t>(payload.size()), frame::message});
    std::string bytes(reinterpret_cast<const char *>(h.data()), h.size());
    bytes += payload;
    bytes.append(padding(payload.size()), '\0');
    return bytes;
}

// Frames of mostly small, sometimes long sizes, one of them as long as may be.
std::vector<std::string> random_frames(std::mt19937 &draw, size_t count, uint32_t longest) {
    std::vector<std::string> result;
    for (size_t i = 0; i < count; ++i) {
        const uint32_t shape = draw() % 10;
        uint32_t bytes = shape < 6   ? 1 + draw() % 300
                         : shape < 9 ? 1 + draw() % 20'000
                                     : 1 + draw() % longest;
        bytes = i == count / 2 ? longest : std::min(bytes, longest);
        std::string payload(bytes, '\0');
        for (char &c : payload) c = static_cast<char>(draw());
        result.push_back(std::move(payload));
    }
    return result;
}

}  // namespace

TEST_CASE("frames come out as they went in, whatever the pieces and the releases") {
    for (uint32_t seed = 1; seed <= 30; ++seed) {
        CAPTURE(seed);
        std::mt19937 draw(seed);
        const uint32_t longest = seed % 3 == 0 ? 5'000 : 300'000;
        const uint64_t bytes_max = seed % 2 == 0 ? longest : 1'000'000;
        const auto frames = random_frames(draw, 200, longest);
        std::string stream;
        for (const std::string &payload : frames) stream += frame_bytes_of(payload);

        inbox box(bytes_max);
        std::deque<lent> held;
        size_t arrived = 0, sent = 0, wrong = 0;
        while (sent < stream.size() || arrived < frames.size()) {
            const auto room = box.room();
            if (room.empty()) {
                REQUIRE(box.room_state() == inbox::state::full);
                REQUIRE(!held.empty());
            } else {
                const size_t part = draw() % 4 == 0 ? 1 + draw() % 40 : 1 + draw() % 60'000;
                const size_t piece = std::min({part, room.size(), stream.size() - sent});
                std::memcpy(room.data(), stream.data() + sent, piece);
                sent += piece;
                const auto seen = box.got(
                    piece, [&](const head &h) { return h.length <= longest; },
                    [&](const tcp_wire::received_frame &message) {
                        wrong += reinterpret_cast<uintptr_t>(message.payload.data()) % 8 != 0;
                        ++message.source->lent;
                        held.push_back({message.source, message.payload, arrived++});
                        return true;
                    });
                REQUIRE(seen == inbox::verdict::fine);
            }
            // One piece of memory more than the bound, where a message needs it to be whole.
            REQUIRE(box.held_bytes() <= std::max<uint64_t>(bytes_max, longest + 16) + block_bytes);
            while (!held.empty() && (room.empty() || draw() % 3 == 0)) {
                const size_t which = draw() % held.size();
                const lent lent_frame = held[which];
                held.erase(held.begin() + static_cast<ptrdiff_t>(which));
                const std::string &wanted = frames[lent_frame.frame];
                wrong += !std::equal(
                    lent_frame.payload.begin(), lent_frame.payload.end(),
                    reinterpret_cast<const unsigned char *>(wanted.data()),
                    reinterpret_cast<const unsigned char *>(wanted.data()) + wanted.size());
                if (inbox::release(lent_frame.source)) break;
            }
        }
        CHECK(wrong == 0);
        for (const lent &lent_frame : held) inbox::release(lent_frame.source);
    }
}

TEST_CASE("memory that is lent outlives its connection") {
    std::vector<lent> kept;
    {
        inbox box(1 << 20);
        const std::string small = frame_bytes_of("small"),
                          big = frame_bytes_of(std::string(100'000, 'g'));
        for (const std::string &bytes : {small, big, small}) {
            for (size_t sent = 0; sent < bytes.size();) {
                const auto room = box.room();
                const size_t piece = std::min(room.size(), bytes.size() - sent);
                std::memcpy(room.data(), bytes.data() + sent, piece);
                sent += piece;
                box.got(
                    piece, [](const head &) { return true; },
                    [&](const tcp_wire::received_frame &message) {
                        ++message.source->lent;
                        kept.push_back({message.source, message.payload, 0});
                        return true;
                    });
            }
        }
    }
    REQUIRE(kept.size() == 3);
    CHECK(std::string(kept[0].payload.begin(), kept[0].payload.end()) == "small");
    CHECK(kept[1].payload.size() == 100'000);
    CHECK(kept[1].payload[99'999] == 'g');
    for (const lent &lent_frame : kept)
        CHECK(!inbox::release(lent_frame.source));  // nothing waits for memory
}

TEST_CASE("a head is eight bytes, of which each is looked at") {
    const head_image bytes = written(head{0x01020304, frame::message});
    const unsigned char expected[] = {4, 3, 2, 1, 2, 0, 0, 0};
    CHECK(std::equal(bytes.begin(), bytes.end(), expected));
    for (size_t index = 0; index < head_bytes; ++index) {
        head_image changed = bytes;
        changed[index] ^= 0x80;
        CHECK(read_head(changed.data()).has_value() == (index < 4));
    }
    for (unsigned kind = 0; kind < 256; ++kind) {
        head_image changed = bytes;
        changed[4] = static_cast<unsigned char>(kind);
        CHECK(read_head(changed.data()).has_value() == (kind >= 1 && kind <= 3));
    }
    CHECK(frame_bytes(1) == 16);
    CHECK(frame_bytes(8) == 16);
    CHECK(frame_bytes(9) == 24);
}

TEST_CASE("numbers are never used twice, and those of another table are none") {
    numbered<int, 1> first_table;
    numbered<int, 2> second_table;
    std::set<uint64_t> seen;
    for (int i = 0; i < 1000; ++i) {
        const uint64_t a = first_table.add(i), b = first_table.add(-i), c = second_table.add(i);
        for (const uint64_t number : {a, b, c}) {
            CHECK(number != 0);
            CHECK(seen.insert(number).second);
        }
        REQUIRE(first_table.find(a) != nullptr);
        CHECK(*first_table.find(a) == i);
        CHECK(first_table.find(c) == nullptr);
        CHECK(second_table.find(a) == nullptr);
        first_table.remove(a);
        CHECK(first_table.find(a) == nullptr);
        first_table.remove(a);
        first_table.remove(b);
        second_table.remove(c);
    }
    CHECK(first_table.count() == 0);
    CHECK(first_table.find(0) == nullptr);
    CHECK(first_table.find(~uint64_t{0}) == nullptr);
}

// It looks every 500 ms. A peer is silent if four whole intervals pass without an acknowledgement
// while something is under way. This takes a fifth look, which saw it set out.
TEST_CASE("silence is four intervals without an acknowledgement") {
    const auto looks_until_silent = [](auto &&acknowledgements_at, uint32_t most) {
        silence_watch watch;
        for (uint32_t look = 1; look <= most; ++look)
            if (watch.silent(acknowledgements_at(look), 10'000 + 500 * look)) return look;
        return 0u;
    };
    // Nothing is answered, the last acknowledgement was long before.
    CHECK(looks_until_silent(
              [](uint32_t look) {
                  return acknowledgements{3, 60'000 + 500 * look, 0};
              },
              20) == 5);
    // Always something under way, and acknowledged within the interval: 0 ms ago, 499 ms ago.
    CHECK(looks_until_silent([](uint32_t) { return acknowledgements{9, 0, 0}; }, 50) == 0);
    CHECK(looks_until_silent([](uint32_t) { return acknowledgements{9, 499, 0}; }, 50) == 0);
    // Nothing under way: an idle connection is keepalive's.
    CHECK(looks_until_silent(
              [](uint32_t look) {
                  return acknowledgements{0, 500 * look, 0};
              },
              50) == 0);
    // One acknowledgement in between begins anew: looks 1 to 4 without, 5 with, then four more.
    CHECK(looks_until_silent(
              [](uint32_t look) {
                  return acknowledgements{1, look == 5 ? 20 : 60'000 + 500 * look, 0};
              },
              20) == 9);
    // A window that is shut and answers probes is no silence; four without answer are.
    CHECK(looks_until_silent([](uint32_t) { return acknowledgements{0, 5'000, 3}; }, 50) == 0);
    CHECK(looks_until_silent(
              [](uint32_t look) {
                  return acknowledgements{0, 5'000, look};
              },
              50) == 4);
}
