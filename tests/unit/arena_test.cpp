// arena_test.cpp - goal: fast memory is given out once, kept while it is held, and found again.
// Method: small arenas by hand. Random takes, moves and releases are compared with a model of sets.
// It computes the room from the held segments, and no two segments may share a row.
#include "core/store/arena.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <vector>

#include "core/base/random.h"

namespace arena_test {

using namespace moorage::core;

namespace {

constexpr uint8_t top = MOORAGE_SEGMENT(0, 2), bottom = MOORAGE_SEGMENT(1, 2),
                  whole = MOORAGE_WHOLE;

// Layers of 4 experts of 8 rows.
arena small(std::vector<uint32_t> top_rows, std::vector<uint32_t> slots, uint32_t cached,
            uint32_t frames) {
    arena page_arena(static_cast<uint32_t>(top_rows.size()), 4, 8, cached, frames);
    page_arena.divide(top_rows, slots);
    return page_arena;
}

}  // namespace

TEST_CASE("without a split an expert is its top segment, whatever is asked") {
    arena page_arena(/*layers=*/2, /*experts=*/4, /*rows=*/8, /*cached_experts=*/1, /*frames=*/1);
    CHECK(page_arena.rows_total() == 16);
    CHECK_FALSE(page_arena.is_split(0));
    CHECK(page_arena.cached_segments(1) == whole);
    for (const bool cached : {false, true}) {
        for (const uint8_t segments : {top, bottom, whole}) {
            CHECK(page_arena.has_room(3, segments, cached));
            page_arena.take(3, segments, cached);
            CHECK(page_arena.row_of(3, top) < 16);
            CHECK(page_arena.row_of(3, bottom) == MOORAGE_NEVER);
            CHECK_FALSE(page_arena.must_move(3));  // caching it changes a label
            page_arena.release(3, segments);
            CHECK(page_arena.row_of(3, top) == MOORAGE_NEVER);
        }
    }
    page_arena.take(0, whole, true);
    page_arena.take(1, whole, false);
    CHECK_FALSE(page_arena.has_room(2, whole, true));
    CHECK(page_arena.has_room(0, whole, false));  // holds its place already
    page_arena.release(0, 0);                     // nothing asked, nothing done
    CHECK_FALSE(page_arena.has_room(2, whole, false));
    page_arena.release(0, whole);
    CHECK(page_arena.has_room(2, whole, false));
    CHECK(page_arena.has_room(2, 0, false));
}

TEST_CASE("split: cached tops lie in slots of their size, all else in a frame of the page") {
    // One layer, tops of 3 rows: 8 rows of cache make two slots of 3.
    arena page_arena = small({3}, {2}, 1, 1);
    CHECK(page_arena.cached_segments(0) == top);
    CHECK(page_arena.share(0, top) == doctest::Approx(3.0 / 8));
    CHECK(page_arena.share(0, bottom) == doctest::Approx(5.0 / 8));
    CHECK(page_arena.free_frames() == 1);
    page_arena.take(0, top, true);
    page_arena.take(1, top, true);
    CHECK_FALSE(page_arena.has_room(2, top, true));
    CHECK(page_arena.has_room(2, top, false));
    CHECK(page_arena.free_frames() == 1);
    page_arena.take(0, bottom, true);
    CHECK(page_arena.free_frames() == 0);
    CHECK_FALSE(page_arena.has_room(1, bottom, true));
    page_arena.release(0, bottom);
    CHECK(page_arena.row_of(0, top) != MOORAGE_NEVER);  // the top stays where it is
    // Both segments in a frame: one after the other.
    page_arena.take(2, whole, false);
    CHECK(page_arena.row_of(2, bottom) == page_arena.row_of(2, top) + 3);
    page_arena.release(2, top);
    CHECK(page_arena.free_frames() == 0);  // the bottom keeps it
    page_arena.release(2, bottom);
    CHECK(page_arena.free_frames() == 1);
}

TEST_CASE("a top that came in a frame moves to a slot, and leaves the frame to its bottom") {
    arena page_arena = small({3}, {2}, 1, 1);
    page_arena.take(1, whole, false);
    const uint64_t frame = page_arena.row_of(1, top);
    CHECK(page_arena.must_move(1));
    const uint64_t slot = page_arena.take_slot(1);
    CHECK(slot != frame);
    CHECK(page_arena.take_slot(1) == slot);  // once
    CHECK(page_arena.row_of(1, top) == frame);
    page_arena.moved(1);
    CHECK(page_arena.row_of(1, top) == slot);
    CHECK_FALSE(page_arena.must_move(1));
    CHECK(page_arena.row_of(1, bottom) == frame + 3);
    page_arena.release(1, whole);
    CHECK(page_arena.free_frames() == 1);
    page_arena.take(0, top, true);
    page_arena.take(2, top, true);  // both slots are there again
    CHECK_FALSE(page_arena.has_room(3, top, true));
}

TEST_CASE("division: layers of one split share its slots, unsplit layers share the frames") {
    // 4 cached experts are 32 rows: 2 x 3 + 3 x 3 + 1 x 8 = 23.
    arena page_arena = small({3, 3, 8}, {2, 3, 1}, 4, 2);
    uint32_t taken = 0;
    for (uint32_t page = 0; page < 8; ++page) {
        if (!page_arena.has_room(page, top, true)) break;
        page_arena.take(page, top, true);
        ++taken;
    }
    CHECK(taken == 5);
    CHECK(page_arena.keeps_places(std::vector<uint32_t>{3, 3, 8}, std::vector<uint32_t>{1, 4, 1}));
    CHECK_FALSE(
        page_arena.keeps_places(std::vector<uint32_t>{3, 3, 8}, std::vector<uint32_t>{2, 4, 1}));
    CHECK_FALSE(
        page_arena.keeps_places(std::vector<uint32_t>{3, 4, 8}, std::vector<uint32_t>{2, 3, 1}));
    page_arena.divide(std::vector<uint32_t>{3, 3, 8}, std::vector<uint32_t>{1, 4, 1});
    CHECK(page_arena.row_of(0, top) != MOORAGE_NEVER);  // nothing moved
    for (uint32_t page = 0; page < 8; ++page) page_arena.release(page, whole);
    page_arena.divide(std::vector<uint32_t>{8, 8, 8}, std::vector<uint32_t>{1, 2, 1});
    CHECK(page_arena.free_frames() == 6);
    // Unsplit layers keep their places with any slots.
    CHECK(page_arena.keeps_places(std::vector<uint32_t>{8, 8, 8}, std::vector<uint32_t>{0, 0, 4}));
}

TEST_CASE("random takes, moves and releases: no row twice, room as counted") {
    random_stream random(4, 1);
    for (uint32_t round = 0; round < 80; ++round) {
        CAPTURE(round);
        const auto layers = static_cast<uint32_t>(1 + random.below(3));
        const uint32_t rows = 8, pages = layers * 4;
        std::vector<uint32_t> cut, slots;
        uint32_t needed = 0;
        std::map<uint32_t, uint32_t> room;  // slots by size
        for (uint32_t layer = 0; layer < layers; ++layer) {
            cut.push_back(static_cast<uint32_t>(1 + random.below(rows)));
            slots.push_back(static_cast<uint32_t>(random.below(5)));
            needed += cut.back() * slots.back();
            if (cut.back() != rows) room[cut.back()] += slots.back();
        }
        const auto frames = static_cast<uint32_t>(1 + random.below(4));
        arena page_arena(layers, 4, rows, (needed + rows - 1) / rows, frames);
        page_arena.divide(cut, slots);
        const uint32_t all_frames = page_arena.free_frames();
        std::vector<uint8_t> framed(pages, 0), slotted(pages, 0);
        for (uint32_t step = 0; step < 300; ++step) {
            const auto page = static_cast<uint32_t>(random.below(pages));
            const auto segments = static_cast<uint8_t>(1 + random.below(3));
            const bool cached = random.below(2) == 0, split = cut[page / 4] != rows;
            const auto used = static_cast<uint32_t>(
                std::count_if(framed.begin(), framed.end(), [](uint8_t f) { return f != 0; }));
            uint32_t in_slots = 0;
            for (uint32_t other_page = 0; other_page < pages; ++other_page)
                in_slots += slotted[other_page] && cut[other_page / 4] == cut[page / 4];
            const uint8_t wanted = split ? segments : top;
            const bool has_top = slotted[page] || (framed[page] & top);
            const bool top_in_slot = (wanted & top) && !has_top && split && cached;
            const bool in_frame = ((wanted & top) && !has_top && !top_in_slot) ||
                                  ((wanted & bottom) && !(framed[page] & bottom));
            const bool expected = (!top_in_slot || in_slots < room[cut[page / 4]]) &&
                                  (!in_frame || framed[page] != 0 || used < all_frames);
            REQUIRE(page_arena.has_room(page, segments, cached) == expected);
            REQUIRE(page_arena.free_frames() == all_frames - used);
            const uint64_t action = random.below(3);
            if (action == 0) {
                page_arena.release(page, segments);
                framed[page] &= static_cast<uint8_t>(~wanted);
                if (wanted & top) slotted[page] = 0;
            } else if (action == 1 && expected) {
                page_arena.take(page, segments, cached);
                if (top_in_slot) slotted[page] = 1;
                if ((wanted & top) && !has_top && !top_in_slot) framed[page] |= top;
                if (wanted & bottom) framed[page] |= bottom;
            } else if (action == 2 && page_arena.must_move(page) &&
                       in_slots < room[cut[page / 4]]) {
                REQUIRE((split && (framed[page] & top)));
                page_arena.take_slot(page);
                page_arena.moved(page);
                framed[page] &= static_cast<uint8_t>(~top);
                slotted[page] = 1;
            }
            std::vector<uint8_t> owner(page_arena.rows_total(), 0);
            for (uint32_t other_page = 0; other_page < pages; ++other_page) {
                for (const uint8_t segment : {top, bottom}) {
                    const uint64_t row = page_arena.row_of(other_page, segment);
                    const bool held = segment == top
                                          ? slotted[other_page] || (framed[other_page] & top)
                                          : (framed[other_page] & bottom) != 0;
                    REQUIRE((row != MOORAGE_NEVER) == held);
                    if (!held) continue;
                    const uint32_t count =
                        segment == top ? cut[other_page / 4] : rows - cut[other_page / 4];
                    REQUIRE(row + count <= page_arena.rows_total());
                    for (uint64_t i = row; i < row + count; ++i) REQUIRE(owner[i]++ == 0);
                }
            }
        }
    }
}

}  // namespace arena_test
