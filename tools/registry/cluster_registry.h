// cluster_registry.h - what the nodes of a cluster agree on while they run: the members, the plan
// in force, and the leader that decides on the next plan.
//
//   auto opened = open_registry(config.registry, cluster);
//   (*opened)->announce("two", its_text);
//   while (...) {
//       if (const auto changed = (*opened)->turn(wait_ns); !changed) ...    // not reachable now
//       use((*opened)->state());
//   }
//
// A registry that cannot be reached changes nothing: state() keeps what was last seen, and turn()
// returns the error and tries again. Texts in the registry may have been written by anybody. Their
// length is limited, and nothing else about them is certain. Only one thread uses a registry. Every
// call returns within call_ns_max, turn() within that and its wait.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>

#include "core/base/result.h"

namespace moorage::core {

struct registry_state {
    std::map<std::string, std::string> members;  // the text of each present member
    std::string leader;                          // its name; empty: there is no leader
    uint64_t epoch = 0;                          // of the plan; 0: none
    std::string plan;
    std::map<std::string, std::string> notes;  // commands to the leader, and its answers
    std::string damaged;  // why the plan that is stored is ignored; the one before it stays in
                          // force
    bool operator==(const registry_state &) const = default;
};

// How the user of the registry judges the text of a plan: good, nonsense that the leader
// overwrites, or a plan of another cluster, which is left alone.
struct plan_opinion {
    enum class worth : uint8_t { good, nonsense, of_other_cluster } verdict = worth::good;
    std::string reason;  // why it is not good
};
using plan_judge = std::function<plan_opinion(uint64_t epoch, const std::string &text)>;

class cluster_registry {
public:
    // Epochs rise one by one. A leader did not write an epoch that is far above the current one.
    static constexpr uint64_t epoch_max = uint64_t{1} << 48, epoch_step_max = uint64_t{1} << 20;
    static constexpr size_t text_bytes_max = size_t{1} << 20, name_bytes_max = 128;
    static constexpr size_t members_max = 4096, notes_max = 64;
    static constexpr uint64_t call_ns_max = 10'000'000'000;

    virtual ~cluster_registry() = default;
    // Sets the judge, which sees every plan before any of it is used. Without a judge every text is
    // good. Call it before the first turn.
    void set_plan_judge(plan_judge judge) { judge_ = std::move(judge); }
    // Takes in changes and waits for them up to `wait_ns`. True: something has changed. It also
    // keeps the membership alive, so call it at least once a second.
    virtual result<bool> turn(uint64_t wait_ns) = 0;
    const registry_state &state() const { return state_; }

    // Makes this node a member called `name`, until leave() or the end of its process. Others
    // notice the end within a few seconds. A second call changes its text.
    virtual status announce(const std::string &name, const std::string &text) = 0;
    virtual void leave() = 0;

    // Tries to become the leader. True: this node leads now, because it did before or because there
    // was no leader. Requires: announced.
    virtual result<bool> lead() = 0;
    // Does this node lead, as far as it knows? If it no longer does, its writes are refused.
    virtual bool leads() const = 0;
    // Replaces the plan of epoch `old_epoch` (0: none) by that of `epoch`. False: `old_epoch` is
    // not in force or this node does not lead, so another node was first. Requires: epoch >
    // old_epoch. After an error the plan may be in force anyway; turn() will tell.
    virtual result<bool> put_plan(uint64_t old_epoch, uint64_t epoch, const std::string &text) = 0;
    // Any node may write a note. The latest one counts.
    virtual status put_note(const std::string &name, const std::string &text) = 0;
    // "etcd at 10.0.0.1:2379", for messages.
    virtual std::string location() const = 0;

protected:
    struct plan_seen {
        uint64_t epoch = 0;  // 0: none of it is used
        std::string text;
        std::string damaged;            // why none is used
        bool of_other_cluster = false;  // then it must not be overwritten
    };
    // Compares the text stored as the plan with what is known. A member accepts no plan that is
    // older than its own.
    plan_seen check_stored_plan(const std::string &place, const std::string &stored_text,
                                bool is_member);

    registry_state state_;

private:
    plan_judge judge_;
    std::string judged_text_;  // text of the latest plan that was judged, and the verdict
    plan_opinion opinion_;
};

// Names of members and notes: 1 to 128 of a-z, A-Z, 0-9, '.', '_' and '-', not beginning with '.'.
// They become keys and file names.
bool is_registry_name(const std::string &name);
// Refuses text longer than text_bytes_max.
status check_registry_text(const std::string &subject, const std::string &text);

// A plan as registries store it: the epoch on the first line, then the plan.
std::string with_epoch(uint64_t epoch, const std::string &text);
// False: not such a text, or an epoch that is 0 or above epoch_max.
bool split_epoch(const std::string &stored_text, uint64_t &epoch, std::string &text);

}  // namespace moorage::core
