// tests_step.cpp - forbidden actions inside a step: allocate, block, read the clock, write
// elsewhere.
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>

#include "core/base/text.h"
#include "core/base/visible.h"
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
    // The child ends here, because later code could make a trapped system call.
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

// All output goes to a file without a name, which must stay empty.
verdict streams_kept(const subject &of) {
    const int file = memfd_create("moorage-output", MFD_CLOEXEC);
    struct stat own {};
    if (file < 0 || fstat(file, &own) != 0) return skipped("there is no file in memory here");
    if (dup2(file, STDOUT_FILENO) < 0 || dup2(file, STDERR_FILENO) < 0)
        return skipped("the streams cannot be replaced here");
    world place(first_world(of));
    auto made = active_actor(of, place);
    if (!made) return failed(made.failure().text);
    driver(**made, place, {.rounds = 4}).run();
    (*made)->deactivate();
    std::fflush(nullptr);
    for (const int stream : {STDOUT_FILENO, STDERR_FILENO}) {
        struct stat now {};
        if (fstat(stream, &now) == 0 && now.st_ino == own.st_ino && now.st_dev == own.st_dev)
            continue;
        return failed(format("standard {} was closed or replaced",
                             stream == STDOUT_FILENO ? "output" : "error"));
    }
    char text[61] = {};
    const ssize_t written = pread(file, text, sizeof(text) - 1, 0);
    if (written <= 0) return passed();
    return failed(
        format("it writes to standard output or error: \"{}\"; results are facts, and "
               "errors are texts",
               core::visible(std::string(text, static_cast<size_t>(written)))));
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
