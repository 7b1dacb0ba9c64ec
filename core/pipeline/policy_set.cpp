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

moorage_limits limits_of(const source &source) {
    moorage_limits limits{};
    limits.size = sizeof(limits);
    limits.layers = source.layers();
    limits.experts = limits.predictions_max = source.experts();
    limits.top_k = source.top_k();
    limits.tokens_max = source.tokens_max();
    limits.requests_max = source.streams();
    limits.segments = limits.pools = 1;
    return limits;
}

// The policy that a stage names, if the run can give it what it needs.
result<const policy *> policy_set::choose(const request &request, const stage_config &stage,
                                          std::string_view kind) {
    const auto found = find_policy(request.policy_registry, stage, kind);
    if (!found) return found.failure();
    const policy &chosen = **found;
    const uint32_t lacking = chosen.descriptor->needs & ~(request.offers | composition_needs);
    if (lacking & MOORAGE_NEEDS_FUTURE)
        return error{
            format("{}: {} policy {} needs the future of a trace, {}", stage.place, kind,
                   stage.plugin,
                   !request.config.trace.empty()
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
                       kind, stage.plugin, trace::tensor_of(bit), request.source_name),
                true};
    needs_ |= chosen.descriptor->needs;
    return &chosen;
}

status policy_set::make_instance(const request &request, const policy &chosen,
                                 const settings &params, environment environment,
                                 instance *&created) {
    if ((chosen.descriptor->needs & MOORAGE_NEEDS_FUTURE) && request.future)
        environment.future = request.future();
    auto policy_instance = instance::create(chosen, params, environment);
    if (!policy_instance) return policy_instance.failure();
    instances_.push_back(std::move(policy_instance).value());
    devices_.push_back(device_);
    created = instances_.back().get();
    return success();
}

status policy_set::make_stage(const request &request, std::string_view kind,
                              const environment &common, size_t since, instance *&serving) {
    const stage_config &stage = request.config.stage(kind);
    const auto found = choose(request, stage, kind);
    if (!found) return found.failure();
    const policy &chosen = **found;
    for (size_t i = since; i < instances_.size(); ++i) {
        if (&instances_[i]->registered_policy() != &chosen) continue;
        serving = instances_[i].get();  // one instance for all its stages: they share their history
        return success();
    }
    settings params = stage.params;
    for (const std::string_view other_kind : stage_kinds) {
        const stage_config &also = request.config.stage(other_kind);
        if (other_kind == kind || also.plugin != stage.plugin || !chosen.is(other_kind)) continue;
        if (const auto same = find_policy(request.policy_registry, also, other_kind);
            same && *same == &chosen)
            params.insert(params.end(), also.params.begin(), also.params.end());
    }
    environment stage_environment = common;
    stage_environment.kind = kind;
    return make_instance(request, chosen, params, stage_environment, serving);
}

// A cache and a budget policy for each of several devices, which see that one alone.
status policy_set::make_devices(const request &request) {
    for (device_ = 0; device_ < request.devices.size(); ++device_) {
        const size_t since = instances_.size();
        instance *cache = nullptr, *budget = nullptr;
        for (const auto &[kind, target] :
             {std::pair{"cache", &cache}, std::pair{"budget", &budget}})
            if (const status done =
                    make_stage(request, kind, request.devices[device_], since, *target);
                !done)
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
status policy_set::make_host(const request &request) {
    if (request.host == nullptr) return success();
    const stage_config &stage = request.config.host_cache;
    const auto found = choose(request, stage, "cache");
    if (!found) return found.failure();
    environment environment = request.common_environment;
    environment.residency = request.host;
    environment.kind = "cache";
    return make_instance(request, **found, stage.params, environment, stages_.host_cache);
}

status policy_set::make(const request &request) {
    for (const auto &[kind, place] : places) {
        if (!request.devices.empty() && (kind == "cache" || kind == "budget")) continue;
        const status done =
            make_stage(request, kind, request.common_environment, 0, stages_.*place);
        if (!done) return done.failure();
    }
    if (const status done = make_devices(request); !done) return done.failure();
    return make_host(request);
}

status policy_set::activate(const moorage_limits &limits, std::span<const uint32_t> slots) {
    moorage_limits host_limits = limits;
    host_limits.pools = host_limits.segments = 1;
    if (stages_.host_cache)  // its store comes after those of the GPUs
        host_limits.slots = limits.host_stores[slots.size()].slots;
    for (size_t i = 0; i < instances_.size(); ++i) {
        const bool host = instances_[i].get() == stages_.host_cache;
        moorage_limits instance_limits = host ? host_limits : limits;
        if (devices_[i] != MOORAGE_NONE) instance_limits.slots = slots[devices_[i]];
        if (const status done = instances_[i]->activate(instance_limits); !done)
            return done.failure();
    }
    return success();
}

std::array<std::pair<std::string_view, instance *>, 6> policy_set::stage_list() const {
    std::array<std::pair<std::string_view, instance *>, 6> list;
    static_assert(list.size() == std::size(places));
    for (size_t i = 0; i < list.size(); ++i) list[i] = {places[i].first, stages_.*places[i].second};
    return list;
}

bool policy_set::needs_hidden_states() const {
    return std::ranges::any_of(instances_, [](const auto &policy) {
        return (policy->registered_policy().descriptor->flags & MOORAGE_POLICY_HIDDEN) != 0;
    });
}

// Where an instance stands: the first of its stages, or which memory it is for.
std::string policy_set::stage_of(size_t index) const {
    const instance *const which = instances_[index].get();
    if (which == stages_.host_cache) return "host memory";
    if (devices_[index] != MOORAGE_NONE && devices_[index] != 0)
        return format("device {}", devices_[index]);
    for (const auto &[kind, instance] : stage_list())
        if (instance == which) return std::string(kind);
    return "a further stage";
}

// By its name; where others have that too, and for further devices, with the stage.
std::string policy_set::label_of(size_t index) const {
    const std::string_view name = instances_[index]->name();
    const bool further = devices_[index] != MOORAGE_NONE && devices_[index] != 0;
    bool alone = true;
    for (size_t peer = 0; peer < instances_.size(); ++peer) {
        const bool is_further = devices_[peer] != MOORAGE_NONE && devices_[peer] != 0;
        alone &= peer == index || is_further || instances_[peer]->name() != name;
    }
    return alone && !further ? std::string(name) : format("{} of {}", name, stage_of(index));
}

status policy_set::state_facts(std::map<std::string, std::vector<fact>> &facts_by_label,
                               fault_log *faults) const {
    for (size_t i = 0; i < instances_.size(); ++i) {
        const std::string_view name = instances_[i]->name();
        auto stated = instances_[i]->state_facts();
        if (!stated && !(faults && faults->report(name, stated.failure().text, false)))
            return stated.failure();
        if (!stated || stated->empty()) continue;
        std::vector<fact> &facts = facts_by_label[label_of(i)];
        facts.insert(facts.end(), stated->begin(), stated->end());
    }
    return success();
}

policy_clock *policy_set::time_calls(const run_config &config, bool virtual_time) {
    if (virtual_time && config.policy_time == policy_charge::none) return nullptr;
    for (const auto &policy : instances_) {
        clock_.policies_.push_back({std::string(policy->name()), std::make_unique<entry_times>()});
        policy->time_calls(clock_.policies_.back().times.get());
    }
    if (config.policy_time == policy_charge::declared) clock_.call_ns_ = config.policy_call_ns;
    return &clock_;
}

void policy_set::describe(json &config) const {
    for (const auto &[kind, policy] : stage_list()) {
        config[kind] = {{"plugin", std::string(policy->name())}};
        for (const auto &[key, value] : policy->parameters()) config[kind][key] = json_of(value);
    }
    if (stages_.host_cache == nullptr) return;
    json &host = config[std::string(host_cache_stage)];
    host["plugin"] = std::string(stages_.host_cache->name());
    for (const auto &[key, value] : stages_.host_cache->parameters()) host[key] = json_of(value);
}

}  // namespace moorage::core
