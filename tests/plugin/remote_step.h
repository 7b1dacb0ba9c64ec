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
inline decision ask(any_policy &policy, const remote_step &asked_step, bool servers = true) {
    std::vector<uint32_t> experts, tokens, remote_first, remote_devices;
    std::vector<uint8_t> missing;
    std::vector<uint64_t> load, on_device, on_cpu, remote, once;
    for (const item &entry : asked_step.items) {
        experts.push_back(static_cast<uint32_t>(experts.size()));
        tokens.push_back(entry.tokens);
        missing.push_back(entry.absent ? MOORAGE_WHOLE : 0);
        load.push_back(entry.absent ? entry.load_ns : 0);
        on_device.push_back(entry.gpu_ns), on_cpu.push_back(entry.cpu_ns);
        remote_first.push_back(static_cast<uint32_t>(remote.size()));
        for (const offer &candidate : entry.offers) {
            remote_devices.push_back(first + candidate.server);
            remote.push_back(candidate.remote_ns), once.push_back(candidate.once_ns);
        }
    }
    remote_first.push_back(static_cast<uint32_t>(remote.size()));
    moorage_items items{};
    items.size = sizeof(items);
    items.flags = asked_step.serial ? uint32_t{MOORAGE_ITEMS_SERIAL} : 0u;
    items.count = static_cast<uint32_t>(asked_step.items.size());
    items.load_backlog_ns = asked_step.load_backlog_ns;
    items.host_experts = experts.data(), items.host_tokens = tokens.data();
    items.host_missing = missing.data();
    items.host_load_ns = load.data(), items.host_gpu_ns = on_device.data();
    items.host_cpu_ns = on_cpu.data();
    place_on_first_gpu(items);
    std::vector<moorage_device> machine(first, moorage_device{});
    for (const uint8_t distance : asked_step.distances)
        machine.push_back({sizeof(moorage_device), MOORAGE_DEVICE_SERVER, 0, distance});
    if (servers) {
        items.devices = static_cast<uint32_t>(machine.size());
        items.host_devices = machine.data();
        items.host_remote_ns = remote.data(), items.host_once_ns = once.data();
        items.host_remote_first = remote_first.data();
        items.host_remote_devices = remote_devices.data();
    }
    decision result;
    result.sites.assign(asked_step.items.size(), gpu_device);
    result.order.resize(asked_step.items.size());
    std::iota(result.order.begin(), result.order.end(), 0u);
    moorage_step step{};
    step.size = sizeof(step);
    const uint32_t got = policy.dispatch->assign(policy.plugin, &step, &items, result.sites.data(),
                                                 result.order.data());
    CHECK(got == items.count);
    std::vector<uint32_t> sorted = result.order;
    std::sort(sorted.begin(), sorted.end());
    for (uint32_t i = 0; i < sorted.size(); ++i) CHECK(sorted[i] == i);
    return result;
}

inline const offer &offer_at(const item &entry, uint32_t site) {
    for (const offer &candidate : entry.offers)
        if (first + candidate.server == site) return candidate;
    FAIL("the server does not have the item");
    return entry.offers[0];
}

// T of every called server.
inline std::map<uint32_t, uint64_t> server_end_times(const remote_step &step,
                                                     const std::vector<uint32_t> &sites) {
    std::map<uint32_t, uint64_t> once, ends;
    for (size_t i = 0; i < sites.size(); ++i) {
        if (sites[i] < first) continue;
        const offer &chosen = offer_at(step.items[i], sites[i]);
        once[sites[i]] = std::max(once[sites[i]], chosen.once_ns);
        ends[sites[i]] += chosen.remote_ns - chosen.once_ns;
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
inline std::pair<uint64_t, uint64_t> measure_choice(const remote_step &step,
                                                    const std::vector<uint32_t> &sites) {
    const auto ends = server_end_times(step, sites);
    return {step.serial ? 0 : maximum_of(ends), sum_of(ends)};
}

// Calls visit(sites) for every assignment of the items to servers of `distance` (of any: 3).
template <class Each>
void for_each_assignment(const remote_step &step, std::vector<uint32_t> &sites, size_t index,
                         uint32_t distance, Each &&visit) {
    if (index == step.items.size()) return visit(sites);
    for (const offer &candidate : step.items[index].offers) {
        if (distance != 3 && step.distances[candidate.server] != distance) continue;
        sites[index] = first + candidate.server;
        for_each_assignment(step, sites, index + 1, distance, visit);
    }
}
inline std::pair<uint64_t, uint64_t> best_measure(const remote_step &step, uint32_t distance) {
    std::pair<uint64_t, uint64_t> best{never, never};
    std::vector<uint32_t> sites(step.items.size());
    for_each_assignment(step, sites, 0, distance, [&](const std::vector<uint32_t> &assigned) {
        best = std::min(best, measure_choice(step, assigned));
    });
    return best;
}

struct draw_options {
    uint32_t items_max = 6, servers = 4, tokens_max = 3;
    bool cloud = true, even_once = false, loads = false, residents = false;
};
inline remote_step draw(std::mt19937_64 &generator, const draw_options &options) {
    const auto below = [&](uint64_t bound) { return generator() % bound; };
    remote_step result;
    result.serial = below(2) == 0;
    for (uint32_t s = 0; s < options.servers; ++s)
        result.distances.push_back(static_cast<uint8_t>(options.cloud && s + 1 == options.servers
                                                            ? uint64_t{MOORAGE_DISTANCE_CLOUD}
                                                            : below(2)));
    std::vector<uint64_t> once(options.servers);
    for (uint64_t &ns : once) ns = below(60);
    result.items.resize(1 + below(options.items_max));
    const size_t residents = options.residents ? below(result.items.size()) : 0;
    for (size_t i = 0; i < result.items.size(); ++i) {
        item &entry = result.items[i];
        entry.tokens = 1 + static_cast<uint32_t>(below(options.tokens_max));
        entry.gpu_ns = 1 + below(20), entry.cpu_ns = 1 + below(100);
        entry.absent = i >= residents;
        if (options.loads && below(2) == 0) entry.load_ns = 1 + below(100);
        if (!entry.absent) continue;
        for (uint32_t s = 0; s < options.servers; ++s) {
            const bool last = s + 1 == options.servers && (options.cloud || entry.offers.empty());
            if (!last && below(2) == 0) continue;
            const uint64_t of_server = options.even_once ? once[s] : below(60);
            entry.offers.push_back({s, of_server + 1 + below(40), of_server});
        }
    }
    return result;
}

}  // namespace moorage::test
