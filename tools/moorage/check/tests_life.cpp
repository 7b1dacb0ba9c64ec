// tests_life.cpp - create, activate with every kind of limits, reset, deactivate, destroy.
#include <cstring>

#include "core/base/text.h"
#include "core/host/library.h"
#include "core/host/services.h"
#include "tools/moorage/check/tests.h"

namespace moorage::check {

using core::format;

world_options first_world(const subject &of) {
    world_options o;
    o.seed = of.seed;
    return o;
}

std::vector<world_options> usual_worlds(const subject &of) {
    const uint32_t needs = of.policy->descriptor->needs;
    const bool bare =
        (needs & (MOORAGE_NEEDS_GATE_SCORES | MOORAGE_NEEDS_WEIGHTS | MOORAGE_NEEDS_PREDICTIONS)) ==
        0;
    std::vector<world_options> worlds(8, first_world(of));
    worlds[1].per_layer = true, worlds[1].slots = 14;
    worlds[2].slots = 1;  // fewer than a step's experts
    worlds[3].per_layer = true, worlds[3].slots = 5, worlds[3].top_k = 4;
    worlds[4].batch = 3, worlds[4].prefill = 9, worlds[4].slots = 13;
    worlds[5].two_segments = true, worlds[5].servers = 3, worlds[5].buffer_slots = 6;
    worlds[6].extras = !bare, worlds[6].disturb = false, worlds[6].links = 1;
    worlds[7].layers = 7, worlds[7].experts = 33, worlds[7].top_k = 6, worlds[7].slots = 90;
    for (size_t i = 0; i < worlds.size(); ++i) worlds[i].seed = of.seed + i;
    return worlds;
}

core::result<std::unique_ptr<actor>> active_actor(const subject &of, world &place) {
    auto made = hosted_actor(*of.policy, of.params, place.environment());
    if (!made) return made.failure();
    if (auto active = (*made)->activate(place.limits); !active) return active.failure();
    return made;
}

verdict life_cycle(const subject &of) {
    world place(first_world(of));
    auto made = active_actor(of, place);
    if (!made) return failed(made.failure().text);
    driver(**made, place, {.rounds = 12}).run();
    place.restart(of.seed + 1);
    (*made)->reset();
    driver(**made, place, {.rounds = 12}).run();
    (*made)->deactivate();
    place.restart(of.seed);
    if (auto again = (*made)->activate(place.limits); !again)
        return failed(format("activate after deactivate: {}", again.failure().text));
    driver(**made, place, {.rounds = 4}).run();
    return passed();  // destroyed while active: the host deactivates first
}

verdict create_destroy_repeat(const subject &of) {
    world place(first_world(of));
    std::vector<std::unique_ptr<actor>> several;
    for (int i = 0; i < 100; ++i) {
        auto made = hosted_actor(*of.policy, of.params, place.environment());
        if (!made) return failed(format("create number {}: {}", i + 1, made.failure().text));
        if (i % 2)
            if (auto active = (*made)->activate(place.limits); !active)
                return failed(format("activate of instance {}: {}", i + 1, active.failure().text));
        if (i % 10 == 0) several.push_back(std::move(made).value());  // many alive at a time
    }
    return passed();
}

verdict activate_limits_extremes(const subject &of) {
    std::vector<world_options> worlds(6, first_world(of));
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
        world place(o);
        auto made = hosted_actor(*of.policy, of.params, place.environment());
        if (!made) return failed(made.failure().text);
        const auto active = (*made)->activate(place.limits);
        if (!active && active.failure().text.ends_with("no text given"))
            return failed("activate refuses limits without a text; call set_error");
        if (!active) continue;  // it may refuse, with a reason
        driver(**made, place, {}).run();
    }
    return passed();
}

verdict step_before_activate_refused(const subject &of) {
    world place(first_world(of));
    const auto environment = place.environment();
    auto made = hosted_actor(*of.policy, of.params, environment);
    if (!made) return failed(made.failure().text);
    (*made)->deactivate();  // not active: must change nothing
    if (auto first = (*made)->activate(place.limits); !first) return failed(first.failure().text);
    if ((*made)->activate(place.limits))
        return failed("the host let an active instance be activated again");
    driver(**made, place, {.rounds = 4}).run();
    return passed();
}

verdict exception_contained(const subject &of) {
    for (const world_options &o : usual_worlds(of)) {
        world place(o);
        auto made = active_actor(of, place);
        if (!made) return failed(made.failure().text);
        driver run(**made, place, {});
        run.run();
        if (run.found(fault::exception).count) return failed(run.found(fault::exception).first);
    }
    return passed();
}

verdict leak(const subject &of) {
    if (!can_watch()) return skipped("memory is not watched in this build");
    const auto once = [&] {
        world place(first_world(of));
        auto made = active_actor(of, place);
        if (!made) return false;
        driver(**made, place, {.rounds = 6}).run();
        place.restart(of.seed);
        (*made)->reset();
        (*made)->deactivate();
        return true;
    };
    for (int i = 0; i < 3; ++i)
        if (!once()) return failed("the policy cannot be activated");
    constexpr int lives = 20;
    const int64_t before = live_bytes();
    for (int i = 0; i < lives; ++i) once();
    const int64_t grown = live_bytes() - before;
    // The C library itself allocates now and then, but not once per life.
    if (grown < lives) return passed();
    return failed(format("{} lives from create to destroy left {} bytes behind", lives, grown));
}

verdict older_host_tables(const subject &of) {
    for (world_options o : {usual_worlds(of)[0], usual_worlds(of)[1]}) {
        world place(o);
        auto made = first_host_actor(*of.policy, of.params, place.environment());
        if (!made && made.failure().text.empty())
            return failed("create refuses the first host there was without a text; call set_error");
        if (!made) return skipped(format("needs a newer host: {}", made.failure().text));
        if (auto active = (*made)->activate(place.limits); !active)
            return failed(active.failure().text);
        driver(**made, place, {.rounds = 16}).run();
        (*made)->deactivate();
    }
    return passed();
}

verdict struct_size_min(const subject &of) {
    // Behind every array and struct of the step lies memory that cannot be touched.
    for (world_options o : usual_worlds(of)) {
        o.arrays = fence::page;
        world place(o);
        auto made = active_actor(of, place);
        if (!made) return failed(made.failure().text);
        driver(**made, place, {.rounds = 16}).run();
    }
    return passed();
}

}  // namespace moorage::check
