// real_cluster.h - the nodes of a cluster as the leader changes their plan. The rebalancer's
// requests become the next epoch. The members' messages become its answers.
//
// A requested copy is in the plan as coming. Once its server says that it is there, it holds the
// expert from the next epoch on. A copy that goes is in no later epoch. Its server keeps the expert
// until nobody calls by an earlier one. The server judges its own memory: copies that come wait
// there for copies that leave. So taking a copy away is complete once it is announced.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "tools/cluster/live_cluster.h"
#include "tools/node/plan_record.h"
#include "tools/placement/scene.h"

namespace moorage::core {

class real_cluster final : public live_cluster {
public:
    // Borrowed. Copies that were on their way by `in_force` are given up: the leader decides anew.
    real_cluster(const scene &cluster_scene, const plan_record &in_force);

    uint64_t now_ns() const override;  // since this object was made
    call_figures calls() const override { return calls_; }
    void bring(const migration_step &step) override;
    bool take(const moorage_copy &copy) override;
    void watch(cluster_watcher *observer) override { watcher_ = observer; }

    // [servers] that are there. So no server leaves as the only one that has an expert.
    void set_present(std::vector<uint8_t> present) { present_ = std::move(present); }
    void set_calls(const call_figures &figures) { calls_ = figures; }
    // A server reports that it has brought pages.
    void arrived(uint32_t server, const std::vector<uint32_t> &pages);
    // Gives up all copies on their way.
    void give_up();
    // The copies of the plan. If a server holds one without a place on a device of its own, it
    // counts for the first device.
    std::vector<moorage_copy> copies() const;
    // The next epoch, if anything has changed since the last call.
    std::optional<plan_record> take_next();
    // accept(): the epoch is in force. propose_again(): it is not, and has to be proposed again.
    void accept(uint64_t epoch) { plan_.epoch = epoch; }
    void propose_again() { changed_ = true; }
    const plan_record &plan() const { return plan_; }

private:
    struct sending {
        uint32_t step, page, server;
    };
    uint32_t server_of(uint32_t device) const { return scene_.cluster.device_server[device]; }

    const scene &scene_;
    const uint64_t begun_ns_;
    plan_record plan_;
    std::vector<std::vector<uint32_t>> devices_of_;  // [pages] ascending
    std::vector<uint8_t> present_;
    std::vector<sending> sent_;
    std::vector<uint32_t> target_devices_;  // [steps of sent_] their target devices
    call_figures calls_;
    cluster_watcher *watcher_ = nullptr;
    bool changed_ = false;
};

}  // namespace moorage::core
