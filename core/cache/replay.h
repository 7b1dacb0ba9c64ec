// replay.h - counting replay: the hits and misses of a cache policy on a trace. Counts, no times.
//
//   replay_job job{.cache_policy = *policies.find("lru", "cache"), .slots = 128};
//   auto counted = replay(source, nullptr, job);
//   if (counted) counted->misses;
//
// A replay uses the policy's own replay function (the fast path, sdk/include/moorage/replay.hpp)
// and checks every outcome. If there is none, or if it does something impossible, the run goes step
// by step through the cache stage. Both ways make the same decisions. [control]
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/result.h"
#include "core/base/setting.h"
#include "core/host/faults.h"
#include "core/host/registry.h"
#include "core/source/future.h"
#include "core/source/trace.h"

namespace moorage::core {

enum class sharing { shared, per_layer };

// One run: a policy, a cache, and an order of the requests.
struct replay_job {
    const policy *cache_policy = nullptr;  // borrowed
    settings params = {};
    uint32_t slots = 0;  // slots of all layers together
    sharing pools = sharing::shared;
    order requests = order::token;
    uint64_t seed = 0;
    uint64_t tokens = 0;  // the first tokens of the trace; 0: all
    on_fault action = on_fault::abort;
    bool stepwise = false;  // leave the policy's replay function alone
    bool optimum =
        false;  // count the misses of the offline optimum (optimum.h), without the policy
};

struct replay_result {
    uint64_t requests = 0;  // hits + misses
    uint64_t hits = 0;
    uint64_t misses = 0;
    uint64_t bypasses = 0;  // part of the misses: served without getting a slot
    std::vector<uint64_t> layer_misses;
    uint64_t faults = 0;
    double seconds = 0;  // wall clock of the run itself, without creation and activation
    bool fast = false;   // went through the policy's replay function
    std::vector<std::pair<std::string, setting_value>> parameters;  // resolved
};

// Refuses a job whose policy needs something that this trace, or a replay in this order, cannot
// give.
status check_replay(const trace &source, const replay_job &job);

// An optimum job counts the misses of the whole replay, not of a layer or a policy.
replay_result count_optimum(const trace &source, const replay_job &job);

// Called from time to time with the number of requests done since the last call. Any thread.
using replay_progress = std::function<void(uint64_t requests)>;

// `future`: the future of the same tokens of the trace. May be null if the policy does not need it.
// Fails if check_replay does, if the policy cannot be created, and on a fault if the job says
// abort.
result<replay_result> replay(const trace &source, const future *future, const replay_job &job,
                             const replay_progress &progress = {});

// Up to so many slots, a shared lru hits nothing, whatever the routing. So many other experts are
// requested between any two requests of an expert in one layer.
uint32_t slots_without_lru_hits(uint32_t layers, uint32_t top_k, order requests);

result<order> parse_order(std::string_view text);
result<sharing> parse_sharing(std::string_view text);
const char *name_of(order value);
const char *name_of(sharing value);

}  // namespace moorage::core
