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

struct one_item {
    bool absent;
    uint64_t load_ns, gpu_ns, cpu_ns;
};

struct decision {
    std::vector<uint32_t> sites, order;
};

decision assign(any_policy &policy, const std::vector<one_item> &all, uint64_t link_ns = 0,
                uint64_t behind_ns = 0) {
    std::vector<uint32_t> experts, tokens;
    std::vector<uint8_t> missing;
    std::vector<uint64_t> load, gpu, cpu;
    for (const one_item &one : all) {
        experts.push_back(static_cast<uint32_t>(experts.size()));
        tokens.push_back(1);
        missing.push_back(one.absent ? MOORAGE_WHOLE : 0);
        load.push_back(one.absent ? one.load_ns : 0);
        gpu.push_back(one.gpu_ns), cpu.push_back(one.cpu_ns);
    }
    moorage_items items{};
    items.size = sizeof(items);
    items.count = static_cast<uint32_t>(all.size());
    on_one_gpu(items);
    items.load_backlog_ns = link_ns;
    items.behind_backlog_ns = behind_ns;
    items.host_experts = experts.data(), items.host_tokens = tokens.data();
    items.host_missing = missing.data();
    items.host_load_ns = load.data(), items.host_gpu_ns = gpu.data();
    items.host_cpu_ns = cpu.data();
    decision out;
    out.sites.assign(all.size(), gpu_device);
    out.order.resize(all.size());
    moorage_step step{};
    step.size = sizeof(step);
    CHECK(policy.dispatch->assign(policy.plugin, &step, &items, out.sites.data(),
                                  out.order.data()) == items.count);
    return out;
}

uint32_t site(const decision &of, size_t i) { return of.sites[i] & ~MOORAGE_AND_LOAD; }

// When the layer ends if the absent of the GPU are loaded in the order given.
uint64_t end_of(const std::vector<one_item> &all, const decision &of, uint64_t link_ns = 0) {
    uint64_t gpu_ns = 0, cpu_ns = 0;
    for (size_t i = 0; i < all.size(); ++i)
        if (!all[i].absent && site(of, i) == gpu_device) gpu_ns += all[i].gpu_ns;
    for (const uint32_t i : of.order) {
        if (site(of, i) == cpu_device) {
            cpu_ns += all[i].cpu_ns;
        } else if (all[i].absent) {
            link_ns += all[i].load_ns;
            gpu_ns = std::max(gpu_ns, link_ns) + all[i].gpu_ns;
        }
    }
    return std::max(gpu_ns, cpu_ns);
}

std::vector<one_item> draw(std::mt19937_64 &generator, bool equal) {
    std::vector<one_item> all(1 + generator() % 8);
    const one_item like{true, 1 + generator() % 300, 1 + generator() % 50, 1 + generator() % 200};
    const size_t residents = generator() % (all.size() + 1);
    for (size_t i = 0; i < all.size(); ++i) {
        all[i] = equal ? like
                       : one_item{true, 1 + generator() % 300, 1 + generator() % 50,
                                  1 + generator() % 200};
        all[i].absent = i >= residents;
    }
    return all;
}

}  // namespace

TEST_CASE("each decision against a naive schedule") {
    world where(1, 64, 8, true, 0);
    any_policy policy("dispatch/overlap", where, {{"fill", "0"}});
    std::mt19937_64 generator(7);
    for (int round = 0; round < 4000; ++round) {
        const std::vector<one_item> all = draw(generator, round % 3 == 0);
        const uint64_t link = generator() % 200;
        const decision got = assign(policy, all, link);
        std::vector<uint32_t> sites(all.size(), gpu_device), absent;
        uint64_t gpu_ns = 0, link_ns = link, cpu_ns = 0;
        for (uint32_t i = 0; i < all.size(); ++i) {
            if (all[i].absent) absent.push_back(i);
            if (!all[i].absent) gpu_ns += all[i].gpu_ns;
        }
        std::ranges::stable_sort(
            absent, [&](uint32_t a, uint32_t b) { return all[a].cpu_ns > all[b].cpu_ns; });
        for (const uint32_t i : absent) {
            const uint64_t on_gpu = std::max(gpu_ns, link_ns + all[i].load_ns) + all[i].gpu_ns;
            const uint64_t on_cpu = cpu_ns + all[i].cpu_ns;
            if (on_gpu <= on_cpu) {
                link_ns += all[i].load_ns;
                gpu_ns = on_gpu;
            } else {
                sites[i] = cpu_device;
                cpu_ns = on_cpu;
            }
        }
        decision naive{sites, got.order};
        // Residents, last first, while the end comes sooner.
        for (uint32_t i = static_cast<uint32_t>(all.size()); i-- > 0;) {
            if (all[i].absent) continue;
            decision moved = naive;
            moved.sites[i] = cpu_device;
            if (end_of(all, moved, link) >= end_of(all, naive, link)) break;
            naive = moved;
        }
        for (uint32_t i = 0; i < all.size(); ++i) CHECK(site(got, i) == naive.sites[i]);
        std::vector<uint32_t> loads = got.order;
        std::erase_if(loads, [&](uint32_t i) { return !all[i].absent; });
        CHECK(loads == absent);
    }
}

TEST_CASE("never later than everything absent on the CPU; equal experts nearly as good as can be") {
    world where(1, 64, 8, true, 0);
    any_policy policy("dispatch/overlap", where, {{"fill", "0"}});
    std::mt19937_64 generator(8);
    for (int round = 0; round < 2000; ++round) {
        const bool equal = round % 2 == 0;
        const std::vector<one_item> all = draw(generator, equal);
        const decision got = assign(policy, all);
        decision on_cpu = got, best = got;
        for (size_t i = 0; i < all.size(); ++i)
            on_cpu.sites[i] = all[i].absent ? cpu_device : gpu_device;
        CHECK(end_of(all, got) <= end_of(all, on_cpu));
        if (!equal) continue;
        uint64_t least = UINT64_MAX;
        for (uint32_t mask = 0; mask < 1u << all.size(); ++mask) {
            for (size_t i = 0; i < all.size(); ++i)
                best.sites[i] = mask >> i & 1 ? cpu_device : gpu_device;
            least = std::min(least, end_of(all, best));
        }
        const one_item &like = all[0];
        CHECK(end_of(all, got) <= least + std::max(like.cpu_ns, like.load_ns + like.gpu_ns));
    }
}

TEST_CASE("by hand: what is loaded behind, and when not") {
    world where(1, 64, 8, true, 0);  // a load takes the world's costs
    any_policy policy("dispatch/overlap", where, {{"fill", "0"}, {"behind", "2"}});
    const std::vector<one_item> four(4, {true, 1000, 10, 20});
    const decision got = assign(policy, four);
    const uint32_t later = cpu_device | MOORAGE_AND_LOAD;
    CHECK(got.sites == std::vector<uint32_t>{later, later, cpu_device, cpu_device});
    CHECK(got.order == std::vector<uint32_t>{0, 1, 2, 3});
    // Resident ones are helped out with, not loaded: 3 x 100 on the GPU, one of them on the CPU.
    const std::vector<one_item> busy(3, {false, 0, 100, 120});
    CHECK(assign(policy, busy).sites == std::vector<uint32_t>{gpu_device, gpu_device, cpu_device});
    any_policy alone("dispatch/overlap", where, {{"help", "0"}});
    CHECK(assign(alone, busy).sites == std::vector<uint32_t>(3, gpu_device));
}

}  // namespace dispatch_overlap_test
