// registrar.h - keeps a node in touch with the registry, on a thread of its own. Reports that the
// node is there, brings newer plans to its board, tries to lead, and writes the leader's decisions.
//
// While the registry cannot be reached, the node goes on with its plan. view() says since when. The
// log says when that begins and ends.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "core/base/steady_time.h"
#include "tools/node/plan_board.h"
#include "tools/registry/cluster_registry.h"

namespace moorage::core {

// The state of the registry as this node sees it, for /status.
struct registry_view {
    std::string location, leader, trouble;  // trouble: why it cannot be reached; empty: it can
    std::string damaged;  // why the registry's plan does not count; empty: it does
    bool leads = false;
    uint64_t epoch = 0;     // epoch of the registry's plan
    uint64_t heard_ns = 0;  // when it was last reached, by the steady clock
    std::vector<std::string> members;
};

// The exchange between registrar and leader. One way: what the registry says. The other way: a plan
// or an answer to be written.
class leader_desk {
public:
    struct proposal {
        uint64_t old_epoch;
        plan_record next;
    };
    struct snapshot {
        bool leads = false;
        uint64_t version = 0;  // changes each time that something has changed
        registry_state state;
    };
    // For the leader's thread.
    snapshot look() const;
    // Replaces a proposal that was not written yet.
    void propose(proposal proposed);
    void answer(std::string text);

    // For the registrar.
    void show(bool leads, const registry_state &state);
    std::optional<proposal> take_proposal();
    std::optional<std::string> take_answer();

private:
    mutable std::mutex guard_;
    snapshot seen_;
    std::optional<proposal> proposal_;
    std::optional<std::string> answer_;
};

constexpr const char *wish_note = "wish", *answer_note = "answer", *drained_note = "drained";

class registrar {
public:
    struct parts {
        std::unique_ptr<cluster_registry> registry;
        node_plan plan;               // cluster and model, and the members
        std::string name;             // name of the member; empty: it follows and reports nothing
        plan_board *board;            // borrowed
        leader_desk *desk = nullptr;  // borrowed; null: it does not try to lead
        std::function<void()> wake;   // wakes the node's loop when there is a newer plan
    };
    explicit registrar(parts config);
    ~registrar();
    void begin();
    // Waits until the registry has answered, or could not be reached; at most `wait_ns`.
    void wait_for_first(uint64_t wait_ns) const;
    registry_view view() const;
    // Time of its thread's last round.
    uint64_t turned_ns() const { return turned_ns_.load(std::memory_order_relaxed); }

private:
    void run();
    void turn();
    void take_plan();
    void write_for_leader();
    void note_trouble(const std::string &text);
    void note_fault(const char *fault, const status &done);

    parts config_;
    const uint64_t begun_ns_;
    std::string announced_text_;
    uint64_t said_ns_ = 0, led_ns_ = 0, seen_epoch_ = 0;
    std::string refused_;                        // a plan that was not accepted, reported once
    std::map<std::string, std::string> faults_;  // faults under way, and their reasons
    mutable std::mutex guard_;
    registry_view view_;
    std::atomic<bool> stopping_ = false, has_looked_ = false;
    std::atomic<uint64_t> turned_ns_ = steady_ns();
    std::thread thread_;
};

}  // namespace moorage::core
