// remote_step.h - steps of a host with remote servers, a dispatch policy's decisions about them,
// and the time of a decision.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include "any_policy.h"
#include "one_gpu.h"

namespace moorage::test {

inline constexpr uint32_t gpu = gpu_device, cpu = cpu_device, first = first_server;
inline constexpr uint64_t never = MOORAGE_NEVER;

struct offer {
    uint32_t server;
    uint64_t remote_ns, once_ns;
};
struct item {
    std::vector<offer> offers;  // ascending
    uint32_t tokens = 1;
    uint64_t load_ns = never, gpu_ns = 1, cpu_ns = 1;
    bool absent = true;
};
struct remote_step {
    std::vector<item> items;
    std::vector<uint8_t> distances;  // of the servers
    bool serial = false;
    uint64_t load_backlog_ns = 0;
};

struct decision {
    std::vector<uint32_t> sites, order;
};

// Asks as the host does. `servers` off: like a host without any.
inline decision ask(any_policy &policy, const remote_step &of, bool servers = true) {
    std::vector<uint32_t> experts, tokens, remote_first, remote_devices;
    std::vector<uint8_t> missing;
    std::vector<uint64_t> load, on_gpu, on_cpu, remote, once;
    for (const item &one : of.items) {
        experts.push_back(static_cast<uint32_t>(experts.size()));
        tokens.push_back(one.tokens);
        missing.push_back(one.absent ? MOORAGE_WHOLE : 0);
        load.push_back(one.absent ? one.load_ns : 0);
        on_gpu.push_back(one.gpu_ns), on_cpu.push_back(one.cpu_ns);
        remote_first.push_back(static_cast<uint32_t>(remote.size()));
        for (const offer &each : one.offers) {
            remote_devices.push_back(first + each.server);
            remote.push_back(each.remote_ns), once.push_back(each.once_ns);
        }
    }
    remote_first.push_back(static_cast<uint32_t>(remote.size()));
    moorage_items items{};
    items.size = sizeof(items);
    items.flags = of.serial ? uint32_t{MOORAGE_ITEMS_SERIAL} : 0u;
    items.count = static_cast<uint32_t>(of.items.size());
    items.load_backlog_ns = of.load_backlog_ns;
    items.host_experts = experts.data(), items.host_tokens = tokens.data();
    items.host_missing = missing.data();
    items.host_load_ns = load.data(), items.host_gpu_ns = on_gpu.data();
    items.host_cpu_ns = on_cpu.data();
    on_one_gpu(items);
    std::vector<moorage_device> machine(first, moorage_device{});
    for (const uint8_t distance : of.distances)
        machine.push_back({sizeof(moorage_device), MOORAGE_DEVICE_SERVER, 0, distance});
    if (servers) {
        items.devices = static_cast<uint32_t>(machine.size());
        items.host_devices = machine.data();
        items.host_remote_ns = remote.data(), items.host_once_ns = once.data();
        items.host_remote_first = remote_first.data();
        items.host_remote_devices = remote_devices.data();
    }
    decision out;
    out.sites.assign(of.items.size(), gpu_device);
    out.order.resize(of.items.size());
    std::iota(out.order.begin(), out.order.end(), 0u);
    moorage_step step{};
    step.size = sizeof(step);
    const uint32_t got =
        policy.dispatch->assign(policy.plugin, &step, &items, out.sites.data(), out.order.data());
    CHECK(got == items.count);
    std::vector<uint32_t> sorted = out.order;
    std::sort(sorted.begin(), sorted.end());
    for (uint32_t i = 0; i < sorted.size(); ++i) CHECK(sorted[i] == i);
    return out;
}

inline const offer &offer_at(const item &of, uint32_t site) {
    for (const offer &each : of.offers)
        if (first + each.server == site) return each;
    FAIL("the server does not have the item");
    return of.offers[0];
}

// T of every called server.
inline std::map<uint32_t, uint64_t> called(const remote_step &of,
                                           const std::vector<uint32_t> &sites) {
    std::map<uint32_t, uint64_t> once, ends;
    for (size_t i = 0; i < sites.size(); ++i) {
        if (sites[i] < first) continue;
        const offer &by = offer_at(of.items[i], sites[i]);
        once[sites[i]] = std::max(once[sites[i]], by.once_ns);
        ends[sites[i]] += by.remote_ns - by.once_ns;
    }
    for (auto &[site, ns] : ends) ns += once[site];
    return ends;
}
inline uint64_t sum_of(const std::map<uint32_t, uint64_t> &ends) {
    uint64_t sum = 0;
    for (const auto &[site, ns] : ends) sum += ns;
    return sum;
}
inline uint64_t maximum_of(const std::map<uint32_t, uint64_t> &ends) {
    uint64_t most = 0;
    for (const auto &[site, ns] : ends) most = std::max(most, ns);
    return most;
}
// The measure of a choice of servers: the sum, or the maximum and then the sum.
inline std::pair<uint64_t, uint64_t> worth(const remote_step &of,
                                           const std::vector<uint32_t> &sites) {
    const auto ends = called(of, sites);
    return {of.serial ? 0 : maximum_of(ends), sum_of(ends)};
}

// Calls each(sites) for every assignment of the items to servers of `distance` (of any: 3).
template <class Each>
void every_assignment(const remote_step &of, std::vector<uint32_t> &sites, size_t at,
                      uint32_t distance, Each &&each) {
    if (at == of.items.size()) return each(sites);
    for (const offer &by : of.items[at].offers) {
        if (distance != 3 && of.distances[by.server] != distance) continue;
        sites[at] = first + by.server;
        every_assignment(of, sites, at + 1, distance, each);
    }
}
inline std::pair<uint64_t, uint64_t> best_worth(const remote_step &of, uint32_t distance) {
    std::pair<uint64_t, uint64_t> best{never, never};
    std::vector<uint32_t> sites(of.items.size());
    every_assignment(of, sites, 0, distance, [&](const std::vector<uint32_t> &all) {
        best = std::min(best, worth(of, all));
    });
    return best;
}

struct draw_options {
    uint32_t items_max = 6, servers = 4, tokens_max = 3;
    bool cloud = true, even_once = false, loads = false, residents = false;
};
inline remote_step draw(std::mt19937_64 &generator, const draw_options &how) {
    const auto below = [&](uint64_t bound) { return generator() % bound; };
    remote_step out;
    out.serial = below(2) == 0;
    for (uint32_t s = 0; s < how.servers; ++s)
        out.distances.push_back(static_cast<uint8_t>(
            how.cloud && s + 1 == how.servers ? uint64_t{MOORAGE_DISTANCE_CLOUD} : below(2)));
    std::vector<uint64_t> once(how.servers);
    for (uint64_t &ns : once) ns = below(60);
    out.items.resize(1 + below(how.items_max));
    const size_t residents = how.residents ? below(out.items.size()) : 0;
    for (size_t i = 0; i < out.items.size(); ++i) {
        item &one = out.items[i];
        one.tokens = 1 + static_cast<uint32_t>(below(how.tokens_max));
        one.gpu_ns = 1 + below(20), one.cpu_ns = 1 + below(100);
        one.absent = i >= residents;
        if (how.loads && below(2) == 0) one.load_ns = 1 + below(100);
        if (!one.absent) continue;
        for (uint32_t s = 0; s < how.servers; ++s) {
            const bool last = s + 1 == how.servers && (how.cloud || one.offers.empty());
            if (!last && below(2) == 0) continue;
            const uint64_t of_server = how.even_once ? once[s] : below(60);
            one.offers.push_back({s, of_server + 1 + below(40), of_server});
        }
    }
    return out;
}

}  // namespace moorage::test
