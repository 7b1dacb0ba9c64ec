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

verdict no_allocation_in_step(const test_input &input) {
    if (!can_watch()) return skipped("memory is not watched in this build");
    for (const world_options &o : usual_worlds(input)) {
        world test_world(o);
        auto instance = active_actor(input, test_world);
        if (!instance) return failed(instance.failure().text);
        driver policy_driver(**instance, test_world, {.watch = true});
        policy_driver.run();
        if (const activity &seen = policy_driver.watched(); seen.allocations + seen.frees > 0)
            return failed(format(
                "{} allocations and {} frees inside steps, the last in {}; allocate in activate",
                seen.allocations, seen.frees, policy_driver.allocating_call()));
    }
    return passed();
}

verdict no_block_in_step(const test_input &input) {
    const auto worlds = usual_worlds(input);
    std::vector<std::unique_ptr<world>> test_worlds;
    std::vector<std::unique_ptr<actor>> actors;
    std::vector<std::unique_ptr<driver>> drivers;
    for (const world_options &o : worlds) {
        test_worlds.push_back(std::make_unique<world>(o));
        auto instance = active_actor(input, *test_worlds.back());
        if (!instance) return failed(instance.failure().text);
        actors.push_back(std::move(instance).value());
        drivers.push_back(std::make_unique<driver>(*actors.back(), *test_worlds.back(),
                                                   drive_options{.steps_only = true}));
    }
    if (!can_watch()) return skipped("a sanitizer makes system calls of its own");
    if (!forbid_blocking_calls()) return skipped("the kernel allows no seccomp filter here");
    for (const auto &run : drivers) run->run();
    // The child ends here, because later code could make a trapped system call.
    end_child(outcome::passed, "");
}

verdict reads_wall_clock(const test_input &input) {
    if (!can_watch()) return skipped("the clock is not watched in this build");
    world test_world(first_world(input));
    auto instance = active_actor(input, test_world);
    if (!instance) return failed(instance.failure().text);
    driver policy_driver(**instance, test_world, {.watch = true});
    policy_driver.run();
    if (policy_driver.watched().clock_reads == 0) return passed();
    return warned(format(
        "{} reads of the system's clock inside steps, the last in {}; use the host's clock service",
        policy_driver.watched().clock_reads, policy_driver.clock_call()));
}

verdict output_canaries(const test_input &input) {
    for (const world_options &o : usual_worlds(input)) {
        world test_world(o);
        auto instance = active_actor(input, test_world);
        if (!instance) return failed(instance.failure().text);
        driver policy_driver(**instance, test_world, {.check_fences = true, .rounds = 16});
        policy_driver.run();
        if (policy_driver.found(fault::canary).count)
            return failed(policy_driver.found(fault::canary).first_text);
    }
    return passed();
}

verdict surroundings_kept(const test_input &input) {
    for (const world_options &o : usual_worlds(input)) {
        world test_world(o);
        auto instance = active_actor(input, test_world);
        if (!instance) return failed(instance.failure().text);
        driver policy_driver(**instance, test_world, {.check_surroundings = true, .rounds = 4});
        policy_driver.run();
        const finding &changed = policy_driver.found(fault::surroundings);
        if (changed.count) return failed(changed.first_text);
    }
    return passed();
}

// All output goes to a file without a name, which must stay empty.
verdict streams_kept(const test_input &input) {
    const int file = memfd_create("moorage-output", MFD_CLOEXEC);
    struct stat file_state {};
    if (file < 0 || fstat(file, &file_state) != 0)
        return skipped("there is no file in memory here");
    if (dup2(file, STDOUT_FILENO) < 0 || dup2(file, STDERR_FILENO) < 0)
        return skipped("the streams cannot be replaced here");
    world test_world(first_world(input));
    auto instance = active_actor(input, test_world);
    if (!instance) return failed(instance.failure().text);
    driver(**instance, test_world, {.rounds = 4}).run();
    (*instance)->deactivate();
    std::fflush(nullptr);
    for (const int stream : {STDOUT_FILENO, STDERR_FILENO}) {
        struct stat stream_state {};
        if (fstat(stream, &stream_state) == 0 && stream_state.st_ino == file_state.st_ino &&
            stream_state.st_dev == file_state.st_dev)
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

verdict inputs_left_alone(const test_input &input) {
    for (const world_options &o : usual_worlds(input)) {
        world test_world(o);
        auto instance = active_actor(input, test_world);
        if (!instance) return failed(instance.failure().text);
        driver policy_driver(**instance, test_world, {.check_inputs = true, .rounds = 8});
        policy_driver.run();
        if (policy_driver.found(fault::input).count)
            return failed(policy_driver.found(fault::input).first_text);
    }
    return passed();
}

}  // namespace moorage::check
