// drive_placement.cpp - plans, facts and migrations: asks for them and judges them.
#include <algorithm>
#include <cmath>
#include <string_view>

#include "core/base/text.h"
#include "tools/moorage/check/cluster_world.h"
#include "tools/moorage/check/drive.h"

namespace moorage::check {

using core::format;

namespace {

std::string copy_text(const moorage_copy &copy) {
    return format("a copy of expert {} on device {}", copy.expert, copy.device);
}

uint64_t bits_of(double value) {
    uint64_t bits = 0;
    std::memcpy(&bits, &value, sizeof(bits));
    return bits;
}

}  // namespace

// Plans on two clusters. The seed chooses them, so that the usual worlds cover all.
void driver::plan_placements() {
    for (uint64_t i = 0; i < 2; ++i) {
        cluster_options options =
            cluster_variant(world_.options.seed * 2 + i, world_.options.seed + 1000 * i);
        if (world_.options.slots == 0)
            options.memory_room = cluster_options::memory::none, options.cloud = i == 0;
        options.arrays = world_.options.arrays;
        plan_on_cluster(options);
    }
}

void driver::plan_on_cluster(const cluster_options &options) {
    cluster_world cluster(options);
    const size_t room = size_t{cluster.experts()} * options.devices;
    std::vector<moorage_copy> current;
    for (int decision = 0; decision < 3; ++decision) {
        if (decision > 0) cluster.drift();
        fenced<moorage_copy> lent(current.size(), options.arrays);
        std::copy(current.begin(), current.end(), lent.data());
        fenced<moorage_copy> copies(room, options.arrays);
        fenced<uint64_t> count(1, options.arrays);
        const uint64_t checksum_before = options_.check_inputs ? cluster.checksum() : 0;
        core::status answer = core::success();
        control(core::entry_point::placement_plan, [&] {
            answer =
                policy_.control(core::entry_point::placement_plan, [&](moorage_plugin *plugin) {
                    return policy_.placement->plan(plugin, &cluster.cluster(), &cluster.demand(),
                                                   current.empty() ? nullptr : lent.data(),
                                                   current.size(), copies.data(), &count[0]);
                });
        });
        if (options_.check_inputs && cluster.checksum() != checksum_before)
            blame(fault::input, "plan (placement) wrote to an array that was lent for reading");
        if (options_.check_fences &&
            !(cluster.intact() && lent.intact() && copies.intact() && count.intact()))
            blame(fault::canary, "something was written outside an array in plan (placement)");
        record_decision(answer.ok());
        if (!answer) {
            judge_refusal(cluster, answer.failure().text);
            continue;
        }
        record_decision(count[0]);
        if (count[0] > room) {
            blame(fault::capacity,
                  format("plan counted {} copies, there was room for {}", count[0], room));
            continue;
        }
        std::vector<moorage_copy> plan(copies.data(), copies.data() + count[0]);
        judge_plan(cluster, plan);
        collect_facts(options.arrays);
        if (decision > 0) ask_adoption(cluster, current, plan);
        current = std::move(plan);
    }
}

// A refusal is right if memory is short. It is allowed if memory just suffices, because some
// methods need more than one copy of each expert takes.
void driver::judge_refusal(cluster_world &cluster, const std::string &text) {
    if (text.ends_with("no text given"))
        blame(fault::incomplete, "plan refuses without a text; call set_error");
    if (cluster.options.memory_room == cluster_options::memory::roomy)
        blame(fault::incomplete,
              format("plan refuses where every device has room for all experts: {}", text));
}

void driver::judge_plan(cluster_world &cluster, const std::vector<moorage_copy> &plan) {
    std::vector<uint64_t> used(cluster.options.devices);
    std::vector<uint8_t> held(size_t{cluster.options.devices} * cluster.experts()),
        has_copy(cluster.experts());
    for (const moorage_copy &copy : plan) {
        record_decision(copy.expert), record_decision(copy.device);
        if (copy.expert >= cluster.experts() || copy.device >= cluster.options.devices) {
            blame(fault::range, format("{}; there are {} experts and {} devices", copy_text(copy),
                                       cluster.experts(), cluster.options.devices));
            continue;
        }
        if (std::exchange(held[size_t{copy.device} * cluster.experts() + copy.expert], uint8_t{1}))
            blame(fault::range, format("{} is named twice", copy_text(copy)));
        used[copy.device] += cluster.bytes_of(copy.expert);
        has_copy[copy.expert] = 1;
    }
    for (uint32_t g = 0; g < cluster.options.devices; ++g)
        if (used[g] > cluster.cluster().host_device_bytes[g])
            blame(fault::capacity, format("the plan puts {} bytes on device {}, {} fit", used[g], g,
                                          cluster.cluster().host_device_bytes[g]));
    for (uint32_t e = 0; e < cluster.experts() && !cluster.options.cloud; ++e)
        if (!has_copy[e] && cluster.is_requested(e))
            blame(fault::incomplete,
                  format("expert {} is asked for, has no copy, and there is no cloud", e));
}

void driver::collect_facts(fence arrays) {
    if (!policy_.facts) return;
    for (const uint32_t capacity : {32u, 1u, 0u}) {
        fenced<moorage_fact> facts(capacity, arrays);
        uint32_t count = 0;
        control(core::entry_point::facts_facts,
                [&] { count = policy_.facts->facts(policy_.plugin, facts.data(), capacity); });
        record_decision(count);
        if (options_.check_fences && !facts.intact())
            blame(fault::canary, "something was written outside an array in facts");
        if (count > capacity) {
            blame(fault::capacity, format("facts returned {}, room was for {}", count, capacity));
            continue;
        }
        for (uint32_t i = 0; i < count; ++i) {
            const std::string_view name = facts[i].plugin_name ? facts[i].plugin_name : "";
            if (name.empty() || name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_") !=
                                    std::string_view::npos)
                blame(fault::range, format("fact {} has the name \"{}\"; use snake_case", i, name));
            if (std::isnan(facts[i].value))
                blame(fault::range, format("fact {} is not a number", name));
            // A policy's own time may differ from run to run.
            if (!name.ends_with("seconds")) record_decision(bits_of(facts[i].value));
        }
    }
}

void driver::ask_adoption(cluster_world &cluster, const std::vector<moorage_copy> &current,
                          const std::vector<moorage_copy> &candidate) {
    if (!policy_.placement->adopt) return;
    fenced<moorage_copy> old_copies(current.size(), world_.options.arrays),
        new_copies(candidate.size(), world_.options.arrays);
    std::copy(current.begin(), current.end(), old_copies.data());
    std::copy(candidate.begin(), candidate.end(), new_copies.data());
    fenced<moorage_move> move(1, world_.options.arrays);
    const uint64_t added = draw_.below(static_cast<uint32_t>(candidate.size()) + 1);
    move[0] = {sizeof(moorage_move),
               0,
               &cluster.cluster(),
               &cluster.demand(),
               old_copies.data(),
               current.size(),
               new_copies.data(),
               candidate.size(),
               added,
               added << 20,
               draw_.below(4),
               0.001 * static_cast<double>(added),
               0.001,
               100,
               100.0 * draw_.unit(),
               draw_.one_in(4) ? 0 : 0.002,
               300};
    uint32_t answer = 0;
    control(core::entry_point::placement_adopt,
            [&] { answer = policy_.placement->adopt(policy_.plugin, &move[0]); });
    record_decision(answer);
    if (answer > 1) blame(fault::range, format("adopt answers {}, expected 0 or 1", answer));
    if (options_.check_fences && !(old_copies.intact() && new_copies.intact() && move.intact()))
        blame(fault::canary, "something was written outside an array in adopt");
}

}  // namespace moorage::check
