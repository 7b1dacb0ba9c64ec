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
    const ledger shared(3, 4, {5}), each(3, 4, {2, 2, 1});
    for (uint32_t page = 0; page < 12; ++page) {
        CHECK(shared.pool_of_page(page) == 0);
        CHECK(each.pool_of_page(page) == page / 4);
    }
    CHECK(each.pools() == 3);
    CHECK(each.page_count() == 12);
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
    CHECK(truth.free(1) == 1);
    truth.set_slots(std::vector<uint32_t>{1, 0});  // a budget took them while one is in use
    CHECK(truth.free(1) == 0);
    CHECK(view->host_slots[1] == 0);
    truth.clear();
    CHECK(view->host_state[3] == 0);
    CHECK(truth.used(1) == 0);
    CHECK(truth.slots(0) == 1);
}

namespace {

enum class stand : uint8_t { absent, coming, here };
struct segment_entry {
    stand at = stand::absent;
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
    uint8_t segments(const page_entry &of, auto &&which) const {
        return static_cast<uint8_t>((which(of.part[0]) ? MOORAGE_SEGMENT(0, 2) : 0) |
                                    (which(of.part[1]) ? MOORAGE_SEGMENT(1, 2) : 0));
    }
    void set(page_entry &of, uint8_t mask, auto &&change) {
        for (int part = 0; part < 2; ++part)
            if (mask & bit_of(part)) change(of.part[part]);
    }
    static void leave(segment_entry &one) { one = {}; }

    // Others than `page` that hold rows beside the cache: as many as a buffer has room for.
    uint32_t passing_pages(uint32_t page) const {
        uint32_t count = 0;
        for (const auto &[other, of] : naive) {
            const bool beside = of.part[1].rows && split();
            count += other != page && (beside || (!of.kept && of.part[0].rows));
        }
        return count;
    }
    // A random mask; only the whole for unsplit experts.
    uint8_t some() { return split() ? segment_bits[random.below(3)] : uint8_t{MOORAGE_WHOLE}; }
    void keep(uint32_t page, page_entry &of) {
        of.kept = true;
        const uint8_t passing = segments(of, [](auto &one) { return one.passing; });
        if (passing & of_slot()) {
            truth.adopt(page);
            set(of, of_slot(), [](segment_entry &one) { one.passing = false; });
            return;
        }
        truth.take_rows(page, of_slot(), true);
        truth.expect_kept(page, of_slot(), next_version(of));
        set(of, of_slot(), [](segment_entry &one) { one = {stand::coming, false, true}; });
    }
    // The version for segments of the page: any, but the present one if some are there already.
    uint8_t next_version(page_entry &of) {
        if (!there(of)) of.version = static_cast<uint8_t>(random.below(3));
        return of.version;
    }
    bool there(const page_entry &of) const {
        return segments(of, [](auto &one) { return one.at != stand::absent; }) != 0;
    }
    void lose_slot(page_entry &of) {
        of.kept = false;
        set(of, of_slot(), leave);
    }
    // Whether its slot's segments are all absent, or all pass.
    bool may_be_kept(const page_entry &of) const {
        const uint8_t there = segments(of, [](auto &one) { return one.at != stand::absent; });
        const uint8_t given_up =
            segments(of, [](auto &one) { return one.rows && one.at == stand::absent; });
        return !of.kept && given_up == 0 &&
               ((there & of_slot()) == 0 || (of.pinned && (there & of_slot()) == of_slot()));
    }
    std::optional<uint32_t> victim(uint32_t pool) {
        for (uint32_t page = 0; page < truth.page_count(); ++page)
            if (truth.pool_of_page(page) == pool && truth.evictable(page)) return page;
        return {};
    }

    void act() {
        const auto page = static_cast<uint32_t>(random.below(truth.page_count()));
        const uint32_t pool = truth.pool_of_page(page);
        page_entry &of = naive[page];
        const auto known = [](auto &one) { return one.at != stand::absent || one.rows; };
        switch (random.below(8)) {
            case 0:
                if (!of.pinned) pin(page, of);
                return;
            case 1:
                if (of.pinned) unpin(page, of);
                return;
            case 2:
                if (!may_be_kept(of) || used(pool) >= truth.slots(pool)) return;
                truth.admit(page);
                return keep(page, of);
            case 3:  // in the place of another
                if (const auto gone = victim(pool); may_be_kept(of) && gone && *gone != page) {
                    truth.replace(*gone);
                    lose_slot(naive[*gone]);
                    keep(page, of);
                }
                return;
            case 4:
                if (!truth.evictable(page)) return;
                truth.evict(page);
                return lose_slot(of);
            case 5: {
                const uint8_t mask = static_cast<uint8_t>(some() & ~segments(of, known));
                if (mask == 0 || (of.kept && (mask & of_slot())) || (of.kept && !of.pinned)) return;
                if (!split() && mask != MOORAGE_WHOLE) return;
                if (passing_pages(page) >= frames || !truth.has_room(page, mask, false)) return;
                truth.take_rows(page, mask, false);
                truth.expect_passing(page, mask, next_version(of));
                return set(of, mask, [](segment_entry &one) { one = {stand::coming, true, true}; });
            }
            case 6: {
                const uint8_t mask =
                    segments(of, [](auto &one) { return one.at == stand::coming; });
                if (mask == 0) return;
                truth.land(page, mask);
                return set(of, mask, [](segment_entry &one) { one.at = stand::here; });
            }
            default:
                return give_up_or_drop(page, of);
        }
    }
    void pin(uint32_t page, page_entry &of) {
        const ledger::found found = truth.pin(page);
        const uint8_t here = segments(of, [](auto &one) { return one.at == stand::here; });
        const uint8_t there = segments(of, [](auto &one) { return one.at != stand::absent; });
        CHECK(found.missing == (MOORAGE_WHOLE & ~here));
        CHECK(found.kept == of.kept);
        CHECK(found.partly == (here != MOORAGE_WHOLE && there != 0));
        of.pinned = true;
    }
    void unpin(uint32_t page, page_entry &of) {
        if (of.kept && truth.rows().must_move(page)) {
            const uint64_t to = truth.take_slot(page);
            truth.moved(page);
            CHECK(truth.rows().row_of(page, MOORAGE_SEGMENT(0, 2)) == to);
        }
        truth.unpin(page, of.kept);
        of.pinned = false;
        set(of, of.kept ? static_cast<uint8_t>(MOORAGE_WHOLE & ~of_slot()) : uint8_t{MOORAGE_WHOLE},
            leave);
    }
    // Rows of a page that was given up leave with the step that used it.
    void give_up_or_drop(uint32_t page, page_entry &of) {
        const uint8_t passing = segments(of, [](auto &one) { return one.passing; });
        const uint8_t coming =
            segments(of, [](auto &one) { return one.passing && one.at == stand::coming; });
        if (of.pinned && coming != 0) {
            truth.give_up(page, coming);
            set(of, coming, [](segment_entry &one) { one = {stand::absent, false, true}; });
        } else if (!of.pinned && passing != 0) {
            truth.drop(page, passing);
            set(of, passing, leave);
        }
    }

    void check() const {
        std::set<uint64_t> taken;
        for (const auto &one : naive) {
            const uint32_t page = one.first;
            const page_entry &of = one.second;
            CAPTURE(page);
            const uint32_t here = segments(of, [](auto &one) { return one.at == stand::here; });
            const uint32_t coming = segments(of, [](auto &one) { return one.at == stand::coming; });
            const uint32_t passing = segments(of, [](auto &one) { return one.passing; });
            const uint32_t version = there(of) ? of.version : 0;
            REQUIRE(truth.state(page) == (here | coming << MOORAGE_STATE_IN_FLIGHT_SHIFT |
                                          passing << MOORAGE_STATE_BUFFERED_SHIFT |
                                          version << MOORAGE_STATE_VERSION_SHIFT |
                                          (of.pinned ? MOORAGE_STATE_PINNED : 0)));
            REQUIRE(truth.version(page) == version);
            REQUIRE(truth.known(page) == (here | coming));
            REQUIRE(truth.evictable(page) ==
                    (of.kept && !of.pinned && passing == 0 && (here | coming) != 0));
            for (int part = 0; part < (split() ? 2 : 1); ++part) {
                const uint64_t row = truth.rows().row_of(page, bit_of(part));
                REQUIRE((row != MOORAGE_NEVER) == of.part[part].rows);
                if (row == MOORAGE_NEVER) continue;
                const uint32_t count = part == 0 ? top : rows - top;
                REQUIRE(row + count <= truth.rows().rows_total());
                for (uint64_t i = row; i < row + count; ++i) REQUIRE(taken.insert(i).second);
            }
        }
        REQUIRE(truth.adds_up());
        for (uint32_t pool = 0; pool < truth.pools(); ++pool) {
            REQUIRE(truth.used(pool) == used(pool));
            REQUIRE(truth.used(pool) <= truth.slots(pool));
        }
    }
};

}  // namespace

TEST_CASE("random verbs, against a naive book") {
    for (uint64_t seed = 0; seed < 60; ++seed) {
        CAPTURE(seed);
        world all(seed);
        for (int i = 0; i < 400; ++i) {
            all.act();
            all.check();
        }
    }
}

}  // namespace ledger_test
