// placement_stage.h - runs a placement policy: asks it for plans, checks them, weighs moves.
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
#include "tools/placement/plan.h"
#include "tools/placement/scene.h"

namespace moorage::core {

// The cost and the gain of going from one plan to another: moorage_move with its views. Borrows the
// scene and both plans. Requires: copies as check_plan() leaves them. `remote_call_s`: the measured
// time that a remote call adds to a layer. `interval_s`: time until the next decision.
class weighed_move {
public:
    weighed_move(const scene &scene, std::span<const moorage_copy> current,
                 std::span<const moorage_copy> candidate, double remote_call_s, double interval_s);
    weighed_move(const weighed_move &) = delete;
    const moorage_move &table() const { return table_; }

    const scene &weighed_scene() const { return scene_; }

private:
    const scene &scene_;
    moorage_cluster cluster_;
    moorage_demand demand_;
    moorage_move table_{};
};

// Prism's Eq. (3) and (4). True if the remote calls saved until the next decision, in seconds, are
// strictly more than the time to write the added copies and to give up the removed ones.
bool pays(const moorage_move &move);

// Expert calls per second that neither the home nor its server can compute (Prism, Eq. 2).
// Requires: copies as check_plan() leaves them.
double remote_per_s(const scene &scene, std::span<const moorage_copy> copies);

class placement_stage {
public:
    // Opens the policy that `config` names, with its parameters, for the scene's sizes.
    static result<std::unique_ptr<placement_stage>> open(const stage_config &config,
                                                         const registry &policies,
                                                         const scene &scene, uint64_t seed);

    std::string_view name() const { return policy_->name(); }
    const instance &policy() const { return *policy_; }
    // A checked plan with the policy's facts and its time. The error is the policy's refusal, or
    // what is wrong with its advice.
    result<plan> make(const scene &scene, std::span<const moorage_copy> current);
    // Decides by the policy's own rule, otherwise by pays().
    bool adopt(const weighed_move &move);

private:
    placement_stage() = default;

    std::unique_ptr<instance> policy_;
    std::vector<moorage_copy> copies_;
};

// The plan that a configuration begins with: that of [placement] plan, or the policy's plan from
// nothing. Requires: config.cluster, which the scene was made from.
struct first_plan {
    std::unique_ptr<placement_stage> policy;  // null: no policy is named
    plan placement;
};
result<first_plan> make_first_plan(const run_config &config, const registry &policies,
                                   const scene &scene);

}  // namespace moorage::core
