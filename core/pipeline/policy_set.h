// policy_set.h - the policies of a run's stages. They are found by name, checked against what the
// run can give them, created and activated. If several stages name a policy, they share one
// instance.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/json_fwd.h"
#include "core/base/result.h"
#include "core/config/run_config.h"
#include "core/host/instance.h"
#include "core/host/registry.h"
#include "core/pipeline/pipeline.h"
#include "core/pipeline/policy_clock.h"

namespace moorage::core {

// The limits that a source states.
moorage_limits limits_of(const source &source);

class policy_set {
public:
    // Borrowed for make().
    struct request {
        const run_config &config;
        const registry &policy_registry;
        uint32_t offers;                 // MOORAGE_NEEDS_* of the source
        std::string source_name;         // for messages
        environment common_environment;  // without the future
        // For the policy of [cache.host]. null: there is no such cache.
        const moorage_residency *host = nullptr;
        // The environments of the cache and budget policies of each device, if there are several.
        // Empty: common_environment.
        std::vector<environment> devices = {};
        // Makes the future view. Called if a policy needs it and the source offers it.
        std::function<future_view *()> future = {};
    };
    // Errors name the stage's place in the file.
    status make(const request &request);
    // `slots`: of each device, if there are several.
    status activate(const moorage_limits &limits, std::span<const uint32_t> slots = {});

    const stages &by_stage() const { return stages_; }
    // Kind and policy, in the order of a step.
    std::array<std::pair<std::string_view, instance *>, 6> stage_list() const;
    uint32_t needs() const { return needs_; }
    bool needs_hidden_states() const;  // whether some look at hidden states
    bool lossy() const {
        return (stages_.router->registered_policy().descriptor->flags & MOORAGE_POLICY_LOSSY) != 0;
    }
    // Stage by stage: `plugin` and its resolved parameters.
    void describe(json &config) const;
    // The facts that policies state about themselves, by their names. The names of further devices'
    // policies say which device, and so do several of one name. A fact that cannot be accepted is a
    // fault. faults == nullptr: it is an error.
    status state_facts(std::map<std::string, std::vector<fact>> &facts_by_label,
                       fault_log *faults = nullptr) const;
    // From now on calls are timed, if they are to be. In real time they always are. In virtual time
    // only if the configuration says so, because equal runs then write unequal bytes. null: they
    // are not timed.
    policy_clock *time_calls(const run_config &config, bool virtual_time);
    // Writes policy times, facts and faults into the report of a run that has ended.
    status add_to_report(run_report &report, fault_log &faults) const {
        clock_.report(report.policy_times);
        const status stated = state_facts(report.facts, &faults);
        report.faults = {faults.counts().begin(), faults.counts().end()};
        return stated;
    }

private:
    std::string stage_of(size_t index) const;
    std::string label_of(size_t index) const;
    result<const policy *> choose(const request &request, const stage_config &stage,
                                  std::string_view kind);
    status make_instance(const request &request, const policy &chosen, const settings &params,
                         environment environment, instance *&created);
    // `since`: instances that may serve several stages together.
    status make_stage(const request &request, std::string_view kind, const environment &common,
                      size_t since, instance *&serving);
    status make_devices(const request &request);
    status make_host(const request &request);

    uint32_t needs_ = 0;
    uint32_t device_ = MOORAGE_NONE;  // the device for which instances are being made
    policy_clock clock_;              // before the instances, because their last calls are timed,
                                      // too
    std::vector<std::unique_ptr<instance>> instances_;
    std::vector<uint32_t> devices_;  // [instances] the device of each; MOORAGE_NONE: all
    stages stages_{};
};

}  // namespace moorage::core
