// tests_advice.cpp - advice judged by the rules of each kind's header.
#include "core/base/text.h"
#include "tools/moorage/check/tests.h"

namespace moorage::check {

namespace {

verdict without(const subject &of, fault kind, const std::vector<world_options> &worlds) {
    for (const world_options &o : worlds) {
        world place(o);
        auto made = active_actor(of, place);
        if (!made) return failed(made.failure().text);
        driver run(**made, place, {});
        run.run();
        if (const finding &at = run.found(kind); at.count > 0)
            return failed(core::format("{}; {} times in {} steps, world seed {}", at.first,
                                       at.count, run.steps(), o.seed));
    }
    return passed();
}

}  // namespace

verdict advice_in_range(const subject &of) { return without(of, fault::range, usual_worlds(of)); }
verdict advice_complete(const subject &of) {
    return without(of, fault::incomplete, usual_worlds(of));
}
verdict advice_pinned_never_named(const subject &of) {
    return without(of, fault::pinned, usual_worlds(of));
}
verdict advice_over_capacity(const subject &of) {
    return without(of, fault::capacity, usual_worlds(of));
}

verdict advice_capacity_zero(const subject &of) {
    std::vector<world_options> worlds(3, first_world(of));
    worlds[0].slots = worlds[0].buffer_slots = 0;
    worlds[1].per_layer = true, worlds[1].slots = 2;  // two layers with one slot, two with none
    worlds[2].servers = 0, worlds[2].buffer_slots = 0, worlds[2].predictions = 0;
    if (of.policy->descriptor->needs & MOORAGE_NEEDS_PREDICTIONS) worlds.pop_back();
    for (const fault kind : {fault::range, fault::capacity, fault::pinned, fault::incomplete})
        if (verdict v = without(of, kind, worlds); v.result != outcome::passed) return v;
    return passed();
}

}  // namespace moorage::check
