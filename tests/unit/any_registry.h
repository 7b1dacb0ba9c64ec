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
#include "core/registry/etcd_registry.h"
#include "core/registry/file_registry.h"
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
inline bool comes(cluster_registry &of, const std::function<bool(const registry_state &)> &so) {
    for (const uint64_t end_ns = steady_ns() + 30'000'000'000; steady_ns() < end_ns;) {
        if (so(of.state())) return true;
        const auto turned = of.turn(100'000'000);
        if (!turned) std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    return false;
}

inline bool leads(cluster_registry &of) {
    for (int tries = 0; tries < 200; ++tries) {
        const auto turned = of.turn(20'000'000);
        const auto led = of.lead();
        if (led && *led) return true;
    }
    return false;
}

inline void say(cluster_registry &of, const std::string &name, const std::string &text) {
    bool said = false;
    for (int tries = 0; tries < 50 && !said; ++tries) said = of.announce(name, text).ok();
    REQUIRE(said);
}

inline bool notes(const registry_state &of, const std::string &name, const std::string &text) {
    return of.notes.contains(name) && of.notes.at(name) == text;
}

inline opener in_directory(const toy::folder &at) {
    return [&at] {
        auto made = file_registry::open(at.path() / "registry");
        REQUIRE(made.ok());
        return std::move(*made);
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
