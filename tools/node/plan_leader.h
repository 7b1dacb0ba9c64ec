// plan_leader.h - decides on plans while a cluster serves: the rebalancer of the emulated cluster
// over real nodes. Every node of a registry has one. Only the one whose node leads does something.
//
// It counts what homes ask for. At the intervals of [placement] it checks whether another plan
// pays. It decides at once when a server has died, come back or is to be drained. A server that is
// away or drained has no room in the plan. Experts that only it holds are brought elsewhere, from
// its own memory or from disk. Commands ask by notes of the registry: wish {"id", "what":
// "rebalance" | "look"}, drained ["NAME", ...]. Answers are in the note "answer" {"id", ...}. One
// thread, beside registrar's.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "core/base/steady_time.h"
#include "tools/cluster/rebalancer.h"
#include "core/config/run_config.h"
#include "tools/node/real_cluster.h"
#include "tools/node/registrar.h"
#include "tools/node/watch.h"

namespace moorage::core {

class plan_leader {
public:
    static constexpr uint64_t away_ns = 6'000'000'000;  // after the start, until all have come
    // How long a member may be silent. A member that came back is looked for every 5 s.
    static constexpr uint64_t silent_ns = 6'000'000'000;

    // All borrowed but the scene. `policy` may be null: only drains and deaths change the plan, and
    // nothing is weighed. `heartbeats` may be null.
    plan_leader(scene cluster_scene, std::unique_ptr<placement_stage> policy,
                const cluster_config &config, const node_plan &plan, leader_desk &desk,
                plan_board &board, const watch *heartbeats);
    ~plan_leader();
    void begin();
    // One round; begin() repeats it. For tests.
    void step();
    // Time of its thread's last round.
    uint64_t turned_ns() const { return turned_ns_.load(std::memory_order_relaxed); }

private:
    struct known {  // the registry's state at the last look
        uint64_t version = 0;
        std::map<uint32_t, member_record> members;
        std::vector<uint8_t> present;  // [servers] there, and not drained
        std::vector<uint8_t> drained;
        std::vector<uint8_t> member;
        std::vector<uint64_t> missed_ns;  // [servers] since when it is silent; 0: it is not
    };
    bool take_state(const leader_desk::snapshot &seen);
    bool take_presence(const registry_state &state);
    void start(const plan_record &in_force);
    void restart();
    void take_measured();
    void take_demand();
    void take_wish(const registry_state &state);
    void decide(rebalancer::decision_mode mode, const std::string &id);
    void write(const registry_state &state);

    scene scene_;
    const std::vector<uint64_t> device_bytes_;  // if all servers are there
    const std::unique_ptr<placement_stage> policy_;
    const cluster_config config_;
    const node_plan &plan_;
    leader_desk &desk_;
    plan_board &board_;
    const watch *const heartbeats_;
    known known_;
    std::unique_ptr<real_cluster> cluster_;  // null: this node does not lead
    std::unique_ptr<rebalancer> balance_;
    uint64_t proposed_ = 0, proposed_ns_ = 0, since_ns_ = 0;  // 0: no proposal is out
    bool repair_ = false;
    std::string wish_;  // id of the last wish that was handled
    std::atomic<bool> stopping_ = false;
    std::atomic<uint64_t> turned_ns_ = steady_ns();
    std::thread thread_;
};

}  // namespace moorage::core
