// etcd_registry.h - a registry in etcd 3.4, through its JSON gateway.
//
//   PREFIX/members/NAME   what a member says, under a lease of lease_s
//   PREFIX/leader         the leader's name, under its lease
//   PREFIX/plan           epoch and plan; written where it is still the one that was read, and the
//                         leader's key still as this process wrote it
//   PREFIX/notes/NAME
//   PREFIX/beat           written by the leader once a second
//
// Everything under the prefix is read once and then watched. A watch that says nothing for
// silence_ns, not even the leader's beat, may be of a member that was cut off: the next endpoint is
// watched from the last revision on. Where that was compacted away, all is read again. A lease that
// is gone is made anew, with the same name.
//
// A leader's key that is not under the lease of the member that it names was written by nobody who
// leads: a member takes it over after ownerless_ns. The leader writes the plan in force over one
// that cannot be used, and where there is none.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/registry/cluster_registry.h"
#include "core/registry/etcd_client.h"
#include "core/registry/etcd_values.h"

namespace moorage::core {

class etcd_registry final : public cluster_registry {
public:
    static constexpr uint64_t lease_s = 5, keep_ns = 1'500'000'000, beat_ns = 1'000'000'000,
                              silence_ns = 3'000'000'000,
                              ownerless_ns = (lease_s + 1) * 1'000'000'000;

    // Nothing is asked yet.
    etcd_registry(std::unique_ptr<etcd_client> etcd, const std::string &prefix);
    ~etcd_registry() override;

    result<bool> turn(uint64_t wait_ns) override;
    status announce(const std::string &name, const std::string &text) override;
    void leave() override;
    result<bool> lead() override;
    bool leads() const override { return lease_ != 0 && leader_.lease == lease_; }
    result<bool> put_plan(uint64_t before, uint64_t epoch, const std::string &text) override;
    status put_note(const std::string &name, const std::string &text) override;
    std::string where() const override;

private:
    result<bool> take_turn(uint64_t wait_ns);
    status keep_lease();
    status say();
    status beat();
    status read_all();
    status follow(bool elsewhere);
    status take_line(const std::string &line);
    void take(const etcd_pair &of, bool gone);
    void take_plan();
    status keep_plan();
    bool has_leader();
    result<bool> write_plan(uint64_t epoch, const std::string &text);
    json put_request(const std::string &key, const std::string &value, bool leased) const;
    json unchanged(const std::string &key, const etcd_pair &read) const;
    result<bool> decide(const json &compares, const json &then);
    void lost_lease();

    const std::string prefix_;
    const std::unique_ptr<etcd_client> etcd_;
    std::string name_, text_;   // of this member; empty: it does not take part
    uint64_t lease_ = 0;        // 0: none
    uint64_t other_lease_ = 0;  // of another node of its name, told of; 0: there was none
    bool said_ = false;         // under the lease
    uint64_t kept_ns_ = 0, beat_ns_ = 0, heard_ns_ = 0;
    uint64_t revision_ = 0;  // up to which the state is known
    bool known_ = false;     // everything was read
    bool changed_ = false;
    bool answers_ = true;  // the last turn went well
    etcd_pair leader_, plan_;
    bool plan_stays_ = false;                        // it is good, or of another cluster
    std::map<std::string, uint64_t> member_leases_;  // of those in state_.members
    uint64_t ownerless_since_ns_ = 0;                // of the leader's key; 0: it is somebody's
};

}  // namespace moorage::core
