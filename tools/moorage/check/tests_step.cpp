// tests_step.cpp - what a policy may not do inside a step: allocate, block, look at the clock,
// write astray.
#include "core/base/text.h"
#include "tools/moorage/check/system_calls.h"
#include "tools/moorage/check/tests.h"

namespace moorage::check {

using core::format;

verdict no_allocation_in_step(const subject &of) {
    if (!can_watch()) return skipped("memory is not watched in this build");
    for (const world_options &o : usual_worlds(of)) {
        world place(o);
        auto made = active_actor(of, place);
        if (!made) return failed(made.failure().text);
        driver run(**made, place, {.watch = true});
        run.run();
        if (const activity &seen = run.watched(); seen.allocations + seen.frees > 0)
            return failed(format(
                "{} allocations and {} frees inside steps, the last in {}; allocate in activate",
                seen.allocations, seen.frees, run.allocating_call()));
    }
    return passed();
}

verdict no_block_in_step(const subject &of) {
    const auto worlds = usual_worlds(of);
    std::vector<std::unique_ptr<world>> places;
    std::vector<std::unique_ptr<actor>> actors;
    std::vector<std::unique_ptr<driver>> drivers;
    for (const world_options &o : worlds) {
        places.push_back(std::make_unique<world>(o));
        auto made = active_actor(of, *places.back());
        if (!made) return failed(made.failure().text);
        actors.push_back(std::move(made).value());
        drivers.push_back(std::make_unique<driver>(*actors.back(), *places.back(),
                                                   drive_options{.steps_only = true}));
    }
    if (!can_watch()) return skipped("a sanitizer makes system calls of its own");
    if (!forbid_blocking_calls()) return skipped("the kernel allows no seccomp filter here");
    for (const auto &run : drivers) run->run();
    // Nothing that follows may make a system call that is trapped, so the child ends here.
    end_child(outcome::passed, "");
}

verdict reads_wall_clock(const subject &of) {
    if (!can_watch()) return skipped("the clock is not watched in this build");
    world place(first_world(of));
    auto made = active_actor(of, place);
    if (!made) return failed(made.failure().text);
    driver run(**made, place, {.watch = true});
    run.run();
    if (run.watched().clock_reads == 0) return passed();
    return warned(format(
        "{} reads of the system's clock inside steps, the last in {}; use the host's clock service",
        run.watched().clock_reads, run.clock_call()));
}

verdict output_canaries(const subject &of) {
    for (const world_options &o : usual_worlds(of)) {
        world place(o);
        auto made = active_actor(of, place);
        if (!made) return failed(made.failure().text);
        driver run(**made, place, {.check_fences = true, .rounds = 16});
        run.run();
        if (run.found(fault::canary).count) return failed(run.found(fault::canary).first);
    }
    return passed();
}

verdict surroundings_kept(const subject &of) {
    for (const world_options &o : usual_worlds(of)) {
        world place(o);
        auto made = active_actor(of, place);
        if (!made) return failed(made.failure().text);
        driver run(**made, place, {.check_surroundings = true, .rounds = 4});
        run.run();
        const finding &changed = run.found(fault::surroundings);
        if (changed.count) return failed(changed.first);
    }
    return passed();
}

verdict inputs_left_alone(const subject &of) {
    for (const world_options &o : usual_worlds(of)) {
        world place(o);
        auto made = active_actor(of, place);
        if (!made) return failed(made.failure().text);
        driver run(**made, place, {.check_inputs = true, .rounds = 8});
        run.run();
        if (run.found(fault::input).count) return failed(run.found(fault::input).first);
    }
    return passed();
}

}  // namespace moorage::check
