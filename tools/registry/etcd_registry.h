// etcd_registry.h - a registry in etcd 3.4, through its JSON gateway.
//
//   PREFIX/members/NAME   the text of a member, under a lease of lease_s
//   PREFIX/leader         the leader's name, under its lease
//   PREFIX/plan           epoch and plan; written only if it is still the one that was read, and
//                         the leader's key is still as this process wrote it
//   PREFIX/notes/NAME
//   PREFIX/beat           written by the leader once a second
//
// All keys under the prefix are read once and then watched. If a watch is silent for silence_ns,
// without even the leader's beat, its etcd member may be cut off. Then the next endpoint is watched
// from the last revision on. If that revision was compacted away, everything is read again. A lost
// lease is created again, with the same name.
//
// A leader's key must be under the lease of the member that it names. Otherwise nobody leads, and a
// member takes the key over after ownerless_ns. If the stored plan is unusable or missing, the
// leader writes the plan in force.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tools/registry/cluster_registry.h"
#include "tools/registry/etcd_client.h"
#include "tools/registry/etcd_values.h"

namespace moorage::core {

class etcd_registry final : public cluster_registry {
public:
    static constexpr uint64_t lease_s = 5, keep_ns = 1'500'000'000, beat_ns = 1'000'000'000,
                              silence_ns = 3'000'000'000,
                              ownerless_ns = (lease_s + 1) * 1'000'000'000;

    // Sends no request yet.
    etcd_registry(std::unique_ptr<etcd_client> etcd, const std::string &prefix);
    ~etcd_registry() override;

    result<bool> turn(uint64_t wait_ns) override;
    status announce(const std::string &name, const std::string &text) override;
    void leave() override;
    result<bool> lead() override;
    bool leads() const override { return lease_ != 0 && leader_.lease == lease_; }
    result<bool> put_plan(uint64_t old_epoch, uint64_t epoch, const std::string &text) override;
    status put_note(const std::string &name, const std::string &text) override;
    std::string location() const override;

private:
    result<bool> take_turn(uint64_t wait_ns);
    status keep_lease();
    status write_member();
    status beat();
    status read_all();
    status follow(bool elsewhere);
    status take_line(const std::string &line);
    void take(const etcd_pair &pair, bool gone);
    void take_plan();
    status keep_plan();
    bool has_leader();
    result<bool> write_plan(uint64_t epoch, const std::string &text);
    json put_request(const std::string &key, const std::string &value, bool leased) const;
    json unchanged(const std::string &key, const etcd_pair &read) const;
    result<bool> run_transaction(const json &compares, const json &put);
    void lost_lease();

    const std::string prefix_;
    const std::unique_ptr<etcd_client> etcd_;
    std::string name_, text_;    // of this member; empty: it is not a member
    uint64_t lease_ = 0;         // 0: none
    uint64_t other_lease_ = 0;   // of another node with its name, already reported; 0: none
    bool is_announced_ = false;  // text_ is written under the lease
    uint64_t kept_ns_ = 0, beat_ns_ = 0, heard_ns_ = 0;
    uint64_t revision_ = 0;  // the state is known up to this revision
    bool known_ = false;     // everything was read
    bool changed_ = false;
    bool answers_ = true;  // the last turn went well
    etcd_pair leader_, plan_;
    bool plan_stays_ = false;                        // the stored plan is good, or of another
                                                     // cluster
    std::map<std::string, uint64_t> member_leases_;  // of those in state_.members
    uint64_t ownerless_since_ns_ = 0;                // since when the leader's key has no valid
                                                     // owner; 0: it has one
};

}  // namespace moorage::core
