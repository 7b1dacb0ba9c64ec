// ledger_test.cpp - goal: the ledger is true and possible: no row twice, no pool beyond its slots,
// nothing lost. Method: divisions by hand. Random operations, as the stages use them, compared with
// a naive map from page and segment to its place.
#include <doctest/doctest.h>

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "core/base/random.h"
#include "core/store/ledger.h"

namespace ledger_test {

using namespace moorage::core;

TEST_CASE("slots are divided evenly, the first layers get what is left over") {
    CHECK(divide_slots(10, 4, true) == std::vector<uint32_t>{3, 3, 2, 2});
    CHECK(divide_slots(8, 4, true) == std::vector<uint32_t>{2, 2, 2, 2});
    CHECK(divide_slots(3, 4, true) == std::vector<uint32_t>{1, 1, 1, 0});
    CHECK(divide_slots(0, 2, true) == std::vector<uint32_t>{0, 0});
    CHECK(divide_slots(10, 4, false) == std::vector<uint32_t>{10});
}

TEST_CASE("pages belong to the pool of their layer, or all to one") {
    const ledger shared(3, 4, {5}), per_layer(3, 4, {2, 2, 1});
    for (uint32_t page = 0; page < 12; ++page) {
        CHECK(shared.pool_of_page(page) == 0);
        CHECK(per_layer.pool_of_page(page) == page / 4);
    }
    CHECK(per_layer.pools() == 3);
    CHECK(per_layer.page_count() == 12);
}

TEST_CASE("the view follows, and clear keeps the slots") {
    ledger truth(2, 2, {1, 2});
    const moorage_residency *view = truth.view();
    truth.admit(3);
    truth.land(3, MOORAGE_WHOLE);
    CHECK(view->host_state[3] == MOORAGE_WHOLE);
    CHECK(view->host_used[1] == 1);
    CHECK(view->host_slots[0] == 1);
    CHECK(view->host_split[0] == 1.0f);
    CHECK(truth.free_slots(1) == 1);
    truth.set_slots(std::vector<uint32_t>{1, 0});  // a budget took them while one is in use
    CHECK(truth.free_slots(1) == 0);
    CHECK(view->host_slots[1] == 0);
    truth.clear();
    CHECK(view->host_state[3] == 0);
    CHECK(truth.used_slots(1) == 0);
    CHECK(truth.slots(0) == 1);
}

namespace {

enum class segment_state : uint8_t { absent, coming, here };
struct segment_entry {
    segment_state state = segment_state::absent;
    bool passing = false, rows = false;
};
struct page_entry {
    segment_entry part[2];  // top, bottom
    bool kept = false, pinned = false;
    uint8_t version = 0;  // that the last load was of
};
constexpr uint8_t segment_bits[] = {MOORAGE_SEGMENT(0, 2), MOORAGE_SEGMENT(1, 2), MOORAGE_WHOLE};
constexpr uint8_t bit_of(int part) { return segment_bits[part]; }

// The naive book beside the ledger; every verb goes to both.
struct world {
    static constexpr uint32_t layers = 2, experts = 5, rows = 8, frames = 4;
    random_stream random;
    uint32_t top;  // rows of a slot
    std::vector<uint32_t> slots;
    ledger truth;
    std::map<uint32_t, page_entry> naive;

    explicit world(uint64_t seed)
        : random(seed, 1),
          top(random.below(2) ? rows : 1 + static_cast<uint32_t>(random.below(rows - 1))),
          slots(random.below(2) ? std::vector<uint32_t>{4} : std::vector<uint32_t>{1, 3}),
          truth(layers, experts, slots, std::make_unique<arena>(layers, experts, rows, 4, frames)) {
        truth.divide(std::vector<uint32_t>(layers, top));
    }
    bool split() const { return top != rows; }
    uint8_t of_slot() const { return split() ? MOORAGE_SEGMENT(0, 2) : MOORAGE_WHOLE; }
    uint32_t used(uint32_t pool) const {
        uint32_t count = 0;
        for (const auto &[page, entry] : naive)
            count += entry.kept && truth.pool_of_page(page) == pool;
        return count;
    }
    uint8_t segments(const page_entry &entry, auto &&predicate) const {
        return static_cast<uint8_t>((predicate(entry.part[0]) ? MOORAGE_SEGMENT(0, 2) : 0) |
                                    (predicate(entry.part[1]) ? MOORAGE_SEGMENT(1, 2) : 0));
    }
    void set(page_entry &entry, uint8_t mask, auto &&change) {
        for (int part = 0; part < 2; ++part)
            if (mask & bit_of(part)) change(entry.part[part]);
    }
    static void leave(segment_entry &segment) { segment = {}; }

    // Others than `page` that hold rows beside the cache: as many as a buffer has room for.
    uint32_t passing_pages(uint32_t page) const {
        uint32_t count = 0;
        for (const auto &[other_page, entry] : naive) {
            const bool beside = entry.part[1].rows && split();
            count += other_page != page && (beside || (!entry.kept && entry.part[0].rows));
        }
        return count;
    }
    // A random mask; only the whole for unsplit experts.
    uint8_t random_mask() {
        return split() ? segment_bits[random.below(3)] : uint8_t{MOORAGE_WHOLE};
    }
    void keep(uint32_t page, page_entry &entry) {
        entry.kept = true;
        const uint8_t passing = segments(entry, [](auto &segment) { return segment.passing; });
        if (passing & of_slot()) {
            truth.adopt(page);
            set(entry, of_slot(), [](segment_entry &segment) { segment.passing = false; });
            return;
        }
        truth.take_rows(page, of_slot(), true);
        truth.expect_kept(page, of_slot(), next_version(entry));
        set(entry, of_slot(), [](segment_entry &segment) {
            segment = {segment_state::coming, false, true};
        });
    }
    // The version for segments of the page: any, but the present one if some are there already.
    uint8_t next_version(page_entry &entry) {
        if (!has_segments(entry)) entry.version = static_cast<uint8_t>(random.below(3));
        return entry.version;
    }
    bool has_segments(const page_entry &entry) const {
        return segments(entry,
                        [](auto &segment) { return segment.state != segment_state::absent; }) != 0;
    }
    void lose_slot(page_entry &entry) {
        entry.kept = false;
        set(entry, of_slot(), leave);
    }
    // Whether its slot's segments are all absent, or all pass.
    bool may_be_kept(const page_entry &entry) const {
        const uint8_t present =
            segments(entry, [](auto &segment) { return segment.state != segment_state::absent; });
        const uint8_t given_up = segments(entry, [](auto &segment) {
            return segment.rows && segment.state == segment_state::absent;
        });
        return !entry.kept && given_up == 0 &&
               ((present & of_slot()) == 0 || (entry.pinned && (present & of_slot()) == of_slot()));
    }
    std::optional<uint32_t> victim(uint32_t pool) {
        for (uint32_t page = 0; page < truth.page_count(); ++page)
            if (truth.pool_of_page(page) == pool && truth.is_evictable(page)) return page;
        return {};
    }

    void act() {
        const auto page = static_cast<uint32_t>(random.below(truth.page_count()));
        const uint32_t pool = truth.pool_of_page(page);
        page_entry &entry = naive[page];
        const auto known = [](auto &segment) {
            return segment.state != segment_state::absent || segment.rows;
        };
        switch (random.below(8)) {
            case 0:
                if (!entry.pinned) pin(page, entry);
                return;
            case 1:
                if (entry.pinned) unpin(page, entry);
                return;
            case 2:
                if (!may_be_kept(entry) || used(pool) >= truth.slots(pool)) return;
                truth.admit(page);
                return keep(page, entry);
            case 3:  // in the place of another
                if (const auto gone = victim(pool); may_be_kept(entry) && gone && *gone != page) {
                    truth.replace(*gone);
                    lose_slot(naive[*gone]);
                    keep(page, entry);
                }
                return;
            case 4:
                if (!truth.is_evictable(page)) return;
                truth.evict(page);
                return lose_slot(entry);
            case 5: {
                const uint8_t mask = static_cast<uint8_t>(random_mask() & ~segments(entry, known));
                if (mask == 0 || (entry.kept && (mask & of_slot())) ||
                    (entry.kept && !entry.pinned))
                    return;
                if (!split() && mask != MOORAGE_WHOLE) return;
                if (passing_pages(page) >= frames || !truth.has_room(page, mask, false)) return;
                truth.take_rows(page, mask, false);
                truth.expect_passing(page, mask, next_version(entry));
                return set(entry, mask, [](segment_entry &segment) {
                    segment = {segment_state::coming, true, true};
                });
            }
            case 6: {
                const uint8_t mask = segments(
                    entry, [](auto &segment) { return segment.state == segment_state::coming; });
                if (mask == 0) return;
                truth.land(page, mask);
                return set(entry, mask,
                           [](segment_entry &segment) { segment.state = segment_state::here; });
            }
            default:
                return give_up_or_drop(page, entry);
        }
    }
    void pin(uint32_t page, page_entry &entry) {
        const ledger::pin_result found = truth.pin(page);
        const uint8_t resident =
            segments(entry, [](auto &segment) { return segment.state == segment_state::here; });
        const uint8_t present =
            segments(entry, [](auto &segment) { return segment.state != segment_state::absent; });
        CHECK(found.missing == (MOORAGE_WHOLE & ~resident));
        CHECK(found.kept == entry.kept);
        CHECK(found.partly == (resident != MOORAGE_WHOLE && present != 0));
        entry.pinned = true;
    }
    void unpin(uint32_t page, page_entry &entry) {
        if (entry.kept && truth.rows().must_move(page)) {
            const uint64_t row = truth.take_slot(page);
            truth.moved(page);
            CHECK(truth.rows().row_of(page, MOORAGE_SEGMENT(0, 2)) == row);
        }
        truth.unpin(page, entry.kept);
        entry.pinned = false;
        set(entry,
            entry.kept ? static_cast<uint8_t>(MOORAGE_WHOLE & ~of_slot()) : uint8_t{MOORAGE_WHOLE},
            leave);
    }
    // Rows of a page that was given up leave with the step that used it.
    void give_up_or_drop(uint32_t page, page_entry &entry) {
        const uint8_t passing = segments(entry, [](auto &segment) { return segment.passing; });
        const uint8_t coming = segments(entry, [](auto &segment) {
            return segment.passing && segment.state == segment_state::coming;
        });
        if (entry.pinned && coming != 0) {
            truth.give_up(page, coming);
            set(entry, coming, [](segment_entry &segment) {
                segment = {segment_state::absent, false, true};
            });
        } else if (!entry.pinned && passing != 0) {
            truth.drop(page, passing);
            set(entry, passing, leave);
        }
    }

    void check() const {
        std::set<uint64_t> taken;
        for (const auto &element : naive) {
            const uint32_t page = element.first;
            const page_entry &entry = element.second;
            CAPTURE(page);
            const uint32_t resident =
                segments(entry, [](auto &segment) { return segment.state == segment_state::here; });
            const uint32_t coming = segments(
                entry, [](auto &segment) { return segment.state == segment_state::coming; });
            const uint32_t passing = segments(entry, [](auto &segment) { return segment.passing; });
            const uint32_t version = has_segments(entry) ? entry.version : 0;
            REQUIRE(truth.state(page) == (resident | coming << MOORAGE_STATE_IN_FLIGHT_SHIFT |
                                          passing << MOORAGE_STATE_BUFFERED_SHIFT |
                                          version << MOORAGE_STATE_VERSION_SHIFT |
                                          (entry.pinned ? MOORAGE_STATE_PINNED : 0)));
            REQUIRE(truth.version(page) == version);
            REQUIRE(truth.known_segments(page) == (resident | coming));
            REQUIRE(truth.is_evictable(page) ==
                    (entry.kept && !entry.pinned && passing == 0 && (resident | coming) != 0));
            for (int part = 0; part < (split() ? 2 : 1); ++part) {
                const uint64_t row = truth.rows().row_of(page, bit_of(part));
                REQUIRE((row != MOORAGE_NEVER) == entry.part[part].rows);
                if (row == MOORAGE_NEVER) continue;
                const uint32_t count = part == 0 ? top : rows - top;
                REQUIRE(row + count <= truth.rows().rows_total());
                for (uint64_t i = row; i < row + count; ++i) REQUIRE(taken.insert(i).second);
            }
        }
        REQUIRE(truth.is_consistent());
        for (uint32_t pool = 0; pool < truth.pools(); ++pool) {
            REQUIRE(truth.used_slots(pool) == used(pool));
            REQUIRE(truth.used_slots(pool) <= truth.slots(pool));
        }
    }
};

}  // namespace

TEST_CASE("random verbs, against a naive book") {
    for (uint64_t seed = 0; seed < 60; ++seed) {
        CAPTURE(seed);
        world test_world(seed);
        for (int i = 0; i < 400; ++i) {
            test_world.act();
            test_world.check();
        }
    }
}

}  // namespace ledger_test
