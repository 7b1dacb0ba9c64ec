// arena_test.cpp - goal: slots are dealt out once, kept while they are held and found again.
// Method: small arenas by hand; random takes and releases against a model of sets, in which room,
// places and counts are worked out from what is held.
#include "core/execute/arena.h"

#include <doctest/doctest.h>

#include <set>

#include "core/source/random.h"

using namespace moorage::core;

namespace {

constexpr uint8_t top = MOORAGE_TOP, bottom = MOORAGE_BOTTOM, whole = MOORAGE_WHOLE;

// What an arena must be like, slowly: who holds a slot of which kind.
struct holders {
    uint32_t counts[2];
    std::set<uint32_t> pages[2];

    bool split() const { return counts[1] != 0; }
    bool wants(uint8_t segments, uint32_t kind) const {
        if (!split()) return kind == 0 && segments != 0;
        return segments & (kind == 0 ? top : bottom);
    }
    bool has_room(uint32_t page, uint8_t segments) const {
        for (uint32_t kind = 0; kind < 2; ++kind)
            if (wants(segments, kind) && !pages[kind].count(page) &&
                pages[kind].size() == counts[kind])
                return false;
        return true;
    }
};

void check_places(const arena &slots, const holders &expected, uint32_t page_count) {
    for (uint32_t kind = 0; kind < 2; ++kind) {
        const uint8_t segment = kind == 0 ? top : bottom;
        REQUIRE(slots.slots(segment).size() == page_count);
        std::set<uint32_t> seen;
        for (uint32_t page = 0; page < page_count; ++page) {
            const uint32_t place = slots.slot(page, segment);
            CHECK(slots.slots(segment)[page] == place);
            CHECK((place != MOORAGE_NONE) == (expected.pages[kind].count(page) == 1));
            if (place == MOORAGE_NONE) continue;
            CHECK(place < expected.counts[kind]);
            CHECK(seen.insert(place).second);  // no two pages in one slot
        }
    }
}

}  // namespace

TEST_CASE("without a split an expert is its top segment, whatever is asked") {
    arena slots(/*pages=*/5, /*top_slots=*/2, /*bottom_slots=*/0);
    CHECK_FALSE(slots.split());
    for (const uint8_t segments : {top, bottom, whole}) {
        CAPTURE(segments);
        CHECK(slots.has_room(3, segments));
        slots.take(3, segments);
        CHECK(slots.slot(3, top) < 2);
        CHECK(slots.slot(3, bottom) == MOORAGE_NONE);
        slots.release(3, segments);
        CHECK(slots.slot(3, top) == MOORAGE_NONE);
    }
    slots.take(0, whole);
    slots.take(1, whole);
    CHECK_FALSE(slots.has_room(2, whole));
    CHECK(slots.has_room(0, whole));  // holds one already
    slots.release(0, 0);              // nothing asked, nothing done
    CHECK_FALSE(slots.has_room(2, whole));
    slots.release(0, whole);
    CHECK(slots.has_room(2, whole));
    CHECK(slots.has_room(2, 0));
}

TEST_CASE("split: tops and bottoms come from slots of their own") {
    arena slots(/*pages=*/4, /*top_slots=*/3, /*bottom_slots=*/1);
    CHECK(slots.split());
    CHECK(slots.top_slots() == 3);
    CHECK(slots.bottom_slots() == 1);
    slots.take(0, whole);
    const uint32_t place = slots.slot(0, top);
    CHECK_FALSE(slots.has_room(1, bottom));
    CHECK_FALSE(slots.has_room(1, whole));
    CHECK(slots.has_room(1, top));
    slots.take(1, top);
    slots.release(0, bottom);
    CHECK(slots.slot(0, top) == place);  // the top stays where it is
    CHECK(slots.slot(0, bottom) == MOORAGE_NONE);
    slots.take(1, whole);  // the bottom joins the top it has
    CHECK(slots.slot(1, bottom) == 0);
    slots.take(1, whole);
    CHECK(slots.slot(1, top) != place);
}

TEST_CASE("random takes and releases, against sets of holders") {
    random_stream random(4, 1);
    for (uint32_t round = 0; round < 60; ++round) {
        CAPTURE(round);
        const auto pages = static_cast<uint32_t>(1 + random.below(12));
        holders expected{{static_cast<uint32_t>(1 + random.below(8)),
                          static_cast<uint32_t>(random.below(2) * (1 + random.below(8)))},
                         {}};
        arena slots(pages, expected.counts[0], expected.counts[1]);
        for (uint32_t step = 0; step < 200; ++step) {
            const auto page = static_cast<uint32_t>(random.below(pages));
            const auto segments = static_cast<uint8_t>(random.below(4));
            const bool room = expected.has_room(page, segments);
            REQUIRE(slots.has_room(page, segments) == room);
            if (random.below(2) == 0) {
                slots.release(page, segments);
                for (uint32_t kind = 0; kind < 2; ++kind)
                    if (expected.wants(segments, kind)) expected.pages[kind].erase(page);
            } else if (room) {
                slots.take(page, segments);
                for (uint32_t kind = 0; kind < 2; ++kind)
                    if (expected.wants(segments, kind)) expected.pages[kind].insert(page);
            }
            check_places(slots, expected, pages);
        }
    }
}
