// any_registry.h - a registry of either kind under a test's control: opened, and turned until a
// condition holds.
#pragma once

#include <doctest/doctest.h>

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "core/base/steady_time.h"
#include "tools/registry/etcd_registry.h"
#include "tools/registry/file_registry.h"
#include "tests/unit/toy_machine.h"

namespace moorage::test {

using core::cluster_registry;
using core::etcd_registry;
using core::file_registry;
using core::registry_state;
using core::steady_ns;

using opened = std::unique_ptr<cluster_registry>;
using opener = std::function<opened()>;

// Turns until the condition holds. A registry may be in trouble meanwhile.
inline bool wait_until(cluster_registry &registry,
                       const std::function<bool(const registry_state &)> &condition) {
    for (const uint64_t end_ns = steady_ns() + 30'000'000'000; steady_ns() < end_ns;) {
        if (condition(registry.state())) return true;
        const auto turned = registry.turn(100'000'000);
        if (!turned) std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    return false;
}

inline bool wait_to_lead(cluster_registry &registry) {
    for (int tries = 0; tries < 200; ++tries) {
        const auto turned = registry.turn(20'000'000);
        const auto led = registry.lead();
        if (led && *led) return true;
    }
    return false;
}

inline void announce(cluster_registry &registry, const std::string &name, const std::string &text) {
    bool said = false;
    for (int tries = 0; tries < 50 && !said; ++tries) said = registry.announce(name, text).ok();
    REQUIRE(said);
}

inline bool has_note(const registry_state &state, const std::string &name,
                     const std::string &text) {
    return state.notes.contains(name) && state.notes.at(name) == text;
}

inline opener directory_opener(const toy::folder &folder) {
    return [&folder] {
        auto registry = file_registry::open(folder.path() / "registry");
        REQUIRE(registry.ok());
        return std::move(*registry);
    };
}

inline opener at_endpoints(std::vector<std::string> endpoints, std::string prefix = "test") {
    return [endpoints = std::move(endpoints), prefix = std::move(prefix)] {
        auto client = core::open_etcd_client(endpoints);
        REQUIRE(client.ok());
        return std::make_unique<etcd_registry>(std::move(*client), prefix);
    };
}

}  // namespace moorage::test
