// file_registry.h - a registry in a directory, for nodes on one machine; or an empty registry.
//
//   DIR/plan            epoch on the first line, then the plan; replaced as a whole, also by hand
//   DIR/members/NAME    the text of a member; its process holds a lock on NAME.alive
//   DIR/leader          the leader's name; it holds a lock on leader.alive
//   DIR/notes/NAME
//
// A lock proves that its process is alive: the system releases it when the process ends, for
// whatever reason. So a death is seen at the next look, without leases. Changes are found by
// looking every look_ns. An entry that should be a file but is not (a pipe, a link, a device) is
// not opened. It is removed if a file must be written there. Waiting for a lock is limited to
// lock_ns.
//
// Without a directory the registry is empty, accepts nothing and never changes. Then the nodes know
// only their cluster's file.
#pragma once

#include <filesystem>
#include <memory>

#include "tools/registry/cluster_registry.h"

namespace moorage::core {

class file_registry final : public cluster_registry {
public:
    static constexpr uint64_t look_ns = 50'000'000, lock_ns = 500'000'000;
    // A leader that is no member for this long loses the leadership.
    static constexpr uint64_t ownerless_ns = 3'000'000'000;

    // `make`: creates the directory if it is missing; otherwise a missing directory is an error.
    // Empty path: an empty registry.
    static result<std::unique_ptr<cluster_registry>> open(const std::filesystem::path &directory,
                                                          bool make = true);
    ~file_registry() override;

    result<bool> turn(uint64_t wait_ns) override;
    status announce(const std::string &name, const std::string &text) override;
    void leave() override;
    result<bool> lead() override;
    bool leads() const override { return lead_ >= 0; }
    result<bool> put_plan(uint64_t old_epoch, uint64_t epoch, const std::string &text) override;
    status put_note(const std::string &name, const std::string &text) override;
    std::string location() const override;

private:
    explicit file_registry(std::filesystem::path directory) : directory_(std::move(directory)) {}
    result<registry_state> look();
    void look_at_plan(registry_state &seen);
    status write_plan(uint64_t epoch, const std::string &text);
    // Restores this member and the plan in force if somebody removed the directory and with it the
    // locked files. Nodes that come later need the plan.
    status keep(const registry_state &seen);
    status keep_plan();
    status lead_is_taken();

    const std::filesystem::path directory_;
    std::string name_, text_;  // of this member; empty: it is not a member
    uint64_t written_ = 0;     // epoch of the stored plan; 0: none, or one to be overwritten
    uint64_t ownerless_since_ns_ = 0;  // since when the leader is no member; 0: it is one
    int alive_ = -1, lead_ = -1;       // locked files; -1: not locked
};

}  // namespace moorage::core
