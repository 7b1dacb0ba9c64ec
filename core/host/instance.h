// instance.h - a living policy: created with checked parameters, complete tables and host services.
//
// Tables are copied into full-size ones at creation. A function that the plugin does not have is
// null, so callers need not check sizes.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/base/fact.h"
#include "core/base/result.h"
#include "core/base/setting.h"
#include "core/host/policy_caller.h"
#include "core/host/policy_tables.h"
#include "core/host/registry.h"

namespace moorage::core {

// Answers moorage.host.future/1. core/source/future.h implements it over traces.
class future_view {
public:
    virtual ~future_view() = default;
    virtual uint64_t next_use(uint32_t page, uint64_t step, uint64_t *token) = 0;
    // Returns to the start of the trace.
    virtual void rewind() = 0;
};

// The data that an instance's services read. Everything is borrowed and outlives the instance.
struct environment {
    const moorage_residency *residency = nullptr;
    const moorage_costs *costs = nullptr;  // null: the costs service returns null
    const uint64_t *now_ns = nullptr;      // null: the clock stays at 0
    future_view *future = nullptr;         // null: no future service
    uint64_t seed = 0;
    fault_log *faults = nullptr;  // receives changes that calls make to the process; null: they are
                                  // errors
    std::string_view kind = {};   // the kind that the policy runs as, for its log; "": any
};

// Its tables are complete: a null function is one that the policy does not have.
class instance : public policy_tables {
public:
    // Checks every setting against the declaration. An unknown key names the nearest one, a value
    // out of range names its limits, and both name the place. `settings` holds policy parameters
    // only.
    static result<std::unique_ptr<instance>> create(const policy &policy, const settings &settings,
                                                    const environment &environment);
    ~instance();  // deactivates if needed, then destroys

    status activate(const moorage_limits &limits);
    void deactivate();
    // Resets the policy, its random stream and its future. Requires: active.
    void reset();

    // Calls a function of one of the tables. Every policy call of a run goes this way.
    //   policy.call(entry_point::cache_victims, policy.cache->victims, &room, pages)
    template <class Answer, class... Parameters, class... Arguments>
    Answer call(entry_point which, Answer (*function)(moorage_plugin *, Parameters...),
                Arguments... arguments) {
        return caller_.call(which, function, arguments...);
    }
    // For [control] calls that do not use call().
    in_control marked() const { return in_control(*caller_.host); }
    // A [control] call of a table that may fail, such as placement's plan. A status other than OK
    // becomes an error with the policy's own text.
    status control(entry_point which, const std::function<int32_t(moorage_plugin *)> &work);

    // The policy's current facts about itself; empty if it has none. A fact without a valid name or
    // value is an error. [control]
    result<std::vector<fact>> state_facts();

    const policy &registered_policy() const;
    std::string_view name() const { return registered_policy().name(); }
    const moorage_limits &limits() const;
    moorage_plugin *plugin() const { return caller_.plugin; }
    // From now on the host's time in its functions is added to `times` (borrowed); null: not timed.
    void time_calls(entry_times *times) { caller_.times = times; }
    // Parameters with their values, in declaration order.
    const std::vector<std::pair<std::string, setting_value>> &parameters() const;

    // While it lives, the calling thread counts as inside a [step] call to any instance
    // (thread-check).
    class stepping {
    public:
        stepping() { ++open; }
        ~stepping() { --open; }
        static bool now() { return open != 0; }

    private:
        static inline thread_local constinit uint32_t open = 0;
    };

private:
    instance();
    struct content;
    policy_caller caller_;  // first, because the destruction of content uses it
    std::unique_ptr<content> content_;
};

}  // namespace moorage::core
