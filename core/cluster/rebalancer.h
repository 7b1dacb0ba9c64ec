// rebalancer.h - placement while a cluster serves: counts what is asked, decides at intervals
// whether a new plan pays, and moves experts copy by copy behind the demand.
//
// A copy crosses the links as migration traffic, is then written to its device at the device's own
// rate, and can be called from that moment on (migration.h has the order, network.h the budgets).
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "core/base/result.h"
#include "core/cluster/cluster_emulator.h"
#include "core/cluster/migration.h"
#include "core/placement/placement_stage.h"
#include "core/placement/statistics.h"
#include "core/report/cluster_report.h"

namespace moorage::core {

class rebalancer {
public:
    // All borrowed; `of` is what decisions are made on, and its demand changes with them. `policy`
    // may be null: nothing is ever decided. `first` is in force. Installs itself as what the
    // emulator tells of migration and activations.
    rebalancer(scene &of, cluster_emulator &all, placement_stage *policy, const plan &first,
               const cluster_config &config);

    // When it has something to do; MOORAGE_NEVER: only when the emulator tells it something.
    uint64_t next_ns() const;
    // Does it. Requires: the clock stands at next_ns().
    status act();
    // An event has gone by: copies that were in use may be free now.
    void look_again();
    // The plan in force, what has arrived included.
    std::vector<moorage_copy> copies() const { return order_ ? order_->copies() : copies_; }
    const std::vector<cluster_report::migration> &decisions() const { return decisions_; }

private:
    struct writing {
        uint64_t at_ns;
        uint32_t step;
        moorage_copy copy;
    };
    status decide();
    void start_copies();
    void arrived(const delivery &done);
    void written(const writing &one);

    scene &scene_;
    cluster_emulator &all_;
    placement_stage *policy_;
    const cluster_config &config_;
    activation_window window_;
    uint64_t decide_ns_ = MOORAGE_NEVER;
    std::vector<moorage_copy> copies_;        // when no migration is under way
    std::unique_ptr<migration_order> order_;  // null: none under way
    std::vector<migration_step> steps_;       // by id
    std::vector<writing> writing_;            // few: one a device
    std::vector<uint64_t> device_free_ns_;    // of what is written to it
    std::vector<cluster_report::migration> decisions_;
};

}  // namespace moorage::core
