// tests_repeat.cpp - equal inputs give equal decisions: repeated, on other threads, after reset, in
// replay.
#include <algorithm>

#include "core/base/text.h"
#include "core/store/ledger.h"
#include "tools/moorage/check/tests.h"

namespace moorage::check {

using core::format;

namespace {

verdict equal(const std::vector<uint32_t> &a, const std::vector<uint32_t> &b, const char *what) {
    if (a == b) return passed();
    const auto at = std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin();
    return failed(format("{}: decision {} of {} differs", what, at, a.size()));
}

}  // namespace

verdict determinism_same_seed(const subject &of) {
    for (const world_options &o : usual_worlds(of)) {
        world first(o), second(o);
        auto one = active_actor(of, first);
        if (!one) return failed(one.failure().text);
        driver before(**one, first, {});
        before.run();
        // A day later, while the first is still alive.
        shift_clock(86'400);
        auto two = active_actor(of, second);
        if (!two) return failed(two.failure().text);
        driver after(**two, second, {});
        after.run();
        if (verdict v = equal(before.decisions(), after.decisions(), "two runs of one seed");
            v.result != outcome::passed)
            return v;
    }
    return passed();
}

verdict determinism_thread_move(const subject &of) {
    const world_options o = usual_worlds(of)[0];
    world first(o), second(o);
    auto one = active_actor(of, first), two = active_actor(of, second);
    if (!one || !two) return failed((one ? two : one).failure().text);
    mover threads;
    driver still(**one, first, {}), moved(**two, second, {.threads = &threads});
    still.run();
    moved.run();
    return equal(still.decisions(), moved.decisions(), "steps that change threads");
}

verdict reset_equals_new(const subject &of) {
    for (const world_options &o : usual_worlds(of)) {
        world first(o), second(o);
        auto fresh = active_actor(of, first), used = active_actor(of, second);
        if (!fresh || !used) return failed((fresh ? used : fresh).failure().text);
        driver expected(**fresh, first, {});
        expected.run();
        second.restart(o.seed + 1000);
        driver(**used, second, {.rounds = 19}).run();
        second.restart(o.seed);
        (*used)->reset();
        driver again(**used, second, {});
        again.run();
        if (verdict v = equal(expected.decisions(), again.decisions(), "after reset");
            v.result != outcome::passed)
            return v;
    }
    return passed();
}

}  // namespace moorage::check
