// tests_repeat.cpp - equal inputs give equal decisions: repeated, on other threads, after reset, in
// replay.
#include <algorithm>

#include "core/base/text.h"
#include "core/store/ledger.h"
#include "tools/moorage/check/tests.h"

namespace moorage::check {

using core::format;

namespace {

verdict equal(const std::vector<uint32_t> &a, const std::vector<uint32_t> &b, const char *label) {
    if (a == b) return passed();
    const auto position = std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin();
    return failed(format("{}: decision {} of {} differs", label, position, a.size()));
}

}  // namespace

verdict determinism_same_seed(const test_input &input) {
    for (const world_options &o : usual_worlds(input)) {
        world first(o), second(o);
        auto first_instance = active_actor(input, first);
        if (!first_instance) return failed(first_instance.failure().text);
        driver first_run(**first_instance, first, {});
        first_run.run();
        // A day later, while the first is still alive.
        shift_clock(86'400);
        auto second_instance = active_actor(input, second);
        if (!second_instance) return failed(second_instance.failure().text);
        driver second_run(**second_instance, second, {});
        second_run.run();
        if (verdict v =
                equal(first_run.decisions(), second_run.decisions(), "two runs of one seed");
            v.result != outcome::passed)
            return v;
    }
    return passed();
}

verdict determinism_thread_move(const test_input &input) {
    const world_options o = usual_worlds(input)[0];
    world first(o), second(o);
    auto first_instance = active_actor(input, first), second_instance = active_actor(input, second);
    if (!first_instance || !second_instance)
        return failed((first_instance ? second_instance : first_instance).failure().text);
    mover threads;
    driver unmoved(**first_instance, first, {}),
        moved(**second_instance, second, {.threads = &threads});
    unmoved.run();
    moved.run();
    return equal(unmoved.decisions(), moved.decisions(), "steps that change threads");
}

verdict reset_equals_new(const test_input &input) {
    for (const world_options &o : usual_worlds(input)) {
        world first(o), second(o);
        auto fresh = active_actor(input, first), used = active_actor(input, second);
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
