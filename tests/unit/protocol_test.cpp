// protocol_test.cpp - goal: messages between nodes keep their content. A message that was changed,
// cut or made up on the way is refused. Method: checksums and one call by hand from the published
// vectors and docs/protocol.md; random messages there and back; every bit of a message flipped;
// every length cut; each bound from both sides.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "core/base/random.h"
#include "tools/protocol/crc32c.h"
#include "tools/protocol/frame.h"
#include "tools/protocol/messages.h"

namespace protocol_test {

using namespace moorage::core;

namespace {

using bytes = std::vector<std::byte>;

bytes bytes_of(std::initializer_list<int> values) {
    bytes result;
    for (const int value : values) result.push_back(static_cast<std::byte>(value));
    return result;
}

template <class Message>
bytes message_of(message_kind kind, const Message &message) {
    bytes encoded;
    begin_frame(encoded);
    write(encoded, message);
    end_frame(encoded, {.kind = kind, .sender = 3, .incarnation = 77, .epoch = 5, .id = 9});
    return encoded;
}

constexpr peer_sizes sizes{.layers = 4, .experts = 8, .hidden = 3, .rows_max = 6};

struct call_parts {
    uint32_t layer = 2, rows = 2, wait_us = 1000;
    std::vector<expert_rows> experts = {{1, 2}, {7, 1}};
    std::vector<uint32_t> row_of = {0, 1, 1};
    std::vector<float> values = {1, 2, 3, 4, 5, 6};
};

bytes call_of(const call_parts &parts, uint32_t hidden = sizes.hidden) {
    bytes encoded;
    begin_frame(encoded);
    const auto room = write(
        encoded, call_view{parts.layer, parts.rows, parts.wait_us, parts.experts, parts.row_of, {}},
        hidden);
    std::memcpy(room.data(), parts.values.data(),
                std::min(room.size_bytes(), parts.values.size() * sizeof(float)));
    end_frame(encoded,
              {.kind = message_kind::call, .sender = 1, .incarnation = 2, .epoch = 1, .id = 4});
    return encoded;
}

refusal_reason read_refusal(const bytes &message) {
    frame read_as;
    if (const objection bad = read_frame(message, read_as); bad.reason != refusal_reason::none)
        return bad.reason;
    call_view call;
    return read(read_as.body, sizes, call).reason;
}

std::string text_of(random_stream &draw, size_t max) {
    std::string text(draw.below(max + 1), ' ');
    for (char &character : text) character = static_cast<char>(draw.below(256));
    return text;
}

}  // namespace

TEST_CASE("checksums are those of RFC 3720, B.4") {
    const auto sum = [](const bytes &data) {
        CHECK(crc32c(data) == crc32c_by_table(data));
        return crc32c(data);
    };
    CHECK(sum(bytes(32, std::byte{0})) == 0x8a9136aau);
    CHECK(sum(bytes(32, std::byte{0xff})) == 0x62a8ab43u);
    bytes rising;
    for (int i = 0; i < 32; ++i) rising.push_back(static_cast<std::byte>(i));
    CHECK(sum(rising) == 0x46dd794eu);
    CHECK(sum(bytes_of({'1', '2', '3', '4', '5', '6', '7', '8', '9'})) == 0xe3069283u);
    CHECK(sum({}) == 0);
    for (size_t cut = 0; cut <= rising.size(); ++cut)
        CHECK(crc32c(std::span(rising).subspan(cut), crc32c(std::span(rising).first(cut))) ==
              0x46dd794eu);
    std::mt19937 draw(7);
    bytes drawn(40'000);
    for (std::byte &byte : drawn) byte = static_cast<std::byte>(draw());
    for (const size_t length : {511, 512, 1535, 1536, 1537, 3071, 3072, 8284, 40'000}) {
        CAPTURE(length);
        sum(bytes(drawn.begin(), drawn.begin() + static_cast<ptrdiff_t>(length)));
        const size_t cut = draw() % length;
        const auto part = std::span(drawn).first(length);
        CHECK(crc32c(part.subspan(cut), crc32c(part.first(cut))) == crc32c_by_table(part));
    }
}

TEST_CASE("a ping, byte by byte") {
    bytes encoded;
    begin_frame(encoded);
    write(encoded, ping_view{0x0102030405060708});
    end_frame(encoded, {.kind = message_kind::ping,
                        .sender = 0x11223344,
                        .incarnation = 0x2122232425262728,
                        .epoch = 2,
                        .id = 0});
    bytes head = bytes_of({'M', 'O', 'O', 'R', 1, 0, 8, 0, 0x44, 0x33, 0x22, 0x11});
    const bytes body = bytes_of({8, 7, 6, 5, 4, 3, 2, 1});
    const auto append = [&](uint64_t value, size_t count) {
        for (size_t i = 0; i < count; ++i)
            head.push_back(static_cast<std::byte>(i < 8 ? value >> 8 * i : 0));
    };
    append(crc32c_by_table(body), 4);
    append(0x2122232425262728, 8);
    append(2, 8);
    append(0, 8);
    append(8, 8);
    append(0, 12);
    append(crc32c_by_table(head), 4);
    head.insert(head.end(), body.begin(), body.end());
    CHECK(encoded == head);
}

TEST_CASE("a call, byte by byte") {
    const bytes encoded = call_of({});
    std::vector<uint32_t> words((encoded.size() - frame_header_bytes) / 4);
    std::memcpy(words.data(), encoded.data() + frame_header_bytes, words.size() * 4);
    // layer, rows, values of a row, microseconds, experts, pairs; two experts; their rows; 1.0F ...
    const std::vector<uint32_t> wanted = {
        2, 2, 3, 1000,       2,          3,          1,          2,          7,         1,
        0, 1, 1, 0x3f800000, 0x40000000, 0x40400000, 0x40800000, 0x40a00000, 0x40c00000};
    CHECK(words == wanted);
    frame whole;
    REQUIRE(read_frame(encoded, whole).reason == refusal_reason::none);
    CHECK(whole.header.id == 4);
    call_view call;
    REQUIRE(read(whole.body, sizes, call).reason == refusal_reason::none);
    CHECK(call.experts[1] == expert_rows{7, 1});
    CHECK(call.hidden_states[5] == 6);
}

TEST_CASE("what is written is read") {
    random_stream draw(7, 1);
    for (int round = 0; round < 300; ++round) {
        frame read_as;
        const std::string server = text_of(draw, 40), name = text_of(draw, 255),
                          text = server + name;
        greeting said{draw.next(), draw.next(), draw.next(), draw.next(), sizes, server, name, "x"};
        bytes encoded = message_of(message_kind::hello, said);
        REQUIRE(read_frame(encoded, read_as).reason == refusal_reason::none);
        CHECK(read_as.header.sender == 3);
        CHECK(read_as.header.incarnation == 77);
        greeting heard;
        REQUIRE(read(read_as.body, heard).reason == refusal_reason::none);
        CHECK(heard.features == said.features);
        CHECK(heard.plan == said.plan);
        CHECK(heard.sizes.hidden == 3);
        CHECK(heard.server == server);
        CHECK(heard.model_name == name);
        encoded = message_of(message_kind::failed, refusal_view{refusal_reason::lacks, 1, 2, text});
        REQUIRE(read_frame(encoded, read_as).reason == refusal_reason::none);
        refusal_view refusal;
        REQUIRE(read(read_as.body, refusal).reason == refusal_reason::none);
        CHECK(refusal.reason == refusal_reason::lacks);
        CHECK(refusal.expert == 2);
        CHECK(refusal.text == text);
        std::vector<uint64_t> counts(32);
        for (uint64_t &count : counts) count = draw.next();
        encoded = message_of(message_kind::statistics, statistics_view{1, 2, 3, counts});
        REQUIRE(read_frame(encoded, read_as).reason == refusal_reason::none);
        statistics_view statistics;
        REQUIRE(read(read_as.body, sizes, statistics).reason == refusal_reason::none);
        CHECK(std::equal(counts.begin(), counts.end(), statistics.activations.begin()));
        CHECK(read(read_as.body, {.layers = 4, .experts = 9, .hidden = 3}, statistics).reason ==
              refusal_reason::shape);
        const bytes image(1 + draw.below(99), static_cast<std::byte>(round));
        encoded =
            message_of(message_kind::weights, weights_view{{1, 2, 3, image.size()}, 200, image});
        REQUIRE(read_frame(encoded, read_as).reason == refusal_reason::none);
        weights_view range;
        REQUIRE(read(read_as.body, sizes, range).reason == refusal_reason::none);
        CHECK(range.image_bytes == 200);
        CHECK(std::equal(image.begin(), image.end(), range.bytes.begin(), range.bytes.end()));
    }
}

TEST_CASE("a changed bit is noticed, wherever it is") {
    const bytes right = call_of({});
    CHECK(read_refusal(right) == refusal_reason::none);
    for (size_t bit = 0; bit < right.size() * 8; ++bit) {
        bytes changed = right;
        changed[bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
        CAPTURE(bit);
        CHECK(read_refusal(changed) != refusal_reason::none);
    }
    for (size_t length = 0; length < right.size(); ++length) {
        CAPTURE(length);
        CHECK(read_refusal({right.begin(), right.begin() + static_cast<ptrdiff_t>(length)}) !=
              refusal_reason::none);
    }
    bytes longer = right;
    longer.resize(longer.size() + 4);
    CHECK(read_refusal(longer) == refusal_reason::size);
}

TEST_CASE("a call out of the model's bounds is refused") {
    const auto refusal_after = [](auto &&change, uint32_t hidden = sizes.hidden) {
        call_parts parts;
        change(parts);
        return read_refusal(call_of(parts, hidden));
    };
    CHECK(refusal_after([](call_parts &) {}) == refusal_reason::none);
    CHECK(refusal_after([](call_parts &parts) { parts.layer = 3; }) == refusal_reason::none);
    CHECK(refusal_after([](call_parts &parts) { parts.layer = 4; }) == refusal_reason::shape);
    CHECK(refusal_after([](call_parts &parts) { parts.rows = 0; }) == refusal_reason::shape);
    CHECK(refusal_after([](call_parts &parts) { parts.rows = 7; }) == refusal_reason::shape);
    CHECK(refusal_after([](call_parts &) {}, 4) == refusal_reason::shape);
    CHECK(refusal_after([](call_parts &parts) {
              parts.experts = {{1, 1}, {1, 2}};
          }) == refusal_reason::shape);
    CHECK(refusal_after([](call_parts &parts) {
              parts.experts = {{7, 2}, {1, 1}};
          }) == refusal_reason::shape);
    CHECK(refusal_after([](call_parts &parts) {
              parts.experts = {{1, 2}, {8, 1}};
          }) == refusal_reason::shape);
    CHECK(refusal_after([](call_parts &parts) {
              parts.experts = {{1, 3}, {2, 0}};
          }) == refusal_reason::shape);
    CHECK(refusal_after([](call_parts &parts) {
              parts.experts = {{1, 2}};
          }) == refusal_reason::shape);
    CHECK(refusal_after([](call_parts &parts) { parts.experts = {}, parts.row_of = {}; }) ==
          refusal_reason::shape);
    CHECK(refusal_after([](call_parts &parts) { parts.row_of[2] = 2; }) == refusal_reason::shape);
    for (const float odd :
         {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()})
        CHECK(refusal_after([&](call_parts &parts) { parts.values[4] = odd; }) ==
              refusal_reason::values);
}

TEST_CASE("lengths beyond the bytes that are there are not used") {
    // A call of a thousand million rows in a message of a hundred bytes; its checksums are right.
    call_parts parts;
    bytes encoded = call_of(parts);
    const auto with_word = [&](size_t word, uint32_t value) {
        bytes changed = encoded;
        std::memcpy(changed.data() + frame_header_bytes + 4 * word, &value, 4);
        end_frame(changed, {.kind = message_kind::call});
        return read_refusal(changed);
    };
    CHECK(with_word(0, 2) == refusal_reason::none);
    for (const uint32_t value : {7u, 1u << 20, 0x3fffffffu, 0x40000001u, 0xffffffffu})
        for (const size_t word : {1, 2, 4, 5})
            CHECK(with_word(word, value) != refusal_reason::none);
    reply_view reply;
    bytes body(24);
    const uint32_t words[] = {0, 3, 0, 0, 0xffffffffu, 0};
    std::memcpy(body.data(), words, sizeof(words));
    CHECK(read(body, sizes, reply).reason == refusal_reason::size);
}

TEST_CASE("another version is refused with both versions and who is to be updated") {
    bytes encoded;
    for (const auto &[version, word] :
         {std::pair<uint16_t, const char *>{2,
                                            "2 of the protocol is spoken by the other node, 1 by "
                                            "this one: update this one"},
          {0, "update the other"}}) {
        begin_frame(encoded);
        write(encoded, ping_view{1});
        end_frame(encoded, {.kind = message_kind::ping, .version = version});
        frame decoded;
        const objection bad = read_frame(encoded, decoded);
        CHECK(bad.reason == refusal_reason::version);
        CHECK(bad.text.find(word) != std::string::npos);
    }
    const std::string web =
        "GET / HTTP/1.1\r\nHost: somewhere\r\nAccept: everything there is\r\n\r\n....";
    frame decoded;
    CHECK(read_frame(std::as_bytes(std::span(web)), decoded).reason == refusal_reason::not_ours);
    for (const uint16_t kind : {uint16_t{0}, uint16_t{message_kinds + 1}, uint16_t{65535}}) {
        begin_frame(encoded);
        end_frame(encoded, {.kind = static_cast<message_kind>(kind)});
        CHECK(read_frame(encoded, decoded).reason == refusal_reason::unexpected);
    }
}

TEST_CASE("weights come in ranges within the image") {
    bytes image(8, std::byte{3});
    weights_view weights;
    const auto refusal_of = [&](const weights_range &range, uint64_t image_bytes) {
        frame read_as;
        const bytes encoded =
            message_of(message_kind::weights, weights_view{range, image_bytes, image});
        REQUIRE(read_frame(encoded, read_as).reason == refusal_reason::none);
        return read(read_as.body, sizes, weights).reason;
    };
    CHECK(refusal_of({0, 0, 0, 8}, 8) == refusal_reason::none);
    CHECK(refusal_of({3, 7, 92, 8}, 100) == refusal_reason::none);
    CHECK(refusal_of({3, 7, 93, 8}, 100) == refusal_reason::size);
    CHECK(refusal_of({4, 0, 0, 8}, 8) == refusal_reason::shape);
    CHECK(refusal_of({0, 8, 0, 8}, 8) == refusal_reason::shape);
    CHECK(refusal_of({0, 0, 0, 9}, 9) == refusal_reason::size);
    CHECK(refusal_of({0, 0, UINT64_MAX - 3, 8}, UINT64_MAX) == refusal_reason::size);
    image.clear();
    CHECK(refusal_of({0, 0, 0, 0}, 8) == refusal_reason::size);
}

TEST_CASE("requests and what is written to them, byte by byte and out of bounds") {
    const std::vector<int32_t> ids = {7, 258};
    bytes encoded;
    begin_frame(encoded);
    write(encoded, ask_view{3, ids});
    end_frame(encoded, {.kind = message_kind::ask, .id = 5, .request = 0x0102});
    frame whole;
    REQUIRE(read_frame(encoded, whole).reason == refusal_reason::none);
    CHECK(whole.header.kind == message_kind::ask);
    CHECK(whole.header.request == 0x0102);
    CHECK(encoded[48] == std::byte{2});
    CHECK(encoded[49] == std::byte{1});
    CHECK(bytes(encoded.begin() + frame_header_bytes, encoded.end()) ==
          bytes_of({3, 0, 0, 0, 2, 0, 0, 0, 7, 0, 0, 0, 2, 1, 0, 0}));
    ask_view asked;
    REQUIRE(read(whole.body, asked).reason == refusal_reason::none);
    CHECK(asked.new_tokens == 3);
    CHECK(std::ranges::equal(asked.prompt, ids));
    CHECK(read(whole.body.first(12), asked).reason == refusal_reason::size);
    const auto why_ask = [](uint32_t new_tokens, uint32_t count, size_t present_tokens) {
        bytes body(8 + 4 * present_tokens);
        std::memcpy(body.data(), &new_tokens, 4);
        std::memcpy(body.data() + 4, &count, 4);
        ask_view ask;
        return read(body, ask).reason;
    };
    CHECK(why_ask(1, 1, 1) == refusal_reason::none);
    CHECK(why_ask(ask_tokens_max, 1, 1) == refusal_reason::none);
    CHECK(why_ask(ask_tokens_max + 1, 1, 1) == refusal_reason::size);
    CHECK(why_ask(0, 1, 1) == refusal_reason::size);
    CHECK(why_ask(1, 0, 0) == refusal_reason::size);
    CHECK(why_ask(1, 2, 1) == refusal_reason::size);
    CHECK(why_ask(1, 1, 2) == refusal_reason::size);
    CHECK(why_ask(1, ask_tokens_max + 1, ask_tokens_max + 1) == refusal_reason::size);
    const auto why_tokens = [](uint32_t last, uint32_t count, size_t present_tokens) {
        bytes body(12 + 4 * present_tokens);
        std::memcpy(body.data(), &last, 4);
        std::memcpy(body.data() + 8, &count, 4);
        tokens_view tokens;
        return read(body, tokens).reason;
    };
    CHECK(why_tokens(0, 1, 1) == refusal_reason::none);
    CHECK(why_tokens(1, 0, 0) == refusal_reason::none);
    CHECK(why_tokens(0, 0, 0) == refusal_reason::shape);
    CHECK(why_tokens(2, 1, 1) == refusal_reason::shape);
    CHECK(why_tokens(0, 2, 1) == refusal_reason::size);
    CHECK(why_tokens(1, 0xffffffff, 1) == refusal_reason::size);
}

}  // namespace protocol_test
