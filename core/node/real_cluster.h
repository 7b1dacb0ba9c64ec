// real_cluster.h - the nodes of a cluster as whoever leads changes their plan: what the rebalancer
// asks for becomes the next epoch, what members say becomes its answers.
//
// A copy that is asked for stands in the plan as coming; once its server says that it is there it
// holds the expert from the next epoch on. A copy that goes stands in no later epoch; its server
// keeps the expert until nobody calls by an earlier one, and is the judge of its own memory: what
// comes waits there for what leaves. So taking a copy away is done when it is said.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "core/cluster/live_cluster.h"
#include "core/node/plan_record.h"
#include "core/placement/scene.h"

namespace moorage::core {

class real_cluster final : public live_cluster {
public:
    // Borrowed. Copies that were on their way by `in_force` are given up: whoever leads decides
    // anew.
    real_cluster(const scene &of, const plan_record &in_force);

    uint64_t now_ns() const override;  // since it was made
    call_figures calls() const override { return calls_; }
    void bring(const migration_step &step) override;
    bool take(const moorage_copy &copy) override;
    void watch(cluster_watcher *by) override { watcher_ = by; }

    // [servers] who is there, so that nobody is left the only one to have an expert by leaving.
    void set_present(std::vector<uint8_t> present) { present_ = std::move(present); }
    void set_calls(const call_figures &of) { calls_ = of; }
    // A server says that it has brought pages.
    void arrived(uint32_t server, const std::vector<uint32_t> &pages);
    // No copy is on its way any more.
    void give_up();
    // The copies of the plan, and those of whom a server holds without a place of its own device,
    // on its first.
    std::vector<moorage_copy> copies() const;
    // The next epoch, where anything has changed since it was last asked for.
    std::optional<plan_record> next();
    // It is in force; or it is not, and is asked for again.
    void accept(uint64_t epoch) { plan_.epoch = epoch; }
    void again() { changed_ = true; }
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
    std::vector<uint32_t> devices_to_;  // [steps of sent_]
    call_figures calls_;
    cluster_watcher *watcher_ = nullptr;
    bool changed_ = false;
};

}  // namespace moorage::core
