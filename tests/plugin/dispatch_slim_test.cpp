// Goal: dispatch slim passes no stop that has an expert and calls the servers of a stop as cheaply
// as can be. Method: decisions by hand; every assignment tried; beyond it every set of servers, and
// the rule for many experts told again naively.
#include "remote_step.h"

namespace dispatch_slim_test {

using namespace moorage::test;

TEST_CASE("slim by hand: the order of stops is strict") {
    world test_world(1, 64, 8, true, 0);
    any_policy slim("dispatch/slim", test_world);
    const std::vector<uint8_t> stops{MOORAGE_DISTANCE_OTHER, MOORAGE_DISTANCE_OWN,
                                     MOORAGE_DISTANCE_CLOUD, MOORAGE_DISTANCE_OTHER};
    const offer dear_own{1, 900, 800}, cheap{0, 20, 10}, dear{3, 90, 80}, cloud{2, 5, 1};
    for (const bool serial : {false, true}) {
        const auto site = [&](std::vector<offer> offers) {
            return ask(slim, {{{std::move(offers)}}, stops, serial}).sites[0];
        };
        CHECK(site({cheap, dear_own, cloud, dear}) == first + 1);
        CHECK(site({cheap, cloud, dear}) == first);
        CHECK(site({cloud, dear}) == first + 3);
        CHECK(site({cloud}) == first + 2);
        // A server that is called anyway is no reason to pass the stop before it.
        const remote_step two{{{{cheap}}, {{cheap, dear_own}}}, stops, serial};
        CHECK(ask(slim, two).sites == std::vector<uint32_t>{first, first + 1});
    }
    // Experts that are here stay. Experts that nobody has are loaded.
    const remote_step local_step{{{{cheap}, 1, 0, 1, 1, false}, {{}, 1, 50, 1, 1}}, stops};
    CHECK(ask(slim, local_step).sites == std::vector<uint32_t>(2, gpu));
}

TEST_CASE("slim by hand: Equation 7") {
    world test_world(1, 64, 8, true, 0);
    any_policy slim("dispatch/slim", test_world);
    const std::vector<uint8_t> others(3, MOORAGE_DISTANCE_OTHER);
    // Alone the first two are nearest to servers 0 and 1: 2 (6 + 1) + 4 = 18; server 2 for all of
    // them: 9 + 3 x 2 = 15.
    const item a{{{0, 7, 6}, {2, 11, 9}}}, b{{{1, 7, 6}, {2, 11, 9}}}, c{{{2, 11, 9}}};
    CHECK(ask(slim, {{a, b, c}, others, true}).sites == std::vector<uint32_t>(3, first + 2));
    CHECK(ask(slim, {{a, b}, others, true}).sites == std::vector<uint32_t>(2, first + 2));
    // At once: the slowest decides, 7 with two servers.
    CHECK(ask(slim, {{a, b}, others}).sites == std::vector<uint32_t>{first, first + 1});
    // c's server is the slowest in any case, so the others take the least sum. With server 2 it
    // would be 11 + 2.
    CHECK(ask(slim, {{a, b, c}, others}).sites ==
          std::vector<uint32_t>{first, first + 1, first + 2});
    const item slow{{{2, 20, 9}}}, either{{{0, 19, 8}, {1, 15, 4}}};
    CHECK(ask(slim, {{slow, either}, others}).sites == std::vector<uint32_t>{first + 2, first + 1});
}

TEST_CASE("slim: every stop takes the least there is") {
    world test_world(1, 64, 8, true, 0);
    any_policy slim("dispatch/slim", test_world);
    std::mt19937_64 generator(14);
    uint32_t choices = 0;
    for (int round = 0; round < 3000; ++round) {
        const bool wide = round % 3 == 0;
        const remote_step step = draw(generator, {wide ? 4u : 6u, wide ? 7u : 4u, 3});
        const decision got = ask(slim, step);
        for (uint32_t stop = 0; stop < 3; ++stop) {
            remote_step part = step;
            std::vector<uint32_t> sites;
            part.items.clear();
            for (uint32_t i = 0; i < step.items.size(); ++i) {
                uint32_t nearest = MOORAGE_DISTANCE_CLOUD;
                for (const offer &candidate : step.items[i].offers)
                    nearest = std::min<uint32_t>(nearest, step.distances[candidate.server]);
                if (nearest != stop) continue;
                REQUIRE(got.sites[i] >= first);
                CHECK(step.distances[got.sites[i] - first] == stop);
                part.items.push_back(step.items[i]);
                sites.push_back(got.sites[i]);
            }
            choices += part.items.size() > 1;
            CHECK((sites.empty() || measure_choice(part, sites) == best_measure(part, stop)));
        }
    }
    CHECK(choices > 1000);
}

TEST_CASE("slim: exact up to 12 experts one after another and 8 at once") {
    world test_world(1, 64, 16, true, 0);
    any_policy slim("dispatch/slim", test_world);
    std::mt19937_64 generator(15);
    for (int round = 0; round < 300; ++round) {
        remote_step step = draw(generator, {1, 6, 1, false, true});
        step.serial = round % 2 == 0;
        std::ranges::fill(step.distances, uint8_t{MOORAGE_DISTANCE_OTHER});
        std::vector<uint64_t> once(6);
        for (uint64_t &ns : once) ns = generator() % 100;
        step.items.assign(step.serial ? 12 : 8, {});
        for (item &entry : step.items)
            for (uint32_t s = 0; s < 6; ++s)
                if (generator() % 3 == 0 || (s == 5 && entry.offers.empty()))
                    entry.offers.push_back({s, once[s] + 1 + generator() % 30, once[s]});
        const decision got = ask(slim, step);
        if (!step.serial) {
            CHECK(measure_choice(step, got.sites) == best_measure(step, 3));
            continue;
        }
        // Tries all sets of called servers. Each item goes to the server that it adds least to.
        uint64_t best = never;
        for (uint32_t used = 1; used < 64; ++used) {
            uint64_t sum = 0;
            bool feasible = true;
            for (uint32_t s = 0; s < 6; ++s) sum += used >> s & 1 ? once[s] : 0;
            for (const item &entry : step.items) {
                uint64_t least = never;
                for (const offer &candidate : entry.offers)
                    if (used >> candidate.server & 1)
                        least = std::min(least, candidate.remote_ns - candidate.once_ns);
                feasible = feasible && least != never;
                sum += feasible ? least : 0;
            }
            if (feasible) best = std::min(best, sum);
        }
        CHECK(sum_of(server_end_times(step, got.sites)) == best);
    }
}

TEST_CASE("slim: more experts go one by one") {
    world test_world(1, 64, 32, true, 0);
    any_policy slim("dispatch/slim", test_world);
    std::mt19937_64 generator(16);
    for (int round = 0; round < 300; ++round) {
        remote_step step = draw(generator, {1, 5, 1, false});
        std::ranges::fill(step.distances, uint8_t{MOORAGE_DISTANCE_OTHER});
        step.items.clear();
        while (step.items.size() < 20) {
            const remote_step added = draw(generator, {4, 5, 4, false});
            step.items.insert(step.items.end(), added.items.begin(), added.items.end());
        }
        std::vector<uint32_t> list(step.items.size()), naive(step.items.size(), gpu);
        std::iota(list.begin(), list.end(), 0u);
        std::ranges::stable_sort(list, [&](uint32_t a, uint32_t b) {
            return step.items[a].tokens > step.items[b].tokens;
        });
        for (const uint32_t i : list) {
            uint64_t least = never;
            uint32_t best = gpu;
            const uint64_t old_sum = sum_of(server_end_times(step, naive));
            for (const offer &candidate : step.items[i].offers) {
                naive[i] = first + candidate.server;
                const auto ends = server_end_times(step, naive);
                const uint64_t takes = step.serial ? sum_of(ends) - old_sum : ends.at(naive[i]);
                if (takes < least) least = takes, best = naive[i];
            }
            naive[i] = best;
        }
        CHECK(ask(slim, step).sites == naive);
    }
}

}  // namespace dispatch_slim_test
