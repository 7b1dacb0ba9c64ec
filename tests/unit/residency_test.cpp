// residency_test.cpp - goal: slots are divided as evenly as they can be, and the view shows what
// the host changes. Method: divisions worked by hand; the view compared with the changes made
// through the host's side.
#include <doctest/doctest.h>

#include "core/cache/residency.h"

using namespace moorage::core;

TEST_CASE("slots are divided evenly, the first layers get what is left over") {
    CHECK(divide_slots(10, 4, true) == std::vector<uint32_t>{3, 3, 2, 2});
    CHECK(divide_slots(8, 4, true) == std::vector<uint32_t>{2, 2, 2, 2});
    CHECK(divide_slots(3, 4, true) == std::vector<uint32_t>{1, 1, 1, 0});
    CHECK(divide_slots(0, 2, true) == std::vector<uint32_t>{0, 0});
    CHECK(divide_slots(10, 4, false) == std::vector<uint32_t>{10});
}

TEST_CASE("pages belong to the pool of their layer, or all to one") {
    const residency shared(3, 4, {5}), each(3, 4, {2, 2, 1});
    for (uint32_t page = 0; page < 12; ++page) {
        CHECK(shared.pool_of_page(page) == 0);
        CHECK(each.pool_of_page(page) == page / 4);
    }
    CHECK(each.pools() == 3);
    CHECK(each.page_count() == 12);
}

TEST_CASE("only what sits in a slot and is not in use can go") {
    residency truth(1, 8, {4});
    const auto set = [&](uint32_t page, uint32_t state) {
        truth.states()[page] = static_cast<uint8_t>(state);
    };
    // base.h: bits 0-1 resident, 2-3 in flight, 4 pinned, 5 buffered.
    set(1, MOORAGE_WHOLE);
    set(2, MOORAGE_TOP);
    set(3, MOORAGE_WHOLE << MOORAGE_STATE_IN_FLIGHT_SHIFT);
    set(4, 0x03 | 0x10);
    set(5, MOORAGE_STATE_PINNED);
    set(6, 0x03 | 0x20);
    set(7, 0x0c | 0x10);
    const bool expected[8] = {false, true, true, true, false, false, false, false};
    for (uint32_t page = 0; page < 8; ++page) CHECK(truth.evictable(page) == expected[page]);
}

TEST_CASE("the view follows, and clear keeps the slots") {
    residency truth(2, 2, {1, 2});
    const moorage_residency *view = truth.view();
    truth.states()[3] = MOORAGE_WHOLE;
    truth.used_all()[1] = 1;
    CHECK(view->host_state[3] == MOORAGE_WHOLE);
    CHECK(view->host_used[1] == 1);
    CHECK(view->host_slots[0] == 1);
    CHECK(view->host_split[0] == 1.0f);
    CHECK(truth.free(1) == 1);
    truth.slots_all()[1] = 0;  // a budget took them while one is in use
    CHECK(truth.free(1) == 0);
    CHECK(view->host_slots[1] == 0);
    truth.clear();
    CHECK(view->host_state[3] == 0);
    CHECK(truth.used(1) == 0);
    CHECK(truth.slots(0) == 1);
}
