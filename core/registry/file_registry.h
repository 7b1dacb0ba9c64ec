// file_registry.h - a registry in a directory, for nodes of one machine; or of nothing at all.
//
//   DIR/plan            epoch on the first line, the plan behind it; replaced as a whole, also by
//                       hand
//   DIR/members/NAME    what a member says; NAME.alive is locked while its process is there
//   DIR/leader          the leader's name; leader.alive is locked while it leads
//   DIR/notes/NAME
//
// Who holds a lock is there: the system takes it from a process that ends, however it ends. So a
// death is seen at the next look, and no lease runs out. Changes are found by looking, every
// look_ns. What is no file in the place of one (a pipe, a link, a device) is not opened, and makes
// way where something is to be written; no lock is waited for longer than lock_ns. Without a
// directory it has nothing, takes nothing and never changes: a cluster whose file is all that its
// nodes know.
#pragma once

#include <filesystem>
#include <memory>

#include "core/registry/cluster_registry.h"

namespace moorage::core {

class file_registry final : public cluster_registry {
public:
    static constexpr uint64_t look_ns = 50'000'000, lock_ns = 500'000'000;
    // A leader that is no member for so long is none.
    static constexpr uint64_t ownerless_ns = 3'000'000'000;

    // Makes the directory where it is not there, if `make`; else that is an error. Empty: no
    // registry.
    static result<std::unique_ptr<cluster_registry>> open(const std::filesystem::path &directory,
                                                          bool make = true);
    ~file_registry() override;

    result<bool> turn(uint64_t wait_ns) override;
    status announce(const std::string &name, const std::string &text) override;
    void leave() override;
    result<bool> lead() override;
    bool leads() const override { return lead_ >= 0; }
    result<bool> put_plan(uint64_t before, uint64_t epoch, const std::string &text) override;
    status put_note(const std::string &name, const std::string &text) override;
    std::string where() const override;

private:
    explicit file_registry(std::filesystem::path directory) : directory_(std::move(directory)) {}
    result<registry_state> look();
    void look_at_plan(registry_state &seen);
    status write_plan(uint64_t epoch, const std::string &text);
    // Whoever removed the directory removed what is locked: this one says itself again, and the
    // plan in force, which those who come later are to go by.
    status keep(const registry_state &seen);
    status keep_plan();
    status lead_is_taken();

    const std::filesystem::path directory_;
    std::string name_, text_;  // of this member; empty: it does not take part
    uint64_t written_ = 0;  // epoch of the plan that is there; 0: none, or one to be written over
    uint64_t ownerless_since_ns_ = 0;  // that somebody who is no member leads; 0: it is not so
    int alive_ = -1, lead_ = -1;       // files that are locked; -1: not
};

}  // namespace moorage::core
