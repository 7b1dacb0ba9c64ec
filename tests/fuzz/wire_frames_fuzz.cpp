// wire_frames_fuzz.cpp - feeds any bytes to the tcp wire's readers of its socket: frames, greetings
// and goodbyes.
//
// The first byte decides how the rest is cut into pieces and when messages are released. Checks
// beside the sanitizers: no message is longer than allowed. Every payload can be read, lies at a
// multiple of 8 and equals the input. Memory stays within its bound. The text of a goodbye can be
// printed.
#include <cstdlib>

#include <deque>

#include "plugins/wire/tcp/inbox.hpp"

namespace {

using namespace tcp_wire;

constexpr uint32_t longest = 100'000;
constexpr uint64_t bytes_max = 200'000;

void require(bool holds) {
    if (!holds) std::abort();
}

void check_words(std::span<const unsigned char> payload) {
    const goodbye said = read_goodbye(payload);
    require(said.words.size() < goodbye_bytes_max);
    require(said.reason >= MOORAGE_WIRE_BY_PEER && said.reason <= MOORAGE_WIRE_TOO_SLOW);
    for (const char c : said.words) require(c >= 0x20 && c < 0x7f);
    if (const auto read = read_hello(payload)) require(written(*read).size() == hello_bytes);
}

// Every frame from the beginning of an input, until one that is invalid or too long.
std::deque<std::span<const unsigned char>> frames_of(std::span<const unsigned char> input) {
    std::deque<std::span<const unsigned char>> frames;
    while (input.size() >= head_bytes) {
        const auto h = read_head(input.data());
        if (!h || h->length > longest || input.size() < frame_bytes(h->length)) break;
        frames.push_back(input.subspan(head_bytes, h->length));
        input = input.subspan(frame_bytes(h->length));
    }
    return frames;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 1) return 0;
    const size_t piece_max = data[0] % 2 == 0 ? 1 + data[0] : 65'536, keep = data[0] / 16;
    std::span<const unsigned char> input(data + 1, size - 1);
    auto wanted = frames_of(input);
    inbox box(bytes_max);
    std::deque<block *> lent;
    auto seen = inbox::verdict::fine;
    while (!input.empty() && seen == inbox::verdict::fine) {
        const auto room = box.room();
        while (!lent.empty() && (room.empty() || lent.size() > keep)) {
            inbox::release(lent.front());
            lent.pop_front();
        }
        require(box.held_bytes() <= bytes_max + longest + block_bytes);
        if (room.empty()) continue;
        const size_t piece = std::min({piece_max, room.size(), input.size()});
        std::memcpy(room.data(), input.data(), piece);
        input = input.subspan(piece);
        seen = box.got(
            piece, [](const head &h) { return h.length <= longest; },
            [&](const received_frame &frame) {
                require(!wanted.empty() &&
                        reinterpret_cast<uintptr_t>(frame.payload.data()) % 8 == 0);
                require(std::equal(frame.payload.begin(), frame.payload.end(), wanted[0].begin(),
                                   wanted[0].end()));
                wanted.pop_front();
                check_words(frame.payload);
                ++frame.source->lent;
                lent.push_back(frame.source);
                return true;
            });
    }
    require(wanted.empty());
    if (seen == inbox::verdict::no_frame) require(guess(box.rest()) != nullptr);
    for (block *block : lent) inbox::release(block);
    return 0;
}
