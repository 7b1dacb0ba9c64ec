// Goal: no dispatch policy sends this host an expert that its memory lacks. Servers change nothing
// else, except for policies that weigh them. Method: random steps compared with the nearest server
// and with the same steps without servers; the rule of cost by hand.
#include "remote_step.h"

namespace dispatch_remote_test {

using namespace moorage::test;

TEST_CASE("cost by hand: servers are one more place") {
    world test_world(1, 64, 8, true, 0);
    any_policy cost("dispatch/cost", test_world);
    const auto site = [&](uint64_t load_ns, uint64_t cpu_ns, std::vector<offer> offers) {
        return ask(cost, {{{std::move(offers), 1, load_ns, 5, cpu_ns}},
                          std::vector<uint8_t>(2, MOORAGE_DISTANCE_OTHER)})
            .sites[0];
    };
    CHECK(site(10, 20, {{0, 14, 0}, {1, 13, 0}}) == first + 1);
    CHECK(site(10, 20, {{0, 14, 0}, {1, 14, 0}}) == first);
    CHECK(site(10, 20, {{0, 15, 0}}) == gpu);  // ties load
    CHECK(site(10, 12, {{0, 12, 0}}) == cpu);  // and stay here
    CHECK(site(10, 12, {{0, 11, 0}}) == first);
    CHECK(site(never, 1, {{0, 900, 0}, {1, 800, 0}}) == first + 1);
}

TEST_CASE("what this host's memory lacks goes to the nearest server, by every policy") {
    world test_world(1, 64, 8, true, 0);
    std::mt19937_64 generator(17);
    for (const char *name :
         {"dispatch/cost", "dispatch/overlap", "dispatch/balance", "dispatch/cpu_all",
          "dispatch/freetoken", "cache/hybrimoe", "dispatch/prism", "dispatch/slim"}) {
        CAPTURE(name);
        const std::string_view policy_name = name;
        const bool own_rule = policy_name == "dispatch/prism" || policy_name == "dispatch/slim";
        any_policy policy(name, test_world);
        test_world.pool_slots[0] = 3;  // free, so that policies would fill the cache
        uint32_t sent = 0;
        for (int round = 0; round < 500; ++round) {
            const remote_step step = draw(generator, {10, 4, 3, round % 2 == 0, false, true, true});
            const decision got = ask(policy, step);
            for (size_t i = 0; i < step.items.size(); ++i) {
                const item &entry = step.items[i];
                if (!entry.absent || entry.load_ns != never) continue;
                ++sent;
                REQUIRE(got.sites[i] >= first);
                const offer &chosen = offer_at(entry, got.sites[i]);
                const auto less = [](const offer &a, const offer &b) {
                    return a.remote_ns < b.remote_ns;
                };
                const offer &nearest = *std::ranges::min_element(entry.offers, less);
                CHECK((own_rule || chosen.server == nearest.server));
            }
        }
        CHECK(sent > 500);
        test_world.pool_slots[0] = 0;
    }
}

TEST_CASE("servers change nothing about what can be loaded, except for those that weigh them") {
    world test_world(1, 64, 8, true, 0);
    std::mt19937_64 generator(18);
    for (const char *name : {"dispatch/overlap", "dispatch/balance", "dispatch/cpu_all",
                             "dispatch/freetoken", "cache/hybrimoe"}) {
        CAPTURE(name);
        any_policy policy(name, test_world);
        for (int round = 0; round < 500; ++round) {
            remote_step step = draw(generator, {10, 4, 3, true, false, true, true});
            const decision with_servers = ask(policy, step);
            // The same step without the items that go elsewhere.
            std::vector<uint32_t> expected;
            remote_step rest = step;
            rest.items.clear();
            for (size_t i = 0; i < step.items.size(); ++i) {
                if (step.items[i].absent && step.items[i].load_ns == never) continue;
                rest.items.push_back(step.items[i]);
                expected.push_back(with_servers.sites[i]);
            }
            if (rest.items.empty()) continue;
            CHECK(ask(policy, rest, false).sites == expected);
        }
    }
}

}  // namespace dispatch_remote_test
