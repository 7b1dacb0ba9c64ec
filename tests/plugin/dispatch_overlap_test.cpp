// Goal: dispatch overlap divides the experts of a step between GPU, link and CPU as described.
// Method: a naive schedule of every decision on random items; rules for any such division; cases by
// hand.
#include <doctest/doctest.h>

#include <algorithm>

#include "any_policy.h"
#include "one_gpu.h"

namespace dispatch_overlap_test {

using namespace moorage::test;

namespace {

struct test_item {
    bool absent;
    uint64_t load_ns, gpu_ns, cpu_ns;
};

struct decision {
    std::vector<uint32_t> sites, order;
};

decision assign(any_policy &policy, const std::vector<test_item> &layer_items, uint64_t link_ns = 0,
                uint64_t behind_ns = 0) {
    std::vector<uint32_t> experts, tokens;
    std::vector<uint8_t> missing;
    std::vector<uint64_t> load, gpu, cpu;
    for (const test_item &entry : layer_items) {
        experts.push_back(static_cast<uint32_t>(experts.size()));
        tokens.push_back(1);
        missing.push_back(entry.absent ? MOORAGE_WHOLE : 0);
        load.push_back(entry.absent ? entry.load_ns : 0);
        gpu.push_back(entry.gpu_ns), cpu.push_back(entry.cpu_ns);
    }
    moorage_items items{};
    items.size = sizeof(items);
    items.count = static_cast<uint32_t>(layer_items.size());
    place_on_first_gpu(items);
    items.load_backlog_ns = link_ns;
    items.behind_backlog_ns = behind_ns;
    items.host_experts = experts.data(), items.host_tokens = tokens.data();
    items.host_missing = missing.data();
    items.host_load_ns = load.data(), items.host_gpu_ns = gpu.data();
    items.host_cpu_ns = cpu.data();
    decision result;
    result.sites.assign(layer_items.size(), gpu_device);
    result.order.resize(layer_items.size());
    moorage_step step{};
    step.size = sizeof(step);
    CHECK(policy.dispatch->assign(policy.plugin, &step, &items, result.sites.data(),
                                  result.order.data()) == items.count);
    return result;
}

uint32_t site(const decision &decided, size_t i) { return decided.sites[i] & ~MOORAGE_AND_LOAD; }

// When the layer ends if the absent of the GPU are loaded in the order given.
uint64_t end_of(const std::vector<test_item> &layer_items, const decision &decided,
                uint64_t link_ns = 0) {
    uint64_t gpu_ns = 0, cpu_ns = 0;
    for (size_t i = 0; i < layer_items.size(); ++i)
        if (!layer_items[i].absent && site(decided, i) == gpu_device)
            gpu_ns += layer_items[i].gpu_ns;
    for (const uint32_t i : decided.order) {
        if (site(decided, i) == cpu_device) {
            cpu_ns += layer_items[i].cpu_ns;
        } else if (layer_items[i].absent) {
            link_ns += layer_items[i].load_ns;
            gpu_ns = std::max(gpu_ns, link_ns) + layer_items[i].gpu_ns;
        }
    }
    return std::max(gpu_ns, cpu_ns);
}

std::vector<test_item> draw(std::mt19937_64 &generator, bool equal) {
    std::vector<test_item> result(1 + generator() % 8);
    const test_item like{true, 1 + generator() % 300, 1 + generator() % 50, 1 + generator() % 200};
    const size_t residents = generator() % (result.size() + 1);
    for (size_t i = 0; i < result.size(); ++i) {
        result[i] = equal ? like
                          : test_item{true, 1 + generator() % 300, 1 + generator() % 50,
                                      1 + generator() % 200};
        result[i].absent = i >= residents;
    }
    return result;
}

}  // namespace

TEST_CASE("each decision against a naive schedule") {
    world test_world(1, 64, 8, true, 0);
    any_policy policy("dispatch/overlap", test_world, {{"fill", "0"}});
    std::mt19937_64 generator(7);
    for (int round = 0; round < 4000; ++round) {
        const std::vector<test_item> layer_items = draw(generator, round % 3 == 0);
        const uint64_t link = generator() % 200;
        const decision got = assign(policy, layer_items, link);
        std::vector<uint32_t> sites(layer_items.size(), gpu_device), absent;
        uint64_t gpu_ns = 0, link_ns = link, cpu_ns = 0;
        for (uint32_t i = 0; i < layer_items.size(); ++i) {
            if (layer_items[i].absent) absent.push_back(i);
            if (!layer_items[i].absent) gpu_ns += layer_items[i].gpu_ns;
        }
        std::ranges::stable_sort(absent, [&](uint32_t a, uint32_t b) {
            return layer_items[a].cpu_ns > layer_items[b].cpu_ns;
        });
        for (const uint32_t i : absent) {
            const uint64_t on_device =
                std::max(gpu_ns, link_ns + layer_items[i].load_ns) + layer_items[i].gpu_ns;
            const uint64_t on_cpu = cpu_ns + layer_items[i].cpu_ns;
            if (on_device <= on_cpu) {
                link_ns += layer_items[i].load_ns;
                gpu_ns = on_device;
            } else {
                sites[i] = cpu_device;
                cpu_ns = on_cpu;
            }
        }
        decision naive{sites, got.order};
        // Residents, last first, while the end comes sooner.
        for (uint32_t i = static_cast<uint32_t>(layer_items.size()); i-- > 0;) {
            if (layer_items[i].absent) continue;
            decision moved = naive;
            moved.sites[i] = cpu_device;
            if (end_of(layer_items, moved, link) >= end_of(layer_items, naive, link)) break;
            naive = moved;
        }
        for (uint32_t i = 0; i < layer_items.size(); ++i) CHECK(site(got, i) == naive.sites[i]);
        std::vector<uint32_t> loads = got.order;
        std::erase_if(loads, [&](uint32_t i) { return !layer_items[i].absent; });
        CHECK(loads == absent);
    }
}

TEST_CASE("never later than everything absent on the CPU; equal experts nearly as good as can be") {
    world test_world(1, 64, 8, true, 0);
    any_policy policy("dispatch/overlap", test_world, {{"fill", "0"}});
    std::mt19937_64 generator(8);
    for (int round = 0; round < 2000; ++round) {
        const bool equal = round % 2 == 0;
        const std::vector<test_item> layer_items = draw(generator, equal);
        const decision got = assign(policy, layer_items);
        decision on_cpu = got, best = got;
        for (size_t i = 0; i < layer_items.size(); ++i)
            on_cpu.sites[i] = layer_items[i].absent ? cpu_device : gpu_device;
        CHECK(end_of(layer_items, got) <= end_of(layer_items, on_cpu));
        if (!equal) continue;
        uint64_t least = UINT64_MAX;
        for (uint32_t mask = 0; mask < 1u << layer_items.size(); ++mask) {
            for (size_t i = 0; i < layer_items.size(); ++i)
                best.sites[i] = mask >> i & 1 ? cpu_device : gpu_device;
            least = std::min(least, end_of(layer_items, best));
        }
        const test_item &like = layer_items[0];
        CHECK(end_of(layer_items, got) <=
              least + std::max(like.cpu_ns, like.load_ns + like.gpu_ns));
    }
}

TEST_CASE("by hand: what is loaded behind, and when not") {
    world test_world(1, 64, 8, true, 0);  // a load takes the world's costs
    any_policy policy("dispatch/overlap", test_world, {{"fill", "0"}, {"behind", "2"}});
    const std::vector<test_item> four(4, {true, 1000, 10, 20});
    const decision got = assign(policy, four);
    const uint32_t later = cpu_device | MOORAGE_AND_LOAD;
    CHECK(got.sites == std::vector<uint32_t>{later, later, cpu_device, cpu_device});
    CHECK(got.order == std::vector<uint32_t>{0, 1, 2, 3});
    // Resident ones are helped out with, not loaded: 3 x 100 on the GPU, one of them on the CPU.
    const std::vector<test_item> busy(3, {false, 0, 100, 120});
    CHECK(assign(policy, busy).sites == std::vector<uint32_t>{gpu_device, gpu_device, cpu_device});
    any_policy alone("dispatch/overlap", test_world, {{"help", "0"}});
    CHECK(assign(alone, busy).sites == std::vector<uint32_t>(3, gpu_device));
}

}  // namespace dispatch_overlap_test
