// migration_debt_test.cpp - goal: experts that move delay calls by no more than the allowed share,
// and still move. Method: calls and ranges by hand, in whole milliseconds. On a random link, every
// range delays the call beside it; compare with a sum made here.
#include "tools/node/migration_debt.h"

#include <doctest/doctest.h>

#include <limits>

#include "core/base/random.h"

namespace migration_debt_test {

using namespace moorage::core;

namespace {

constexpr uint64_t ms = 1'000'000;

// Eight calls of a millisecond each, one after the other, from 1 ms on.
migration_debt after_eight(double share) {
    migration_debt debt(share);
    for (uint64_t i = 1; i <= 8; ++i) debt.add_call(4, i * ms, (i + 1) * ms, ms);
    return debt;
}

}  // namespace

TEST_CASE("by hand: what a call took longer is paid for before the next range") {
    migration_debt debt = after_eight(0.1);
    CHECK(debt.next_range_ns() == 0);
    CHECK(debt.busy_ns() == 8 * ms);
    // A call of 3 ms beside a range: 2 ms more. Calls of 9 ms allow 0.9 ms; another 11 ms pay for
    // the other 1.1 ms.
    debt.begin_range(10 * ms);
    debt.add_call(4, 10 * ms, 13 * ms, 3 * ms);
    debt.end_range(13 * ms);
    CHECK(debt.delayed_ns() == 2 * ms);
    CHECK(debt.busy_ns() == 9 * ms);
    CHECK(debt.next_range_ns() / 1000 == 24 * ms / 1000);
    // Another ten without a range allow for one more.
    for (uint64_t i = 20; i < 30; ++i) debt.add_call(4, i * ms, (i + 1) * ms, ms);
    CHECK(debt.busy_ns() == 19 * ms);
    CHECK(debt.next_range_ns() / 1000 == 31 * ms / 1000);  // 0.1 ms above: 1 ms after the last
    debt.add_call(4, 30 * ms, 31 * ms, ms);
    CHECK(debt.next_range_ns() == 0);
}

TEST_CASE("a call counts as beside a range from when it is sent until it is back") {
    for (const bool sent_before : {false, true}) {
        migration_debt debt = after_eight(0.1);
        debt.begin_range(12 * ms);
        debt.end_range(14 * ms);
        debt.add_call(4, sent_before ? 13 * ms : 14 * ms, 20 * ms, 6 * ms);
        CHECK(debt.delayed_ns() == (sent_before ? 5 * ms : 0));
    }
    // A range that this node sends counts as under way for as long as the one before took, at first
    // for 20 ms.
    migration_debt debt = after_eight(0.1);
    debt.note_given_range(100 * ms);
    debt.add_call(4, 119 * ms, 121 * ms, 2 * ms);
    CHECK(debt.delayed_ns() == ms);
    debt.add_call(4, 120 * ms, 121 * ms, ms);
    CHECK(debt.busy_ns() == 10 * ms);
    debt.note_given_range(200 * ms);
    debt.note_given_range(203 * ms);  // it took 3 ms at most
    debt.add_call(4, 206 * ms, 207 * ms, 9 * ms);
    CHECK(debt.delayed_ns() == ms);
}

TEST_CASE("calls that are faster than expected pay, and what is unknown is learnt first") {
    migration_debt debt = after_eight(0.5);
    debt.begin_range(9 * ms);
    debt.add_call(4, 10 * ms, 12 * ms, 2 * ms);
    CHECK(debt.delayed_ns() == ms);
    debt.add_call(4, 12 * ms, 12 * ms + ms / 2, ms / 2);
    CHECK(debt.delayed_ns() == ms / 2);
    debt.add_call(4, 13 * ms, 13 * ms, 0);
    CHECK(debt.delayed_ns() == 0);  // not below

    migration_debt fresh(0.1);
    CHECK(fresh.next_range_ns() == 0);  // nobody calls
    fresh.add_call(4, ms, 2 * ms, ms);
    CHECK(fresh.next_range_ns() == 2 * ms + migration_debt::learns_ns);
    migration_debt none(std::numeric_limits<double>::infinity());
    none.add_call(4, ms, 2 * ms, ms);
    CHECK(none.next_range_ns() == 0);
}

TEST_CASE("drawn: the delay of calls stays below the share and one range") {
    for (uint64_t seed = 1; seed <= 20; ++seed) {
        CAPTURE(seed);
        random_stream draw(seed, 1);
        const double share = 0.02 + 0.1 * static_cast<double>(draw.below(5));
        const uint64_t range_ns = ms + draw.below(4 * ms), call_ns = ms / 4 + draw.below(ms);
        migration_debt debt(share);
        uint64_t now_ns = ms, busy_ns = 0, delayed_ns = 0, ranges = 0, idle_ns = 0;
        for (int i = 0; i < 3000; ++i) {
            // A call, beside a range if one may begin.
            const bool moves = now_ns >= debt.next_range_ns();
            if (moves) debt.begin_range(now_ns), ++ranges;
            const uint64_t took_ns = call_ns + (moves ? range_ns : 0);
            debt.add_call(3, now_ns, now_ns + took_ns, took_ns);
            if (moves) debt.end_range(now_ns + took_ns), delayed_ns += range_ns;
            busy_ns += call_ns;
            now_ns += took_ns;
            if (draw.below(50) == 0) {
                const uint64_t pause_ns = draw.below(100 * ms);
                now_ns += pause_ns, idle_ns += pause_ns;
            }
        }
        const auto allowed_ns = share * static_cast<double>(busy_ns + idle_ns + delayed_ns);
        CHECK(static_cast<double>(delayed_ns) <= allowed_ns + static_cast<double>(range_ns));
        CHECK(ranges > 2);
    }
}

}  // namespace migration_debt_test
