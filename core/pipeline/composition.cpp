// composition.cpp - the rules: what a need means, and which settings have no effect together.
#include "core/pipeline/composition.h"

#include <algorithm>

#include "core/base/json.h"
#include "core/base/text.h"
#include "core/host/parameters.h"

namespace moorage::core {

namespace {

// A declared need: the kind that it is about, whether the run meets it, what the run has instead.
struct need {
    uint32_t bit;
    std::string_view kind;
    bool (*is_met)(const composition &);
    const char *description;
    std::string (*lack_text)(const composition &);
};

constexpr need needs[] = {
    {MOORAGE_NEEDS_PER_LAYER, "budget",
     [](const composition &composition) { return composition.config.per_layer; },
     "slots of each layer",
     [](const composition &) {
         return std::string(
             "[memory] sharing = \"shared\" has one pool for all, so that no budget is asked for; "
             "set [memory] sharing = \"per-layer\"");
     }},
    {MOORAGE_NEEDS_LAYER_BUFFER, "prefetch",
     [](const composition &composition) { return composition.buffer_slots >= composition.experts; },
     "a transfer buffer for all experts of a layer",
     [](const composition &composition) {
         return format(
             "[memory] buffer_experts = {} is less than its {}; set [memory] "
             "buffer_experts = {}, two layers",
             composition.buffer_slots, composition.experts, 2 * composition.experts);
     }},
    {MOORAGE_NEEDS_SERVERS, "dispatch",
     [](const composition &composition) { return composition.servers != 0; },
     "servers that it can call",
     [](const composition &) {
         return std::string(
             "the run has none; give [cluster] others, or choose a dispatch policy for one server");
     }}};

class checker {
public:
    checker(const composition &composition, std::vector<std::string> &warnings)
        : composition_(composition), warnings_(warnings) {}
    status operator()();

private:
    status check_needs(std::string_view kind, const policy &chosen) const;
    status check_prefetch() const;
    void warn_of_idle_budget();
    void warn_of_split();
    void warn_of_future();
    void warn_of_method_params();
    bool prefetches() const;
    const std::string &place(std::string_view kind) const {
        return composition_.config.stage(kind).place;
    }
    void warn(std::string text) { warnings_.push_back(std::move(text)); }

    const composition &composition_;
    std::vector<std::string> &warnings_;
};

status checker::check_needs(std::string_view kind, const policy &chosen) const {
    for (const need &need : needs) {
        const bool concerns = need.kind == kind || !chosen.is(need.kind);
        if ((chosen.descriptor->needs & need.bit) == 0 || !concerns || need.is_met(composition_))
            continue;
        return error{format("{}: {} policy {} needs {}, and {}", place(kind), kind, chosen.name(),
                            need.description, need.lack_text(composition_)),
                     true};
    }
    return success();
}

bool checker::prefetches() const {
    const instance &policy = *composition_.policies.by_stage().prefetch;
    return policy.prefetch->horizon && policy.prefetch->horizon(policy.plugin()) != 0;
}

// Prefetched experts wait in the buffer: decision 0003.
status checker::check_prefetch() const {
    if (composition_.buffer_slots != 0 || !prefetches()) return success();
    if (composition_.config.cluster)
        return error{
            format("{}: prefetch {} brings experts from host memory, which not all servers "
                   "of the cluster hold; set host_experts = true for them, or prefetch "
                   "\"none\"",
                   place("prefetch"), composition_.policies.by_stage().prefetch->name()),
            true};
    return error{format("{}: prefetch policy {} has nowhere to bring experts to: [memory] "
                        "buffer_experts is 0; set it to at least 1, or choose prefetch \"none\"",
                        place("prefetch"), composition_.policies.by_stage().prefetch->name()),
                 true};
}

// One that does not declare its need.
void checker::warn_of_idle_budget() {
    const std::string &chosen = composition_.config.budget.plugin;
    if (composition_.config.per_layer || chosen == run_config{}.budget.plugin) return;
    warn(
        format("{}: budget policy {} is never asked: [memory] sharing = \"shared\" has one pool "
               "for all layers; set sharing = \"per-layer\"",
               place("budget"), chosen));
}

void checker::warn_of_split() {
    const auto handles = [](const auto &stage) {
        return (stage.second->registered_policy().descriptor->flags & MOORAGE_POLICY_SEGMENTS) != 0;
    };
    if (!composition_.split || std::ranges::any_of(composition_.policies.stage_list(), handles))
        return;
    warn(
        format("[memory] split = {}: a slot holds the top segment alone, and no policy here brings "
               "the other one before it is asked for: no expert is ever there as a whole (0 "
               "hits); choose a prefetch policy that handles segments, or leave experts whole",
               composition_.config.split));
}

// A policy that sees the future sees the trace's: its own requests, loaded on demand. Warns if the
// router or prefetches change that.
void checker::warn_of_future() {
    for (const auto &[kind, policy] : composition_.policies.stage_list()) {
        if ((policy->registered_policy().descriptor->needs & MOORAGE_NEEDS_FUTURE) == 0) continue;
        const instance &router = *composition_.policies.by_stage().router;
        if (composition_.policies.lossy())
            warn(
                format("{}: {} policy {} goes by the trace's own requests, and router {} asks for "
                       "others: what it does is no bound",
                       place(kind), kind, policy->name(), router.name()));
        if (prefetches())
            warn(
                format("{}: {} policy {} is the optimum of loads on demand, and prefetch {} brings "
                       "experts before: what it does is no bound",
                       place(kind), kind, policy->name(),
                       composition_.policies.by_stage().prefetch->name()));
    }
}

// A method that is a policy of its name in each of several stages, as smoe's router and prefetch.
void checker::warn_of_method_params() {
    const auto stages = composition_.policies.stage_list();
    for (size_t a = 0; a < stages.size(); ++a) {
        const policy &first = stages[a].second->registered_policy();
        for (size_t i = 0; i < std::min<size_t>(first.params.size(), 32); ++i) {
            if ((first.descriptor->method_params >> i & 1) == 0) continue;
            const auto &[key, value] = stages[a].second->parameters()[i];
            for (size_t b = a + 1; b < stages.size(); ++b) {
                const policy &second = stages[b].second->registered_policy();
                if (&second == &first || second.name() != first.name()) continue;
                const auto &others = stages[b].second->parameters();
                const auto match =
                    std::ranges::find(others, key, &parameter_values::value_type::first);
                if (match == others.end() || match->second == value) continue;
                warn(
                    format("{}.{} = {} and {}.{} = {}: {} is one method in two stages, which this "
                           "parameter is of; set both alike",
                           stages[a].first, key, json_of(value).dump(), stages[b].first, key,
                           json_of(match->second).dump(), first.name()));
            }
        }
    }
}

status checker::operator()() {
    const stage_config &placement = composition_.config.placement;
    if (!placement.plugin.empty() && !composition_.config.cluster)
        return error{format("{}: placement policy {} has nothing to place experts on: there is no "
                            "[cluster]; give one (configs/clusters), or leave [placement] out",
                            placement.place, placement.plugin),
                     true};
    const stage_config &wire = composition_.config.wire;
    if (wire.place != run_config{}.wire.place && !composition_.config.cluster)
        return error{format("{}: a wire is between the nodes of a cluster; describe one in "
                            "[cluster] (docs/cluster.md), or leave [wire] out",
                            wire.place),
                     true};
    if (const std::string &place = composition_.config.registry.place;
        !place.empty() && !composition_.config.cluster)
        return error{format("{}: a registry is of the nodes of a cluster; describe one in "
                            "[cluster] (docs/cluster.md), or leave [registry] out",
                            place),
                     true};
    for (const auto &[kind, policy] : composition_.policies.stage_list())
        if (const status met = check_needs(kind, policy->registered_policy()); !met) return met;
    if (const status met = check_prefetch(); !met) return met;
    warn_of_idle_budget();
    warn_of_split();
    warn_of_future();
    warn_of_method_params();
    return success();
}

}  // namespace

status check_composition(const composition &composition, std::vector<std::string> &warnings) {
    return checker(composition, warnings)();
}

}  // namespace moorage::core
