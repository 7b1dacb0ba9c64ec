// Goal: dispatch prism calls each absent expert where it is done first. Method: decisions by hand;
// its list schedule told again naively; every assignment tried where servers are called one after
// another.
#include "remote_step.h"

namespace dispatch_prism_test {

using namespace moorage::test;

TEST_CASE("prism by hand") {
    world test_world(1, 64, 8, true, 0);
    any_policy prism("dispatch/prism", test_world);
    const std::vector<uint8_t> others(3, MOORAGE_DISTANCE_OTHER);
    // Server 0 takes 10 + 5 an item, server 1 takes 12 + 5. Most tokens first: item 1 to server 0
    // (15 < 17), item 0 to server 1 (17 < 20), item 2 to server 0 (20 < 22).
    remote_step two_servers{{{{{0, 15, 10}, {1, 17, 12}}, 1},
                             {{{0, 15, 10}, {1, 17, 12}}, 2},
                             {{{0, 15, 10}, {1, 17, 12}}, 1}},
                            others};
    CHECK(ask(prism, two_servers).sites == std::vector<uint32_t>{first + 1, first, first});
    CHECK(ask(prism, two_servers).order == std::vector<uint32_t>{1, 0, 2});
    // One after another all of them go to server 0: 25 against 32.
    two_servers.serial = true;
    CHECK(ask(prism, two_servers).sites == std::vector<uint32_t>(3, first));
    // A server that is dearer at first, but has all: 8 + 8 against 10 + 1 + 1.
    const remote_step shared{
        {{{{0, 8, 7}, {2, 11, 10}}}, {{{1, 8, 7}, {2, 11, 10}}}}, others, true};
    CHECK(ask(prism, shared).sites == std::vector<uint32_t>(2, first + 2));
    // At once each goes to its own.
    remote_step apart = shared;
    apart.serial = false;
    CHECK(ask(prism, apart).sites == std::vector<uint32_t>{first, first + 1});
    // Ties: the smaller server.
    const remote_step tie{{{{{1, 9, 3}, {2, 9, 3}}}}, others};
    CHECK(ask(prism, tie).sites == std::vector<uint32_t>{first + 1});
}

TEST_CASE("prism by hand: loads are one more place") {
    world test_world(1, 64, 8, true, 0);
    any_policy prism("dispatch/prism", test_world),
        calls_only("dispatch/prism", test_world, {{"load", "never"}});
    // The first is here after 5 + 10 + 5 = 20, a tie with the server: loaded. The second would be
    // after 35, on the server after 20.
    remote_step step{{{{{0, 20, 12}}, 1, 10, 5}, {{{0, 20, 12}}, 1, 10, 5}},
                     {MOORAGE_DISTANCE_OTHER}};
    step.load_backlog_ns = 5;
    CHECK(ask(prism, step).sites == std::vector<uint32_t>{gpu, first});
    CHECK(ask(calls_only, step).sites == std::vector<uint32_t>(2, first));
    // The GPU is busy until 30 with its present work.
    remote_step busy = step;
    busy.items.insert(busy.items.begin(), {{}, 1, 0, 30, 1, false});
    CHECK(ask(prism, busy).sites == std::vector<uint32_t>{gpu, first, first});
    // One after another the servers are one place: loaded until 15, called until 20, then 25 here
    // against 28 for a second call.
    remote_step chain = step;
    chain.load_backlog_ns = 0;
    chain.serial = true;
    chain.items.push_back(step.items[0]);
    CHECK(ask(prism, chain).sites == std::vector<uint32_t>{gpu, first, gpu});
    // Nobody has it: it is loaded either way.
    const remote_step nobody{{{{}, 1, 1000, 5}}, {MOORAGE_DISTANCE_OTHER}};
    CHECK(ask(prism, nobody).sites == std::vector<uint32_t>{gpu});
    CHECK(ask(calls_only, nobody).sites == std::vector<uint32_t>{gpu});
}

TEST_CASE("prism: its list schedule, told naively") {
    world test_world(1, 64, 8, true, 0);
    any_policy prism("dispatch/prism", test_world);
    std::mt19937_64 generator(11);
    for (int round = 0; round < 4000; ++round) {
        remote_step step = draw(generator, {12, 5, 3, round % 2 == 0, false, true, true});
        step.serial = false;
        step.load_backlog_ns = generator() % 50;
        std::vector<uint32_t> naive(step.items.size(), gpu), list;
        uint64_t gpu_ns = 0, link_ns = step.load_backlog_ns;
        for (uint32_t i = 0; i < step.items.size(); ++i) {
            if (step.items[i].absent)
                list.push_back(i);
            else
                gpu_ns += step.items[i].gpu_ns;
        }
        std::ranges::stable_sort(list, [&](uint32_t a, uint32_t b) {
            return step.items[a].tokens > step.items[b].tokens;
        });
        for (const uint32_t i : list) {
            const item &entry = step.items[i];
            std::vector<std::pair<uint64_t, uint32_t>> ends;  // of places, the item included
            if (entry.load_ns != never)
                ends.push_back({std::max(gpu_ns, link_ns + entry.load_ns) + entry.gpu_ns, gpu});
            for (const offer &candidate : entry.offers) {
                std::vector<uint32_t> tried = naive;
                tried[i] = first + candidate.server;
                ends.push_back({server_end_times(step, tried).at(tried[i]), tried[i]});
            }
            const auto [end_ns, site] = *std::min_element(ends.begin(), ends.end());
            naive[i] = site;
            if (site != gpu) continue;
            link_ns += entry.load_ns;
            gpu_ns = end_ns;
        }
        const decision got = ask(prism, step);
        CHECK(got.sites == naive);
        std::vector<uint32_t> order = got.order;
        std::erase_if(order, [&](uint32_t i) { return !step.items[i].absent; });
        CHECK(order == list);
    }
}

TEST_CASE("prism: servers called one after another take the least there is") {
    world test_world(1, 64, 8, true, 0);
    any_policy prism("dispatch/prism", test_world, {{"load", "never"}});
    std::mt19937_64 generator(12);
    for (int round = 0; round < 1500; ++round) {
        remote_step step = draw(generator, {6, 4, 3, round % 2 == 0, false, true});
        step.serial = true;
        CHECK(measure_choice(step, ask(prism, step).sites) == best_measure(step, 3));
    }
}

TEST_CASE("prism: beside loads, too, calls one after another take the least") {
    world test_world(1, 64, 8, true, 0);
    any_policy prism("dispatch/prism", test_world);
    std::mt19937_64 generator(13);
    uint32_t loaded = 0;
    for (int round = 0; round < 1500; ++round) {
        remote_step step = draw(generator, {6, 4, 3, true, true, true, true});
        step.serial = true;
        const decision got = ask(prism, step);
        remote_step calls = step;
        std::vector<uint32_t> sites;
        calls.items.clear();
        for (uint32_t i = 0; i < step.items.size(); ++i) {
            loaded += got.sites[i] == gpu && step.items[i].absent;
            if (got.sites[i] < first) continue;
            calls.items.push_back(step.items[i]);
            sites.push_back(got.sites[i]);
        }
        CHECK((sites.empty() || measure_choice(calls, sites) == best_measure(calls, 3)));
    }
    CHECK(loaded > 100);
}

}  // namespace dispatch_prism_test
