// placement_stage.h - a placement policy at work: asks it for plans, checks them, weighs moves.
//
//   auto stage = placement_stage::open(config.placement, policies, scene, seed);
//   auto first = (*stage)->make(scene, {});
//   ...                                                  // the scene's statistics change
//   auto next = (*stage)->make(scene, first->copies);
//   if ((*stage)->adopt({scene, first->copies, next->copies, remote_call_s, 300})) ...
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "core/base/result.h"
#include "core/config/run_config.h"
#include "core/host/instance.h"
#include "core/host/registry.h"
#include "core/placement/plan.h"
#include "core/placement/scene.h"

namespace moorage::core {

// What going from one plan to the other costs and brings: moorage_move with the views it points to.
// Borrows the scene and both plans. Requires: copies as check_plan() leaves them. `remote_call_s`:
// what a remote call adds to a layer, as measured; `interval_s`: until the next decision.
class weighed_move {
public:
    weighed_move(const scene &of, std::span<const moorage_copy> current,
                 std::span<const moorage_copy> candidate, double remote_call_s, double interval_s);
    weighed_move(const weighed_move &) = delete;
    const moorage_move &table() const { return table_; }

    const scene &of() const { return of_; }

private:
    const scene &of_;
    moorage_cluster cluster_;
    moorage_demand demand_;
    moorage_move table_{};
};

// Prism's Eq. (3) and (4): remote calls saved until the next decision, in seconds, are more than
// the time it takes to write the added copies and to give up the removed ones. Strictly more.
bool pays(const moorage_move &move);

// Expert calls per second that neither the home nor its server can take (Prism, Eq. 2). Requires:
// copies as check_plan() leaves them.
double remote_per_s(const scene &of, std::span<const moorage_copy> copies);

class placement_stage {
public:
    // The policy that `config` names, with its parameters, activated for the scene's sizes.
    static result<std::unique_ptr<placement_stage>> open(const stage_config &config,
                                                         const registry &policies, const scene &of,
                                                         uint64_t seed);

    std::string_view name() const { return policy_->name(); }
    const instance &policy() const { return *policy_; }
    // A checked plan with the policy's facts and its time. The policy's refusal, or what is wrong
    // with its advice, is the error.
    result<plan> make(const scene &of, std::span<const moorage_copy> current);
    // The policy's own rule, or pays().
    bool adopt(const weighed_move &move);

private:
    placement_stage() = default;

    std::unique_ptr<instance> policy_;
    std::vector<moorage_copy> copies_;
};

// The plan that a configuration begins with: the one that [placement] plan names, or what its
// policy makes of nothing. Requires: config.cluster, which the scene is of.
struct first_plan {
    std::unique_ptr<placement_stage> policy;  // null: none is named
    plan made;
};
result<first_plan> make_first_plan(const run_config &config, const registry &policies,
                                   const scene &of);

}  // namespace moorage::core
