// fingerprint_test.cpp - goal: two nodes with different clusters learn which keys differ. Method:
// lists of servers that differ in names, in addresses, in both, in their order.
#include "core/node/fingerprint.h"

#include <doctest/doctest.h>

#include <vector>

namespace fingerprint_test {

using namespace moorage::core;

TEST_CASE("what differs between two clusters is named by its key") {
    const std::vector<node_server> servers = {{"a", {"one:1"}}, {"b", {"two:2", "two:3"}}};
    const uint64_t own = cluster_fingerprint(servers);
    CHECK(cluster_fingerprint(servers) == own);
    const auto named = [&](auto change) {
        std::vector<node_server> others = servers;
        change(others);
        const uint64_t other = cluster_fingerprint(others);
        REQUIRE(other != own);
        return differing_key(other, own);
    };
    CHECK(named([](auto &all) { all[1].name = "c"; }) == "[[cluster.servers]] name");
    CHECK(named([](auto &all) { all[1].addresses[1] = "two:4"; }) == "[[cluster.servers]] address");
    CHECK(named([](auto &all) { all[1].addresses.pop_back(); }) == "[[cluster.servers]] address");
    // An address that moves to the other server is another list.
    CHECK(named([](auto &all) {
              all[0].addresses.push_back(all[1].addresses[0]);
              all[1].addresses.erase(all[1].addresses.begin());
          }) == "[[cluster.servers]] address");
    CHECK(named([](auto &all) { std::swap(all[0], all[1]); }) ==
          "[[cluster.servers]] name and address");
    CHECK(named([](auto &all) { all.pop_back(); }) == "[[cluster.servers]] name and address");
}

}  // namespace fingerprint_test
