// cluster_registry.h - who takes part, which plan is in force, who decides on the next: what nodes
// of a cluster agree on while they run.
//
//   auto opened = open_registry(config.registry, cluster);
//   (*opened)->announce("two", what_it_says);
//   while (...) {
//       if (const auto changed = (*opened)->turn(wait_ns); !changed) ...    // not to be had now
//       use((*opened)->state());
//   }
//
// A registry that cannot be reached changes nothing: state() stays what was last seen, turn() says
// what is wrong and tries again. Texts are whatever somebody wrote there; they are bounded, and
// nothing else is known of them. One thread uses one registry; every call returns within
// call_ns_max, turn() within that and its wait.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>

#include "core/base/result.h"

namespace moorage::core {

struct registry_state {
    std::map<std::string, std::string> members;  // what each says of itself, while it is there
    std::string leader;                          // its name; empty: nobody leads
    uint64_t epoch = 0;                          // of the plan; 0: there is none
    std::string plan;
    std::map<std::string, std::string> notes;  // of commands to the leader, and its answers
    std::string damaged;  // why the plan that is there does not count; the one before it does
    bool operator==(const registry_state &) const = default;
};

// What the text of a plan is worth to whoever uses the registry: good, nonsense that the leader
// writes over, or a plan of another cluster, which is left to that one.
struct plan_opinion {
    enum class worth : uint8_t { good, nonsense, of_another } is = worth::good;
    std::string why;  // it is not good
};
using plan_judge = std::function<plan_opinion(uint64_t epoch, const std::string &text)>;

class cluster_registry {
public:
    // Epochs rise one by one: one that is far beyond that in force was not written by a leader.
    static constexpr uint64_t epoch_max = uint64_t{1} << 48, epoch_step_max = uint64_t{1} << 20;
    static constexpr size_t text_bytes_max = size_t{1} << 20, name_bytes_max = 128;
    static constexpr size_t members_max = 4096, notes_max = 64;
    static constexpr uint64_t call_ns_max = 10'000'000'000;

    virtual ~cluster_registry() = default;
    // Asked of every plan that is read, before anything of it counts. Without a judge every text is
    // good. Before the first turn.
    void judge_plans(plan_judge judge) { judge_ = std::move(judge); }
    // Takes in what has changed, and waits up to `wait_ns` for it. True: something has. It keeps
    // the membership, too: called once a second at least.
    virtual result<bool> turn(uint64_t wait_ns) = 0;
    const registry_state &state() const { return state_; }

    // This one is there, as `name`, from now until leave() or its process ends; it is seen to be
    // gone a few seconds later. Again: it says something else of itself.
    virtual status announce(const std::string &name, const std::string &text) = 0;
    virtual void leave() = 0;

    // Whether this one leads now: it did, or nobody does. Requires: announced.
    virtual result<bool> lead() = 0;
    // Whether it does as far as it knows; what it writes is refused where it no longer does.
    virtual bool leads() const = 0;
    // The plan of `epoch` in place of that of epoch `before` (0: of none). False: it is not the
    // one in force, or this one does not lead: somebody else was first. Requires: epoch > before.
    // After an error it may be in force all the same: turn() tells.
    virtual result<bool> put_plan(uint64_t before, uint64_t epoch, const std::string &text) = 0;
    // From anybody; the latest counts.
    virtual status put_note(const std::string &name, const std::string &text) = 0;
    // "etcd at 10.0.0.1:2379", for messages.
    virtual std::string where() const = 0;

protected:
    struct plan_seen {
        uint64_t epoch = 0;  // 0: nothing of it counts
        std::string text;
        std::string damaged;      // why nothing does
        bool of_another = false;  // and is not to be written over
    };
    // What stands in the place of the plan, against what is known. A member takes no plan that is
    // older than the one that it goes by.
    plan_seen judged(const std::string &place, const std::string &whole, bool is_member);

    registry_state state_;

private:
    plan_judge judge_;
    std::string judged_text_;  // of the latest plan that was judged, and what was said of it
    plan_opinion opinion_;
};

// Names of members and notes: 1 to 128 of a-z, A-Z, 0-9, '.', '_' and '-', not beginning with '.'.
// They become keys and names of files.
bool is_registry_name(const std::string &name);
// Refuses what is longer than text_bytes_max.
status check_registry_text(const std::string &what, const std::string &text);

// A plan as registries keep it: its epoch on a line of its own before it.
std::string with_epoch(uint64_t epoch, const std::string &text);
// False: it is no such text, or of an epoch that is 0 or above epoch_max.
bool split_epoch(const std::string &whole, uint64_t &epoch, std::string &text);

}  // namespace moorage::core
