// policy_set.cpp - from names in a configuration to active policies.
#include "core/pipeline/policy_set.h"

#include <utility>

#include "core/base/json.h"
#include "core/base/text.h"
#include "core/config/stage_policy.h"
#include "core/pipeline/composition.h"
#include "core/source/trace.h"

namespace moorage::core {

status policy_set::make_stage(const request &of, std::string_view kind, instance *&out) {
    const stage_config &stage = of.config.stage(kind);
    const auto found = find_policy(of.known, stage, kind);
    if (!found) return found.failure();
    const policy &chosen = **found;
    const uint32_t lacking = chosen.descriptor->needs & ~(of.offers | composition_needs);
    if (lacking & MOORAGE_NEEDS_FUTURE)
        return error{
            format("{}: {} policy {} needs the future of the trace, which is known for one request "
                   "at a time: set [run] batch = 1 and prefill = 0",
                   stage.place, kind, stage.plugin),
            true};
    if (const uint32_t unknown = lacking & ~source_needs; unknown != 0)
        return error{format("{}: {} policy {} needs what this host does not know (bits {:#x}); use "
                            "a newer moorage",
                            stage.place, kind, stage.plugin, unknown),
                     true};
    for (uint32_t bit = 1; bit <= lacking; bit <<= 1)
        if (lacking & bit)
            return error{
                format("{}: {} policy {} needs the tensor {}, which {} does not have", stage.place,
                       kind, stage.plugin, trace::tensor_of(bit), of.source_name),
                true};
    needs_ |= chosen.descriptor->needs;
    for (const auto &known : instances_) {
        if (&known->from() != &chosen) continue;
        out = known.get();  // one instance for all its stages: they share their history
        return success();
    }
    settings given = stage.params;
    for (const std::string_view other : kinds) {
        const stage_config &also = of.config.stage(other);
        if (other == kind || also.plugin != stage.plugin || !chosen.is(other)) continue;
        if (const auto same = find_policy(of.known, also, other); same && *same == &chosen)
            given.insert(given.end(), also.params.begin(), also.params.end());
    }
    environment where = of.where;
    if ((chosen.descriptor->needs & MOORAGE_NEEDS_FUTURE) && of.future) where.future = of.future();
    auto made = instance::create(chosen, given, where);
    if (!made) return made.failure();
    instances_.push_back(std::move(made).value());
    out = instances_.back().get();
    return success();
}

status policy_set::make(const request &of) {
    const std::pair<std::string_view, instance **> wanted[] = {
        {"router", &stages_.router},     {"cache", &stages_.cache},
        {"budget", &stages_.budget},     {"prefetch", &stages_.prefetch},
        {"dispatch", &stages_.dispatch}, {"transport", &stages_.transport}};
    for (const auto &[kind, out] : wanted)
        if (const status done = make_stage(of, kind, *out); !done) return done.failure();
    return success();
}

status policy_set::activate(const moorage_limits &limits) {
    for (const auto &one : instances_)
        if (const status done = one->activate(limits); !done) return done.failure();
    return success();
}

std::array<std::pair<std::string_view, instance *>, 6> policy_set::each() const {
    return {{{"router", stages_.router},
             {"cache", stages_.cache},
             {"budget", stages_.budget},
             {"prefetch", stages_.prefetch},
             {"dispatch", stages_.dispatch},
             {"transport", stages_.transport}}};
}

void policy_set::describe(json &config) const {
    for (const auto &[kind, one] : each()) {
        config[kind] = {{"plugin", std::string(one->name())}};
        for (const auto &[key, value] : one->parameters()) config[kind][key] = json_of(value);
    }
}

}  // namespace moorage::core
