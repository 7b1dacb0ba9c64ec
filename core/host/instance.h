// instance.h - a living policy: created with checked parameters, completed tables, host services.
//
// Tables are copied into full-size ones at creation (a function the plugin does not know is null),
// so no caller checks sizes again.
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
#include "core/host/registry.h"
#include "moorage/budget.h"
#include "moorage/cache.h"
#include "moorage/dispatch.h"
#include "moorage/placement.h"
#include "moorage/prefetch.h"
#include "moorage/router.h"
#include "moorage/transport.h"
#include "moorage/wire.h"

namespace moorage::core {

// Answers moorage.host.future/1. core/source/future.h has the one over traces.
class future_view {
public:
    virtual ~future_view() = default;
    virtual uint64_t next_use(uint32_t page, uint64_t step, uint64_t *token) = 0;
    // Back to the start of the trace.
    virtual void rewind() = 0;
};

// What an instance's services read. Everything is borrowed and outlives the instance.
struct environment {
    const moorage_residency *residency = nullptr;
    const moorage_costs *costs = nullptr;  // null: costs service answers null
    const uint64_t *now_ns = nullptr;      // null: the clock stands at 0
    future_view *future = nullptr;         // null: no such service
    uint64_t seed = 0;
    fault_log *faults = nullptr;  // takes what calls change of the process; null: errors say it
    std::string_view kind = {};   // in whose place the policy runs, for what it logs; "": any
};

class instance {
public:
    // Checks every setting against the declaration: an unknown key names the nearest one, a value
    // out of range names its limits; both name the place. `given` holds policy parameters only.
    static result<std::unique_ptr<instance>> create(const policy &from, const settings &given,
                                                    const environment &where);
    ~instance();  // deactivates if need be, destroys

    status activate(const moorage_limits &limits);
    void deactivate();
    // Resets the policy, its random stream and its future. Requires: active.
    void reset();

    // Calls a function of one of the tables below: every call of a policy in a run goes this way.
    //   policy.call(entry_point::victims, policy.cache->victims, &room, pages)
    template <class Answer, class... Parameters, class... Arguments>
    Answer call(entry_point which, Answer (*function)(moorage_plugin *, Parameters...),
                Arguments... arguments) {
        return caller_.call(which, function, arguments...);
    }
    // For a [control] call that goes another way.
    in_control marked() const { return in_control(*caller_.host); }
    // A [control] call of a table that may fail, such as placement's plan: a status other than OK
    // becomes an error with the policy's own text.
    status control(entry_point which, const std::function<int32_t(moorage_plugin *)> &work);

    // What the policy states of itself now; nothing where it states nothing. A fact without a sound
    // name or value is an error. [control]
    result<std::vector<fact>> state_facts();

    const policy &from() const;
    std::string_view name() const { return from().name(); }
    const moorage_limits &limits() const;
    moorage_plugin *plugin() const { return caller_.plugin; }
    // From now on the host's time in its functions goes to `to`, which is borrowed; null: nowhere.
    void time_calls(entry_times *to) { caller_.times = to; }
    // Resolved parameters, in declaration order: key and value.
    const std::vector<std::pair<std::string, setting_value>> &parameters() const;

    // Null where the instance is not of the kind. Inside, optional functions may be null.
    const moorage_observer *observer = nullptr;
    const moorage_facts *facts = nullptr;
    const moorage_replayer *replayer = nullptr;
    const moorage_router *router = nullptr;
    const moorage_cache *cache = nullptr;
    const moorage_budget *budget = nullptr;
    const moorage_prefetch *prefetch = nullptr;
    const moorage_dispatch *dispatch = nullptr;
    const moorage_transport *transport = nullptr;
    const moorage_placement *placement = nullptr;
    const moorage_wire *wire = nullptr;

    // Marks the calling thread as inside a [step] call to any instance while it lives
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
    policy_caller caller_;  // the content calls through it to its end
    std::unique_ptr<content> content_;
};

}  // namespace moorage::core
