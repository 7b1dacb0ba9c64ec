// tests_life.cpp - create, activate with every kind of limits, reset, deactivate, destroy.
#include <cstring>

#include "core/base/text.h"
#include "core/host/library.h"
#include "core/host/services.h"
#include "tools/moorage/check/tests.h"

namespace moorage::check {

using core::format;

world_options first_world(const test_input &input) {
    world_options o;
    o.seed = input.seed;
    return o;
}

std::vector<world_options> usual_worlds(const test_input &input) {
    const uint32_t needs = input.policy->descriptor->needs;
    const bool needs_no_extras =
        (needs & (MOORAGE_NEEDS_GATE_SCORES | MOORAGE_NEEDS_WEIGHTS | MOORAGE_NEEDS_PREDICTIONS)) ==
        0;
    std::vector<world_options> worlds(8, first_world(input));
    worlds[1].per_layer = true, worlds[1].slots = 14;
    worlds[2].slots = 1;  // fewer than a step's experts
    worlds[3].per_layer = true, worlds[3].slots = 5, worlds[3].top_k = 4;
    worlds[4].batch = 3, worlds[4].prefill = 9, worlds[4].slots = 13;
    worlds[5].two_segments = true, worlds[5].servers = 3, worlds[5].buffer_slots = 6;
    worlds[6].extras = !needs_no_extras, worlds[6].disturb = false, worlds[6].links = 1;
    worlds[7].layers = 7, worlds[7].experts = 33, worlds[7].top_k = 6, worlds[7].slots = 90;
    for (size_t i = 0; i < worlds.size(); ++i) worlds[i].seed = input.seed + i;
    return worlds;
}

core::result<std::unique_ptr<actor>> active_actor(const test_input &input, world &test_world) {
    auto instance = hosted_actor(*input.policy, input.params, test_world.environment());
    if (!instance) return instance.failure();
    if (auto active = (*instance)->activate(test_world.limits); !active) return active.failure();
    return instance;
}

verdict life_cycle(const test_input &input) {
    world test_world(first_world(input));
    auto instance = active_actor(input, test_world);
    if (!instance) return failed(instance.failure().text);
    driver(**instance, test_world, {.rounds = 12}).run();
    test_world.restart(input.seed + 1);
    (*instance)->reset();
    driver(**instance, test_world, {.rounds = 12}).run();
    (*instance)->deactivate();
    test_world.restart(input.seed);
    if (auto again = (*instance)->activate(test_world.limits); !again)
        return failed(format("activate after deactivate: {}", again.failure().text));
    driver(**instance, test_world, {.rounds = 4}).run();
    return passed();  // destroyed while active: the host deactivates first
}

verdict create_destroy_repeat(const test_input &input) {
    world test_world(first_world(input));
    std::vector<std::unique_ptr<actor>> kept;
    for (int i = 0; i < 100; ++i) {
        auto instance = hosted_actor(*input.policy, input.params, test_world.environment());
        if (!instance)
            return failed(format("create number {}: {}", i + 1, instance.failure().text));
        if (i % 2)
            if (auto active = (*instance)->activate(test_world.limits); !active)
                return failed(format("activate of instance {}: {}", i + 1, active.failure().text));
        if (i % 10 == 0) kept.push_back(std::move(instance).value());  // many alive at a time
    }
    return passed();
}

verdict activate_limits_extremes(const test_input &input) {
    std::vector<world_options> worlds(6, first_world(input));
    for (world_options &o : worlds) o.rounds = 3;
    worlds[0].layers = worlds[0].experts = worlds[0].top_k = worlds[0].slots =
        worlds[0].predictions = 1;
    worlds[0].links = worlds[0].transfers = 1, worlds[0].servers = 0, worlds[0].buffer_slots = 0;
    worlds[1].top_k = worlds[1].experts;
    worlds[2].slots = worlds[2].layers * worlds[2].experts;  // room for everything
    worlds[3].layers = 96, worlds[3].experts = 512, worlds[3].top_k = 32, worlds[3].slots = 4000;
    worlds[3].rounds = 2;
    worlds[4].prefill = 1024, worlds[4].slots = 20;
    worlds[5].per_layer = true, worlds[5].slots = worlds[5].layers;  // one each
    for (const world_options &o : worlds) {
        world test_world(o);
        auto instance = hosted_actor(*input.policy, input.params, test_world.environment());
        if (!instance) return failed(instance.failure().text);
        const auto active = (*instance)->activate(test_world.limits);
        if (!active && active.failure().text.ends_with("no text given"))
            return failed("activate refuses limits without a text; call set_error");
        if (!active) continue;  // it may refuse, with a reason
        driver(**instance, test_world, {}).run();
    }
    return passed();
}

verdict step_before_activate_refused(const test_input &input) {
    world test_world(first_world(input));
    const auto environment = test_world.environment();
    auto instance = hosted_actor(*input.policy, input.params, environment);
    if (!instance) return failed(instance.failure().text);
    (*instance)->deactivate();  // not active: must change nothing
    if (auto first = (*instance)->activate(test_world.limits); !first)
        return failed(first.failure().text);
    if ((*instance)->activate(test_world.limits))
        return failed("the host let an active instance be activated again");
    driver(**instance, test_world, {.rounds = 4}).run();
    return passed();
}

verdict exception_contained(const test_input &input) {
    for (const world_options &o : usual_worlds(input)) {
        world test_world(o);
        auto instance = active_actor(input, test_world);
        if (!instance) return failed(instance.failure().text);
        driver policy_driver(**instance, test_world, {});
        policy_driver.run();
        if (policy_driver.found(fault::exception).count)
            return failed(policy_driver.found(fault::exception).first_text);
    }
    return passed();
}

verdict leak(const test_input &input) {
    if (!can_watch()) return skipped("memory is not watched in this build");
    const auto run_life = [&] {
        world test_world(first_world(input));
        auto instance = active_actor(input, test_world);
        if (!instance) return false;
        driver(**instance, test_world, {.rounds = 6}).run();
        test_world.restart(input.seed);
        (*instance)->reset();
        (*instance)->deactivate();
        return true;
    };
    for (int i = 0; i < 3; ++i)
        if (!run_life()) return failed("the policy cannot be activated");
    constexpr int lives = 20;
    const int64_t bytes_before = live_bytes();
    for (int i = 0; i < lives; ++i) run_life();
    const int64_t grown = live_bytes() - bytes_before;
    // The C library itself allocates now and then, but not once per life.
    if (grown < lives) return passed();
    return failed(format("{} lives from create to destroy left {} bytes behind", lives, grown));
}

verdict older_host_tables(const test_input &input) {
    for (world_options o : {usual_worlds(input)[0], usual_worlds(input)[1]}) {
        world test_world(o);
        auto instance = first_host_actor(*input.policy, input.params, test_world.environment());
        if (!instance && instance.failure().text.empty())
            return failed("create refuses the first host there was without a text; call set_error");
        if (!instance) return skipped(format("needs a newer host: {}", instance.failure().text));
        if (auto active = (*instance)->activate(test_world.limits); !active)
            return failed(active.failure().text);
        driver(**instance, test_world, {.rounds = 16}).run();
        (*instance)->deactivate();
    }
    return passed();
}

verdict struct_size_min(const test_input &input) {
    // Behind every array and struct of the step lies memory that cannot be touched.
    for (world_options o : usual_worlds(input)) {
        o.arrays = fence::page;
        world test_world(o);
        auto instance = active_actor(input, test_world);
        if (!instance) return failed(instance.failure().text);
        driver(**instance, test_world, {.rounds = 16}).run();
    }
    return passed();
}

}  // namespace moorage::check
