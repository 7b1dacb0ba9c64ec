// memories_test.cpp - goal: each page lies on one device, devices get their shares, and the view of
// all agrees with each ledger. Method: spreads by hand and compared with their bounds; random
// operations on three unequal ledgers, after each of which the sums are counted anew.
#include <doctest/doctest.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <vector>

#include "core/base/random.h"
#include "core/store/memories.h"

namespace memories_test {

using namespace moorage::core;

using bytes = std::vector<uint8_t>;
using counts = std::vector<uint32_t>;

TEST_CASE("pages are dealt out in proportion to the slots") {
    CHECK(spread_pages(1, 6, counts{2, 2}, false) == bytes{0, 1, 0, 1, 0, 1});
    // Due after each page of three: 2/3 and 1/3 of it, to whom most is missing.
    CHECK(spread_pages(1, 6, counts{4, 2}, false) == bytes{0, 1, 0, 0, 1, 0});
    CHECK(spread_pages(2, 3, counts{3, 3}, false) == bytes{0, 1, 0, 1, 0, 1});
    CHECK(spread_pages(4, 2, counts{3, 1}, true) == bytes{0, 0, 0, 0, 1, 1, 0, 0});
    CHECK(spread_pages(1, 3, counts{5}, false) == bytes{0, 0, 0});
}

TEST_CASE("no device gets more than its share rounded up, so what fits fits on each") {
    random_stream draws(3, 0);
    for (int round = 0; round < 200; ++round) {
        counts slots(1 + draws.below(4));
        for (uint32_t &count : slots) count = 1 + static_cast<uint32_t>(draws.below(40));
        const auto total_slots = std::accumulate(slots.begin(), slots.end(), uint64_t{0});
        const uint32_t layers = 1 + static_cast<uint32_t>(draws.below(5));
        const uint32_t experts = 1 + static_cast<uint32_t>(draws.below(20));
        const bytes spread = spread_pages(layers, experts, slots, false);
        REQUIRE(spread.size() == layers * experts);
        for (uint32_t device = 0; device < slots.size(); ++device) {
            const auto page_count = static_cast<uint64_t>(std::ranges::count(spread, device));
            const uint64_t due = uint64_t{slots[device]} * spread.size();
            CHECK(page_count <= (due + total_slots - 1) / total_slots);
        }
    }
}

TEST_CASE("one device: its ledger is all there is") {
    ledger only(2, 3, {4});
    const memories truth(&only);
    CHECK(truth.devices() == 1);
    CHECK(truth.device_of(5) == 0);
    CHECK(&truth.ledger_of_page(5) == &only);
    CHECK(&truth.combined_ledger() == &only);
}

TEST_CASE("the view of all follows each device") {
    ledger first(1, 4, {2}), second(1, 4, {1}), combined(1, 4, {0});
    const memories truth({&first, &second}, &combined, {0, 1, 0, 1});
    const moorage_residency *view = combined.view();
    CHECK(view->host_slots[0] == 3);
    truth.ledger_of_page(3).admit(3);
    truth.ledger_of_page(3).expect_kept(3, MOORAGE_WHOLE);
    truth.ledger_of_page(0).pin(0);
    CHECK(combined.state(3) == second.state(3));
    CHECK(combined.known_segments(3) == MOORAGE_WHOLE);
    CHECK(first.state(3) == 0);  // the view of the first one's cache policy
    CHECK(second.state(0) == 0);
    CHECK(combined.is_pinned(0));
    CHECK(second.owns(3));
    CHECK(!first.owns(3));
    CHECK(!first.is_evictable(3));  // so its policy cannot name it
    CHECK(view->host_used[0] == 1);
    first.set_slots(counts{5});
    CHECK(view->host_slots[0] == 6);
    second.evict(3);
    CHECK(view->host_used[0] == 0);
    CHECK(combined.state(3) == 0);
    CHECK(truth.is_consistent());
}

TEST_CASE("random verbs on three devices add up after each") {
    const uint32_t layers = 3, experts = 7;
    std::vector<std::unique_ptr<ledger>> owned_ledgers;
    std::vector<ledger *> device_ledgers;
    const counts slots{9, 4, 5};
    for (const uint32_t room : slots) {
        owned_ledgers.push_back(std::make_unique<ledger>(
            layers, experts, divide_slots(room, layers, /*per_layer=*/true)));
        device_ledgers.push_back(owned_ledgers.back().get());
    }
    ledger combined(layers, experts, counts(layers, 0));
    const memories truth(device_ledgers, &combined, spread_pages(layers, experts, slots, false));
    random_stream draws(7, 0);
    for (int round = 0; round < 3000; ++round) {
        const auto page = static_cast<uint32_t>(draws.below(layers * experts));
        ledger &book = truth.ledger_of_page(page);
        const uint32_t pool = book.pool_of_page(page);
        switch (draws.below(5)) {
            case 0:
                if (book.known_segments(page) != 0 || book.free_slots(pool) == 0) break;
                book.admit(page);
                book.expect_kept(page, MOORAGE_WHOLE);
                break;
            case 1:
                if ((book.known_segments(page) & ~book.resident_segments(page)) != 0)
                    book.land(page, MOORAGE_WHOLE);
                break;
            case 2:
                if (book.is_evictable(page)) book.evict(page);
                break;
            case 3:
                book.pin(page);
                break;
            default:
                book.unpin(page, book.known_segments(page) != 0);
        }
        REQUIRE(truth.is_consistent());
        for (uint32_t device = 0; device < truth.devices(); ++device)
            if (device != truth.device_of(page))
                REQUIRE(truth.ledger_of_device(device).state(page) == 0);
    }
}

}  // namespace memories_test
