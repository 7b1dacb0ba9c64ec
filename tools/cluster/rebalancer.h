// rebalancer.h - placement while a cluster serves. Counts the requests for experts, and decides at
// intervals whether a new plan pays. Moves experts copy by copy behind the demand (migration.h has
// the order).
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "core/base/fact.h"
#include "core/base/result.h"
#include "tools/cluster/live_cluster.h"
#include "tools/cluster/migration.h"
#include "tools/placement/placement_stage.h"
#include "tools/placement/statistics.h"
#include "core/report/cluster_report.h"

namespace moorage::core {

class rebalancer final : public cluster_watcher {
public:
    // All borrowed. `scene`: the scene on which decisions are based; its demand changes with them.
    // `policy` may be null: then nothing is ever decided. `first` is in force. Watches the cluster
    // from now on, unless nothing is ever decided.
    rebalancer(scene &scene, live_cluster &cluster, placement_stage *policy, const plan &first,
               const cluster_config &config, const migration_options &moving = {});

    // Time of the next decision. MOORAGE_NEVER: there is none.
    uint64_t next_ns() const { return decide_ns_; }
    // Decides. Requires: the clock is at next_ns() or later.
    status act();
    // Decides now. `say`: only says what would be done, and looks no further. `adopt`: without
    // asking the policy whether that pays. Requires: no migration is under way.
    enum class decision_mode : uint8_t { weigh, adopt, say };
    status decide(decision_mode mode);
    bool moving() const { return order_ != nullptr; }
    // Gives up what is under way. These copies are in force.
    void restart(std::vector<moorage_copy> copies) {
        order_.reset();
        copies_ = std::move(copies);
    }
    // An event has passed: copies that were in use may be free now.
    void look_again();
    void activated(uint32_t home, uint32_t expert, uint32_t tokens) override {
        window_.add(home, expert, tokens, cluster_.now_ns());
        asked_ = true;
    }
    void brought(uint32_t step) override;
    // The facts that the policy stated about its last plan.
    const std::vector<fact> &facts() const { return facts_; }
    // The plan in force, including copies that have arrived.
    std::vector<moorage_copy> copies() const { return order_ ? order_->copies() : copies_; }
    const std::vector<cluster_report::migration> &decisions() const { return decisions_; }

private:
    void start_copies();

    scene &scene_;
    live_cluster &cluster_;
    placement_stage *policy_;
    const cluster_config &config_;
    const migration_options moving_;
    activation_window window_;
    bool asked_ = false;  // there were requests; otherwise only the scene's demand is known
    uint64_t decide_ns_ = MOORAGE_NEVER;
    std::vector<moorage_copy> copies_;        // the plan when no migration is under way
    std::unique_ptr<migration_order> order_;  // null: no migration is under way
    std::vector<cluster_report::migration> decisions_;
    std::vector<fact> facts_;
};

}  // namespace moorage::core
