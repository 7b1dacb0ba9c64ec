// fingerprint_test.cpp - goal: two nodes with different clusters learn which keys differ. Method:
// lists of servers that differ in names, in addresses, in both, in their order.
#include "tools/node/fingerprint.h"

#include <doctest/doctest.h>

#include <vector>

namespace fingerprint_test {

using namespace moorage::core;

TEST_CASE("what differs between two clusters is named by its key") {
    const std::vector<node_server> servers = {{"a", {"one:1"}}, {"b", {"two:2", "two:3"}}};
    const uint64_t fingerprint = cluster_fingerprint(servers);
    CHECK(cluster_fingerprint(servers) == fingerprint);
    const auto named = [&](auto change) {
        std::vector<node_server> others = servers;
        change(others);
        const uint64_t changed_fingerprint = cluster_fingerprint(others);
        REQUIRE(changed_fingerprint != fingerprint);
        return differing_key(changed_fingerprint, fingerprint);
    };
    CHECK(named([](auto &list) { list[1].name = "c"; }) == "[[cluster.servers]] name");
    CHECK(named([](auto &list) { list[1].addresses[1] = "two:4"; }) ==
          "[[cluster.servers]] address");
    CHECK(named([](auto &list) { list[1].addresses.pop_back(); }) == "[[cluster.servers]] address");
    // An address that moves to the other server is another list.
    CHECK(named([](auto &list) {
              list[0].addresses.push_back(list[1].addresses[0]);
              list[1].addresses.erase(list[1].addresses.begin());
          }) == "[[cluster.servers]] address");
    CHECK(named([](auto &list) { std::swap(list[0], list[1]); }) ==
          "[[cluster.servers]] name and address");
    CHECK(named([](auto &list) { list.pop_back(); }) == "[[cluster.servers]] name and address");
}

}  // namespace fingerprint_test
