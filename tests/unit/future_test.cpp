// future_test.cpp - goal: next_use is the first later request of a page, in each of the three
// orders. Method: random small traces and hand-made long gaps. The list of all requests is written
// out by the definition of the order, step by step, and searched from the front.
#include <doctest/doctest.h>

#include <algorithm>
#include <random>

#include "core/source/future.h"
#include "moorage/base.h"
#include "tests/unit/trace_file.h"

namespace future_test {

using namespace moorage::core;
using namespace moorage::test;

namespace {

struct request {
    uint64_t step, token;
    uint32_t page;
};

// All requests in the order of their steps, written as the contract says it.
std::vector<request> requests_of(const trace &trace, uint64_t tokens, order requests) {
    std::vector<request> list;
    uint64_t step = 0;
    const auto add = [&](uint64_t token, uint32_t layer, uint32_t rank) {
        list.push_back({step, token, layer * trace.experts() + trace.expert(token, layer, rank)});
    };
    for (uint64_t token = 0; token < tokens; ++token) {
        if (requests == order::rounds)
            for (uint32_t rank = 0; rank < trace.top_k(); ++rank)
                for (uint32_t layer = 0; layer < trace.layers(); ++layer, ++step)
                    add(token, layer, rank);
        else
            for (uint32_t layer = 0; layer < trace.layers(); ++layer) {
                for (uint32_t rank = 0; rank < trace.top_k(); ++rank) {
                    add(token, layer, rank);
                    if (requests == order::serial) ++step;
                }
                if (requests == order::token) ++step;
            }
    }
    return list;
}

trace random_trace(std::mt19937 &random, uint64_t tokens, uint32_t layers, uint32_t experts,
                   uint32_t top_k) {
    std::vector<uint8_t> chosen, deck(experts);
    for (uint32_t i = 0; i < experts; ++i) deck[i] = static_cast<uint8_t>(i);
    for (uint64_t row = 0; row < tokens * layers; ++row) {
        std::shuffle(deck.begin(), deck.end(), random);
        chosen.insert(chosen.end(), deck.begin(), deck.begin() + top_k);
    }
    auto opened =
        trace::from_bytes("random", plain_file(tokens, layers, top_k, experts, chosen).build());
    REQUIRE_MESSAGE(opened.ok(), opened.failure().text);
    return std::move(*opened);
}

// Asks for a random page at every step, and for all pages at some, and once more after a rewind.
void compare(const trace &trace, uint64_t tokens, order requests, std::mt19937 &random) {
    const future coming(trace, tokens);
    future_cursor cursor(coming, requests);
    const uint32_t pages = trace.layers() * trace.experts();
    const std::vector<request> list = requests_of(trace, tokens, requests);
    for (int pass = 0; pass < 2; ++pass) {
        for (const request &now : list)
            for (uint32_t page = 0; page < pages; ++page) {
                if (random() % 4 != 0 && page != now.page) continue;
                const auto next =
                    std::find_if(list.begin(), list.end(), [&](const request &candidate) {
                        return candidate.page == page && candidate.step > now.step;
                    });
                uint64_t token = 12345;
                const uint64_t step =
                    cursor.next_use(page, now.step, random() % 8 ? &token : nullptr);
                CHECK(step == (next == list.end() ? MOORAGE_NEVER : next->step));
                if (next == list.end() || token == 12345) continue;
                CHECK(token == next->token);
            }
        cursor.rewind();
    }
}

}  // namespace

TEST_CASE("next_use agrees with a search of the written-out requests") {
    std::mt19937 random(7);
    for (int round = 0; round < 12; ++round) {
        const uint32_t layers = 1 + random() % 3, experts = 2 + random() % 6;
        const uint32_t top_k = 1 + random() % std::min(experts, 4u);
        const uint64_t tokens = 1 + random() % 30;
        const trace trace = random_trace(random, tokens, layers, experts, top_k);
        for (const order requests : {order::rounds, order::token, order::serial}) {
            compare(trace, tokens, requests, random);
            compare(trace, 1 + random() % tokens, requests, random);
        }
    }
}

TEST_CASE("a hand-worked case: two layers, top-2") {
    // token 0: layer 0 {0, 1}, layer 1 {2, 0}; token 1: layer 0 {1, 2}, layer 1 {2, 1}
    const auto opened =
        trace::from_bytes("hand", plain_file(2, 2, 2, 3, {0, 1, 2, 0, 1, 2, 2, 1}).build());
    REQUIRE(opened.ok());
    const future coming(*opened);
    uint64_t token = 0;
    // serial steps 0..7: pages 0 1 | 5 3 || 1 2 | 5 4
    future_cursor serial(coming, order::serial);
    CHECK(serial.next_use(1, 0, &token) == 1);
    CHECK(token == 0);
    CHECK(serial.next_use(1, 1, &token) == 4);
    CHECK(token == 1);
    CHECK(serial.next_use(5, 1, nullptr) == 2);
    CHECK(serial.next_use(0, 1, nullptr) == MOORAGE_NEVER);
    CHECK(serial.next_use(4, 6, nullptr) == 7);
    // rounds: 0 5 | 1 3 || 1 5 | 2 4
    future_cursor rounds(coming, order::rounds);
    CHECK(rounds.next_use(1, 0, nullptr) == 2);
    CHECK(rounds.next_use(5, 1, nullptr) == 5);
    CHECK(rounds.next_use(1, 2, nullptr) == 4);
    CHECK(rounds.next_use(2, 5, nullptr) == 6);
    // token: one step a layer visit, 0..3
    future_cursor visits(coming, order::token);
    CHECK(visits.next_use(1, 0, &token) == 2);
    CHECK(token == 1);
    CHECK(visits.next_use(3, 0, nullptr) == 1);
    CHECK(visits.next_use(5, 1, nullptr) == 3);
    CHECK(visits.next_use(5, 3, nullptr) == MOORAGE_NEVER);
}

TEST_CASE("gaps of one, two and three bytes") {
    // Expert 1 at tokens 0, 127, 254, 382, 16766 and 33149; expert 0 at all others.
    const std::vector<uint64_t> places = {0, 127, 254, 382, 16'766, 33'149};
    std::vector<uint8_t> chosen(40'000, 0);
    for (const uint64_t place : places) chosen[place] = 1;
    const auto opened =
        trace::from_bytes("gaps", plain_file(chosen.size(), 1, 1, 2, chosen).build());
    REQUIRE(opened.ok());
    const future coming(*opened);
    // Page 0 has 39994 requests of one byte each; page 1 gaps 1, 127, 127, 128, 16384, 16383.
    CHECK(coming.bytes() == 39'994 + 1 + 1 + 1 + 2 + 3 + 2);
    future_cursor cursor(coming, order::token);
    for (size_t i = 0; i + 1 < places.size(); ++i)
        CHECK(cursor.next_use(1, places[i], nullptr) == places[i + 1]);
    CHECK(cursor.next_use(1, places.back(), nullptr) == MOORAGE_NEVER);
    CHECK(cursor.next_use(0, 126, nullptr) == 128);
    CHECK(cursor.next_use(0, 39'998, nullptr) == 39'999);
    CHECK(cursor.next_use(0, 39'999, nullptr) == MOORAGE_NEVER);
    cursor.rewind();
    CHECK(cursor.next_use(1, 0, nullptr) == 127);
}

TEST_CASE("experts that are never asked for have no future") {
    const auto opened = trace::from_bytes("one", plain_file(1, 1, 1, 3, {2}).build());
    REQUIRE(opened.ok());
    future coming(*opened);
    future_cursor cursor(coming, order::serial);
    CHECK(cursor.next_use(0, 0, nullptr) == MOORAGE_NEVER);
    CHECK(cursor.next_use(2, 0, nullptr) == MOORAGE_NEVER);
}

}  // namespace future_test
