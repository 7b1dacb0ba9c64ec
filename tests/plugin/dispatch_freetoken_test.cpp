// Goal: dispatch freetoken loads the share that ends together with the CPU's, most recent experts
// first. Method: try the paper's two sides for every number of loads, in exact integers. Take
// recency from a list of past steps. Cases by hand.
#include <doctest/doctest.h>

#include "any_policy.h"
#include "one_gpu.h"

namespace dispatch_freetoken_test {

using namespace moorage::test;

namespace {

struct item_data {
    std::vector<uint32_t> experts, tokens;
    std::vector<uint8_t> missing;
    std::vector<uint64_t> load_ns, gpu_ns, cpu_ns;
    moorage_items items() const {
        moorage_items table{};
        place_on_first_gpu(table);
        table.size = sizeof(table);
        table.count = static_cast<uint32_t>(experts.size());
        table.host_experts = experts.data();
        table.host_tokens = tokens.data();
        table.host_missing = missing.data();
        table.host_load_ns = load_ns.data();
        table.host_gpu_ns = gpu_ns.data();
        table.host_cpu_ns = cpu_ns.data();
        return table;
    }
};

item_data items_of(const std::vector<uint32_t> &experts, uint32_t residents, uint64_t load_ns,
                   uint64_t cpu_ns) {
    item_data result;
    for (uint32_t i = 0; i < experts.size(); ++i) {
        result.experts.push_back(experts[i]);
        result.tokens.push_back(1);
        result.missing.push_back(i < residents ? 0 : MOORAGE_WHOLE);
        result.load_ns.push_back(i < residents ? 0 : load_ns);
        result.gpu_ns.push_back(10);
        result.cpu_ns.push_back(cpu_ns);
    }
    return result;
}

std::vector<uint32_t> assign(any_policy &policy, const moorage_step &step, const item_data &data) {
    const moorage_items items = data.items();
    std::vector<uint32_t> sites(data.experts.size(), gpu_device), order(data.experts.size());
    for (uint32_t i = 0; i < order.size(); ++i) order[i] = i;
    CHECK(policy.dispatch->assign(policy.plugin, &step, &items, sites.data(), order.data()) ==
          items.count);
    return sites;
}

// Least of max(f (load - cpu), (m - f) cpu) over f, the smallest f of equals.
uint32_t best_split(uint32_t misses, uint64_t load_ns, uint64_t cpu_ns) {
    if (cpu_ns >= load_ns) return misses;
    uint32_t best = 0;
    uint64_t least = UINT64_MAX;
    for (uint32_t loads = 0; loads <= misses; ++loads) {
        const uint64_t slower = std::max(loads * (load_ns - cpu_ns), (misses - loads) * cpu_ns);
        if (slower >= least) continue;
        least = slower;
        best = loads;
    }
    return best;
}

}  // namespace

TEST_CASE("as many are loaded as balance link and CPU") {
    world test_world(1, 64, 32, true, 0);
    any_policy policy("dispatch/freetoken", test_world);
    step_data data;
    std::mt19937_64 generator(3);
    for (int round = 0; round < 3000; ++round) {
        const auto count = static_cast<uint32_t>(1 + generator() % 32);
        const auto residents = static_cast<uint32_t>(generator() % (count + 1));
        // Powers of two beside odd numbers: no split is on the edge but by equality.
        const uint64_t load_ns = uint64_t{1} << (4 + generator() % 6);
        const uint64_t cpu_ns = 1 + generator() % (load_ns + 8);
        const auto experts = draw_distinct(generator, count, 64);
        fill_step(data, test_world, static_cast<uint64_t>(round), 0, {experts});
        policy.observe(data.step);
        const auto sites = assign(policy, data.step, items_of(experts, residents, load_ns, cpu_ns));
        const auto on_cpu =
            static_cast<uint32_t>(std::count(sites.begin(), sites.end(), cpu_device));
        CAPTURE(load_ns);
        CAPTURE(cpu_ns);
        CAPTURE(count - residents);
        CHECK(on_cpu == count - residents - best_split(count - residents, load_ns, cpu_ns));
        for (uint32_t i = 0; i < residents; ++i) CHECK(sites[i] == gpu_device);
    }
}

TEST_CASE("41.5 % of three misses is one load, and a given share replaces the costs") {
    world test_world(1, 8, 4, true, 0);
    any_policy policy("dispatch/freetoken", test_world, {{"fraction", "0.415"}});
    step_data data;
    fill_step(data, test_world, 0, 0, {{0, 1, 2, 3}});
    policy.observe(data.step);
    const auto sites = assign(policy, data.step, items_of({0, 1, 2, 3}, 1, 1000, 1));
    CHECK(sites == std::vector<uint32_t>{0, 0, 1, 1});
}

TEST_CASE("what was asked for most recently is loaded first") {
    world test_world(2, 8, 2, true, 0);
    any_policy policy("dispatch/freetoken", test_world, {{"fraction", "0.5"}});
    step_data data;
    uint64_t index = 0;
    const auto see = [&](uint32_t layer, const std::vector<uint32_t> &experts) {
        fill_step(data, test_world, index++, layer, {experts});
        policy.observe(data.step);
    };
    see(0, {5, 6});
    see(1, {1, 2});
    see(0, {6, 3});
    see(1, {3, 4});
    see(0, {5, 6});
    CHECK(assign(policy, data.step, items_of({5, 6}, 0, 2, 1)) == std::vector<uint32_t>{1, 0});
    see(1, {7, 1});  // 7 was never asked for in this layer
    CHECK(assign(policy, data.step, items_of({7, 1}, 0, 2, 1)) == std::vector<uint32_t>{1, 0});
    see(0, {1, 2});  // neither was: as they stand
    CHECK(assign(policy, data.step, items_of({1, 2}, 0, 2, 1)) == std::vector<uint32_t>{0, 1});
}

TEST_CASE("free slots are filled, unless told not to") {
    for (const bool fill : {true, false}) {
        world test_world(1, 8, 4, true, 3);
        test_world.used[0] = 1;
        any_policy policy("dispatch/freetoken", test_world, {{"fill", fill ? "1" : "0"}});
        step_data data;
        fill_step(data, test_world, 0, 0, {{0, 1, 2, 3}});
        policy.observe(data.step);
        const auto sites = assign(policy, data.step, items_of({0, 1, 2, 3}, 0, 1000, 1));
        CHECK(std::count(sites.begin(), sites.end(), gpu_device) == (fill ? 2 : 0));
    }
}

}  // namespace dispatch_freetoken_test
