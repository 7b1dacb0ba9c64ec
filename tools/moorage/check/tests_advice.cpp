// tests_advice.cpp - advice judged by the rules of each kind's header.
#include "core/base/text.h"
#include "tools/moorage/check/tests.h"

namespace moorage::check {

namespace {

verdict expect_no_fault(const test_input &input, fault kind,
                        const std::vector<world_options> &worlds) {
    for (const world_options &o : worlds) {
        world test_world(o);
        auto instance = active_actor(input, test_world);
        if (!instance) return failed(instance.failure().text);
        driver policy_driver(**instance, test_world, {});
        policy_driver.run();
        if (const finding &found = policy_driver.found(kind); found.count > 0)
            return failed(core::format("{}; {} times in {} steps, world seed {}", found.first_text,
                                       found.count, policy_driver.steps(), o.seed));
    }
    return passed();
}

}  // namespace

verdict advice_in_range(const test_input &input) {
    return expect_no_fault(input, fault::range, usual_worlds(input));
}
verdict advice_complete(const test_input &input) {
    return expect_no_fault(input, fault::incomplete, usual_worlds(input));
}
verdict advice_pinned_never_named(const test_input &input) {
    return expect_no_fault(input, fault::pinned, usual_worlds(input));
}
verdict advice_over_capacity(const test_input &input) {
    return expect_no_fault(input, fault::capacity, usual_worlds(input));
}

verdict advice_capacity_zero(const test_input &input) {
    std::vector<world_options> worlds(3, first_world(input));
    worlds[0].slots = worlds[0].buffer_slots = 0;
    worlds[1].per_layer = true, worlds[1].slots = 2;  // two layers with one slot, two with none
    worlds[2].servers = 0, worlds[2].buffer_slots = 0, worlds[2].predictions = 0;
    if (input.policy->descriptor->needs & MOORAGE_NEEDS_PREDICTIONS) worlds.pop_back();
    for (const fault kind : {fault::range, fault::capacity, fault::pinned, fault::incomplete})
        if (verdict v = expect_no_fault(input, kind, worlds); v.result != outcome::passed) return v;
    return passed();
}

}  // namespace moorage::check
