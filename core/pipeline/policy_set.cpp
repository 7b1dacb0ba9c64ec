// policy_set.cpp - from names in a configuration to active policies.
#include "core/pipeline/policy_set.h"

#include <algorithm>
#include <utility>

#include "core/base/json.h"
#include "core/base/text.h"
#include "core/config/stage_policy.h"
#include "core/pipeline/composition.h"
#include "core/source/trace.h"

namespace moorage::core {

namespace {

// The kinds of a step, in its order.
constexpr std::pair<std::string_view, instance * stages::*> places[] = {
    {"router", &stages::router},     {"cache", &stages::cache},
    {"budget", &stages::budget},     {"prefetch", &stages::prefetch},
    {"dispatch", &stages::dispatch}, {"transport", &stages::transport}};

}  // namespace

moorage_limits limits_of(const source &from) {
    moorage_limits limits{};
    limits.size = sizeof(limits);
    limits.layers = from.layers();
    limits.experts = limits.predictions_max = from.experts();
    limits.top_k = from.top_k();
    limits.tokens_max = from.tokens_max();
    limits.requests_max = from.streams();
    limits.segments = limits.pools = 1;
    return limits;
}

// The policy that a stage names, if the run can give it what it needs.
result<const policy *> policy_set::choose(const request &of, const stage_config &stage,
                                          std::string_view kind) {
    const auto found = find_policy(of.known, stage, kind);
    if (!found) return found.failure();
    const policy &chosen = **found;
    const uint32_t lacking = chosen.descriptor->needs & ~(of.offers | composition_needs);
    if (lacking & MOORAGE_NEEDS_FUTURE)
        return error{
            format("{}: {} policy {} needs the future of a trace, {}", stage.place, kind,
                   stage.plugin,
                   !of.config.trace.empty()
                       ? "which is known for one request at a time: set [run] batch = 1 and "
                         "prefill = 0"
                       : "and a model has none: record one (moorage trace record) and run "
                         "it as [source] trace"),
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
    return &chosen;
}

status policy_set::make_instance(const request &of, const policy &chosen, const settings &given,
                                 environment where, instance *&out) {
    if ((chosen.descriptor->needs & MOORAGE_NEEDS_FUTURE) && of.future) where.future = of.future();
    auto made = instance::create(chosen, given, where);
    if (!made) return made.failure();
    instances_.push_back(std::move(made).value());
    devices_.push_back(device_);
    out = instances_.back().get();
    return success();
}

status policy_set::make_stage(const request &of, std::string_view kind, const environment &where,
                              size_t since, instance *&out) {
    const stage_config &stage = of.config.stage(kind);
    const auto found = choose(of, stage, kind);
    if (!found) return found.failure();
    const policy &chosen = **found;
    for (size_t i = since; i < instances_.size(); ++i) {
        if (&instances_[i]->from() != &chosen) continue;
        out = instances_[i].get();  // one instance for all its stages: they share their history
        return success();
    }
    settings given = stage.params;
    for (const std::string_view other : stage_kinds) {
        const stage_config &also = of.config.stage(other);
        if (other == kind || also.plugin != stage.plugin || !chosen.is(other)) continue;
        if (const auto same = find_policy(of.known, also, other); same && *same == &chosen)
            given.insert(given.end(), also.params.begin(), also.params.end());
    }
    environment its = where;
    its.kind = kind;
    return make_instance(of, chosen, given, its, out);
}

// A cache and a budget policy for each of several devices, which see that one alone.
status policy_set::make_devices(const request &of) {
    for (device_ = 0; device_ < of.devices.size(); ++device_) {
        const size_t since = instances_.size();
        instance *cache = nullptr, *budget = nullptr;
        for (const auto &[kind, out] : {std::pair{"cache", &cache}, std::pair{"budget", &budget}})
            if (const status done = make_stage(of, kind, of.devices[device_], since, *out); !done)
                return done;
        if (device_ == 0) {
            stages_.cache = cache, stages_.budget = budget;
        } else {
            stages_.more_caches.push_back(cache);
            stages_.more_budgets.push_back(budget);
        }
    }
    device_ = MOORAGE_NONE;
    return success();
}

// The policy of host memory. It is an instance of its own, even if fast memory has the same policy.
status policy_set::make_host(const request &of) {
    if (of.host == nullptr) return success();
    const stage_config &stage = of.config.host_cache;
    const auto found = choose(of, stage, "cache");
    if (!found) return found.failure();
    environment where = of.where;
    where.residency = of.host;
    where.kind = "cache";
    return make_instance(of, **found, stage.params, where, stages_.host_cache);
}

status policy_set::make(const request &of) {
    for (const auto &[kind, place] : places) {
        if (!of.devices.empty() && (kind == "cache" || kind == "budget")) continue;
        const status done = make_stage(of, kind, of.where, 0, stages_.*place);
        if (!done) return done.failure();
    }
    if (const status done = make_devices(of); !done) return done.failure();
    return make_host(of);
}

status policy_set::activate(const moorage_limits &limits, std::span<const uint32_t> slots) {
    moorage_limits of_host = limits;
    of_host.pools = of_host.segments = 1;
    if (stages_.host_cache)  // its store comes after those of the GPUs
        of_host.slots = limits.host_stores[slots.size()].slots;
    for (size_t i = 0; i < instances_.size(); ++i) {
        const bool host = instances_[i].get() == stages_.host_cache;
        moorage_limits its = host ? of_host : limits;
        if (devices_[i] != MOORAGE_NONE) its.slots = slots[devices_[i]];
        if (const status done = instances_[i]->activate(its); !done) return done.failure();
    }
    return success();
}

std::array<std::pair<std::string_view, instance *>, 6> policy_set::each() const {
    std::array<std::pair<std::string_view, instance *>, 6> all;
    static_assert(all.size() == std::size(places));
    for (size_t i = 0; i < all.size(); ++i) all[i] = {places[i].first, stages_.*places[i].second};
    return all;
}

bool policy_set::hidden() const {
    return std::ranges::any_of(instances_, [](const auto &one) {
        return (one->from().descriptor->flags & MOORAGE_POLICY_HIDDEN) != 0;
    });
}

// Where an instance stands: the first of its stages, or which memory it is for.
std::string policy_set::stage_of(size_t index) const {
    const instance *const which = instances_[index].get();
    if (which == stages_.host_cache) return "host memory";
    if (devices_[index] != MOORAGE_NONE && devices_[index] != 0)
        return format("device {}", devices_[index]);
    for (const auto &[kind, of_stage] : each())
        if (of_stage == which) return std::string(kind);
    return "a further stage";
}

// By its name; where others have that too, and for further devices, with the stage.
std::string policy_set::label_of(size_t index) const {
    const std::string_view name = instances_[index]->name();
    const bool further = devices_[index] != MOORAGE_NONE && devices_[index] != 0;
    bool alone = true;
    for (size_t other = 0; other < instances_.size(); ++other) {
        const bool is_further = devices_[other] != MOORAGE_NONE && devices_[other] != 0;
        alone &= other == index || is_further || instances_[other]->name() != name;
    }
    return alone && !further ? std::string(name) : format("{} of {}", name, stage_of(index));
}

status policy_set::state_facts(std::map<std::string, std::vector<fact>> &out,
                               fault_log *faults) const {
    for (size_t i = 0; i < instances_.size(); ++i) {
        const std::string_view name = instances_[i]->name();
        auto stated = instances_[i]->state_facts();
        if (!stated && !(faults && faults->report(name, stated.failure().text, false)))
            return stated.failure();
        if (!stated || stated->empty()) continue;
        std::vector<fact> &all = out[label_of(i)];
        all.insert(all.end(), stated->begin(), stated->end());
    }
    return success();
}

policy_clock *policy_set::time_calls(const run_config &config, bool virtual_time) {
    if (virtual_time && config.policy_time == policy_charge::none) return nullptr;
    for (const auto &one : instances_) {
        clock_.all_.push_back({std::string(one->name()), std::make_unique<entry_times>()});
        one->time_calls(clock_.all_.back().times.get());
    }
    if (config.policy_time == policy_charge::declared) clock_.call_ns_ = config.policy_call_ns;
    return &clock_;
}

void policy_set::describe(json &config) const {
    for (const auto &[kind, one] : each()) {
        config[kind] = {{"plugin", std::string(one->name())}};
        for (const auto &[key, value] : one->parameters()) config[kind][key] = json_of(value);
    }
    if (stages_.host_cache == nullptr) return;
    json &host = config[std::string(host_cache_stage)];
    host["plugin"] = std::string(stages_.host_cache->name());
    for (const auto &[key, value] : stages_.host_cache->parameters()) host[key] = json_of(value);
}

}  // namespace moorage::core
