// balance_test.cpp - goal: dispatch `balance` is SMoE's Algorithm 2 as printed, or the optimum of
// Equation 4, with moving averages of measured times. It fills free slots if asked to. Method: the
// algorithm's two pointers written out, its bound and its replay rule, a trial of every split, and
// cases by hand.
#include <doctest/doctest.h>

#include <deque>
#include <numeric>

#include "one_gpu.h"
#include "policy_drive.h"

namespace balance_test {

using namespace moorage::test;

namespace {

struct item {
    uint32_t expert;
    float score;
    uint8_t missing = MOORAGE_WHOLE;
    uint64_t load_ns = 100, cpu_ns = 100;
};

struct assignment {
    std::vector<uint32_t> sites, order;
    // Experts of a site, in the order in which it takes them.
    std::vector<uint32_t> experts_at(uint32_t site, const std::vector<item> &items) const {
        std::vector<uint32_t> experts;
        for (const uint32_t i : order)
            if (sites[i] == site && (site == cpu_device || items[i].missing))
                experts.push_back(items[i].expert);
        return experts;
    }
};

assignment assign(driven_policy &policy, const std::vector<item> &items, bool scored = true,
                  uint32_t layer = 0) {
    std::vector<uint32_t> experts, tokens(items.size(), 1);
    std::vector<uint8_t> missing;
    std::vector<float> scores;
    std::vector<uint64_t> load, gpu(items.size(), 10), cpu;
    for (const item &entry : items) {
        experts.push_back(entry.expert), missing.push_back(entry.missing),
            scores.push_back(entry.score);
        load.push_back(entry.missing ? entry.load_ns : 0), cpu.push_back(entry.cpu_ns);
    }
    moorage_items table{};
    table.size = sizeof(table);
    table.count = static_cast<uint32_t>(items.size());
    place_on_first_gpu(table);
    table.host_experts = experts.data();
    table.host_tokens = tokens.data();
    table.host_missing = missing.data();
    table.host_scores = scored ? scores.data() : nullptr;
    table.host_load_ns = load.data();
    table.host_gpu_ns = gpu.data();
    table.host_cpu_ns = cpu.data();
    assignment result{std::vector<uint32_t>(items.size(), gpu_device),
                      std::vector<uint32_t>(items.size())};
    std::iota(result.order.begin(), result.order.end(), 0u);
    moorage_step step{};
    step.size = sizeof(step);
    step.layer = layer;
    const uint32_t count = policy.dispatch->assign(policy.plugin, &step, &table,
                                                   result.sites.data(), result.order.data());
    REQUIRE((count == items.size() || count == 0));
    auto sorted = result.order;
    std::sort(sorted.begin(), sorted.end());
    for (uint32_t i = 0; i < sorted.size(); ++i) REQUIRE(sorted[i] == i);
    return result;
}

void measure(driven_policy &policy, uint32_t site, uint64_t load_ns, uint64_t run_ns) {
    const moorage_dispatched done{sizeof(done), 0, 0, 0, site, 1, load_ns, run_ns};
    policy.dispatch->outcome(policy.plugin, &done);
}

policy_world make_world() {
    policy_world world;
    world.experts = 64;
    return world;
}

std::vector<item> draw_items(std::mt19937_64 &draw, uint32_t count) {
    std::vector<uint32_t> experts(64);
    std::iota(experts.begin(), experts.end(), 0u);
    std::shuffle(experts.begin(), experts.end(), draw);
    std::vector<item> items;
    for (uint32_t i = 0; i < count; ++i)
        items.push_back({experts[i], static_cast<float>(draw() % 12) / 16});
    return items;
}

std::vector<uint32_t> experts_by_score(std::vector<item> items) {
    std::sort(items.begin(), items.end(), [](const item &a, const item &b) {
        return a.score != b.score ? a.score > b.score : a.expert < b.expert;
    });
    std::vector<uint32_t> experts;
    for (const item &entry : items) experts.push_back(entry.expert);
    return experts;
}

uint64_t longest(uint64_t loads, uint64_t runs, uint64_t load_ns, uint64_t cpu_ns) {
    return std::max(loads * load_ns, runs * cpu_ns);
}

}  // namespace

TEST_CASE("algorithm 2 as printed, its bound and its replay rule") {
    std::mt19937_64 draw(1);
    policy_world world = make_world();
    world.make();
    driven_policy policy("dispatch/balance", "balance", world);
    for (uint32_t trial = 0; trial < 3000; ++trial) {
        auto items = draw_items(draw, 1 + static_cast<uint32_t>(draw() % 24));
        const uint64_t load_ns = 1 + draw() % (trial % 2 ? 4 : 1000),
                       cpu_ns = 1 + draw() % (trial % 2 ? 4 : 1000);
        for (item &entry : items) entry.load_ns = load_ns, entry.cpu_ns = cpu_ns;
        const std::vector<uint32_t> sorted = experts_by_score(items);
        std::vector<uint32_t> loads, runs;
        uint64_t load_total = 0, cpu_total = 0;
        int64_t l = 0, r = static_cast<int64_t>(sorted.size()) - 1;
        while (l <= r) {
            if (load_total <= cpu_total) {
                load_total += load_ns;
                loads.push_back(sorted[static_cast<size_t>(l++)]);
            } else {
                cpu_total += cpu_ns;
                runs.push_back(sorted[static_cast<size_t>(r--)]);
            }
        }
        const assignment got = assign(policy, items);
        CHECK(got.experts_at(gpu_device, items) == loads);
        CHECK(got.experts_at(cpu_device, items) == runs);
        const uint64_t n = items.size(), took = std::max(load_total, cpu_total);
        uint64_t optimum = UINT64_MAX;
        for (uint64_t count = 0; count <= n; ++count)
            optimum = std::min(optimum, longest(count, n - count, load_ns, cpu_ns));
        CHECK(took >= optimum);
        // took <= n Cl Cc / (Cl + Cc) + max(Cl, Cc)
        CHECK((took - std::min(took, std::max(load_ns, cpu_ns))) * (load_ns + cpu_ns) <=
              n * load_ns * cpu_ns);
    }
}

TEST_CASE("the optimum of equation 4, among all splits") {
    std::mt19937_64 draw(2);
    policy_world world = make_world();
    world.make();
    driven_policy policy("dispatch/balance", "balance", world, {{"exact", "1"}});
    for (uint32_t trial = 0; trial < 3000; ++trial) {
        auto items = draw_items(draw, 1 + static_cast<uint32_t>(draw() % 24));
        const uint64_t load_ns = 1 + draw() % (trial % 2 ? 4 : 1000),
                       cpu_ns = 1 + draw() % (trial % 2 ? 4 : 1000);
        for (item &entry : items) entry.load_ns = load_ns, entry.cpu_ns = cpu_ns;
        const assignment got = assign(policy, items);
        const uint64_t n = items.size(), loads = got.experts_at(gpu_device, items).size();
        const uint64_t took = longest(loads, n - loads, load_ns, cpu_ns);
        for (uint64_t count = 0; count <= n; ++count) {
            CHECK(took <= longest(count, n - count, load_ns, cpu_ns));
            if (count > loads) CHECK(took < longest(count, n - count, load_ns, cpu_ns));
        }
        // The best-scored are loaded.
        auto sorted = experts_by_score(items), loaded = got.experts_at(gpu_device, items);
        sorted.resize(loads);
        CHECK(loaded == sorted);
    }
}

TEST_CASE("one absent expert is loaded even if the CPU is ten times as fast, unless exact") {
    policy_world world = make_world();
    world.make();
    const std::vector<item> items = {{3, 0.5f, 0}, {7, 0.2f, MOORAGE_WHOLE, 1000, 100}};
    driven_policy literal("dispatch/balance", "balance", world);
    CHECK(assign(literal, items).experts_at(gpu_device, items) == std::vector<uint32_t>{7});
    driven_policy exact("dispatch/balance", "balance", world, {{"exact", "1"}});
    CHECK(assign(exact, items).experts_at(cpu_device, items) == std::vector<uint32_t>{7});
}

TEST_CASE("resident experts stay, loads go by score, the CPU takes the lowest first") {
    policy_world world = make_world();
    world.make();
    driven_policy policy("dispatch/balance", "balance", world);
    // Loads take 100, the CPU 60: load 5, CPU 9, load? 100 > 60: CPU 1, 100 <= 120: load 2.
    const std::vector<item> items = {{8, 0.9f, 0},
                                     {4, 0.01f, 0},
                                     {1, 0.2f, MOORAGE_WHOLE, 100, 60},
                                     {9, 0.1f, MOORAGE_WHOLE, 100, 60},
                                     {5, 0.4f, MOORAGE_WHOLE, 100, 60},
                                     {2, 0.3f, MOORAGE_WHOLE, 100, 60}};
    const assignment got = assign(policy, items);
    CHECK(got.order == std::vector<uint32_t>{0, 1, 4, 5, 3, 2});
    CHECK(got.sites == std::vector<uint32_t>{0, 0, 1, 1, 0, 0});
    // Without scores the given order is the order of score: 1, 9, 5, 2.
    const assignment plain = assign(policy, items, /*scored=*/false);
    CHECK(plain.experts_at(gpu_device, items) == std::vector<uint32_t>{1, 9});
    CHECK(plain.experts_at(cpu_device, items) == std::vector<uint32_t>{2, 5});
}

TEST_CASE("fill: at least as many of the best-scored are loaded as slots are free, and no others") {
    std::mt19937_64 draw(4);
    policy_world world = make_world();
    world.slots = 6;
    world.make();
    for (const char *exact : {"0", "1"}) {
        driven_policy plain("dispatch/balance", "balance", world, {{"exact", exact}});
        driven_policy filling("dispatch/balance", "balance", world,
                              {{"exact", exact}, {"fill", "1"}});
        bool loads_more = false, none = false;
        for (uint32_t trial = 0; trial < 2000; ++trial) {
            auto items = draw_items(draw, 1 + static_cast<uint32_t>(draw() % 10));
            const uint64_t load_ns = 1 + draw() % 1000, cpu_ns = 1 + draw() % 1000;
            for (item &entry : items) entry.load_ns = load_ns, entry.cpu_ns = cpu_ns;
            world.used[0] = static_cast<uint32_t>(draw() % 8);  // also more than there are
            const size_t free = world.used[0] < 6 ? 6 - world.used[0] : 0;
            const auto by_paper = assign(plain, items).experts_at(gpu_device, items);
            const assignment got = assign(filling, items);
            auto loaded = experts_by_score(items), computed = loaded;
            const size_t loads = std::max(by_paper.size(), std::min(free, items.size()));
            loaded.resize(loads);
            computed.erase(computed.begin(), computed.begin() + static_cast<std::ptrdiff_t>(loads));
            std::reverse(computed.begin(), computed.end());
            CHECK(got.experts_at(gpu_device, items) == loaded);
            CHECK(got.experts_at(cpu_device, items) == computed);
            loads_more = loads_more || loads > by_paper.size();
            none = none || (free == 0 && loads < items.size());
        }
        CHECK(loads_more);
        CHECK(none);
    }
}

TEST_CASE("fill looks at the pool of the step's layer") {
    policy_world world = make_world();
    world.layers = 2;
    world.shared = false;
    world.make();
    world.used = {4, 2};  // of 4 each
    driven_policy policy("dispatch/balance", "balance", world, {{"exact", "1"}, {"fill", "1"}});
    std::vector<item> items;
    for (uint32_t expert = 0; expert < 3; ++expert)  // the CPU ends all before one load does
        items.push_back({expert, 0.5f, MOORAGE_WHOLE, 1000, 100});
    CHECK(assign(policy, items, true, 0).experts_at(gpu_device, items).empty());
    CHECK(assign(policy, items, true, 1).experts_at(gpu_device, items) ==
          std::vector<uint32_t>{0, 1});
}

TEST_CASE("times are means of the last p transfers and the last p runs") {
    policy_world world = make_world();
    world.make();
    driven_policy policy("dispatch/balance", "balance", world, {{"window", "3"}});
    std::mt19937_64 draw(3);
    const std::vector<item> twelve = draw_items(draw, 12);
    const auto loads = [&] { return assign(policy, twelve).experts_at(gpu_device, twelve).size(); };
    const auto expected = [](double load_ns, double cpu_ns) {
        double load_total = 0, cpu_total = 0;
        size_t count = 0;
        for (int i = 0; i < 12; ++i) {
            if (load_total <= cpu_total)
                load_total += load_ns, ++count;
            else
                cpu_total += cpu_ns;
        }
        return count;
    };
    CHECK(loads() == expected(100, 100));  // the prices of the items
    measure(policy, gpu_device, 400, 10);
    CHECK(loads() == expected(400, 100));
    measure(policy, gpu_device, 0, 10);  // was resident: no transfer
    measure(policy, cpu_device, 0, 50);
    CHECK(loads() == expected(400, 50));
    for (const uint64_t ns : {100, 200, 330}) measure(policy, gpu_device, ns, 10);
    CHECK(loads() == expected(210, 50));  // 400 has left the window
    for (const uint64_t ns : {500, 700, 631}) measure(policy, cpu_device, 0, ns);
    CHECK(loads() == expected(210, 1831.0 / 3));
    // A transfer that was cut off by a move to the CPU is none.
    measure(policy, cpu_device, 5, 700);
    CHECK(loads() == expected(210, 2031.0 / 3));
    // Whole windows later still the last three, of both kinds.
    std::deque<uint64_t> transfers = {100, 200, 330}, runs = {700, 631, 700};
    for (uint32_t i = 0; i < 50; ++i) {
        transfers.push_back(50 + draw() % 900), transfers.pop_front();
        runs.push_back(50 + draw() % 900), runs.pop_front();
        measure(policy, gpu_device, transfers.back(), 10);
        measure(policy, cpu_device, 0, runs.back());
        // Thrice the means, which are whole.
        CHECK(loads() == expected(static_cast<double>(transfers[0] + transfers[1] + transfers[2]),
                                  static_cast<double>(runs[0] + runs[1] + runs[2])));
    }
    policy.plugin->reset(policy.plugin);
    CHECK(loads() == expected(100, 100));
    CHECK(policy.about->needs == MOORAGE_NEEDS_WEIGHTS);
}

}  // namespace balance_test
