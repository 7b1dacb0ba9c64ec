// any_policy.h - one policy of any kind, loaded and called through the C ABI, without the core.
//
// `world` is the policy's view of its host: residency, costs, random bits. A test sets it freely.
// `any_policy` owns an instance and its tables. `step_of` makes a moorage_step from plain vectors.
#pragma once

#include <algorithm>
#include <cstdint>
#include <random>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <moorage/budget.h>
#include <moorage/cache.h>
#include <moorage/dispatch.h>
#include <moorage/prefetch.h>

#include "policy_library.h"

namespace moorage::test {

struct world {
    world(uint32_t layers, uint32_t experts, uint32_t top_k, bool shared, uint32_t slots)
        : state(size_t{layers} * experts), pool_slots(shared ? 1 : layers) {
        const auto pools = static_cast<uint32_t>(pool_slots.size());
        for (uint32_t pool = 0; pool < pools; ++pool)
            pool_slots[pool] = slots / pools + (pool < slots % pools ? 1 : 0);
        used.resize(pools);
        split.assign(layers, 1.0f);
        view = {sizeof(view),      0,           layers,       experts, pools,  0, state.data(),
                pool_slots.data(), used.data(), split.data(), nullptr, nullptr};
        limits.size = sizeof(limits);
        limits.layers = layers;
        limits.experts = experts;
        limits.top_k = top_k;
        limits.tokens_max = limits.requests_max = limits.segments = 1;
        limits.pools = pools;
        limits.slots = slots;
        limits.predictions_max = experts;
        costs.size = sizeof(costs);
    }
    world(const world &) = delete;

    std::vector<uint32_t> state;
    std::vector<uint32_t> pool_slots, used;
    std::vector<float> split;
    moorage_residency view{};
    moorage_costs costs{};
    moorage_limits limits{};
    std::mt19937_64 generator{1};
};

class any_policy {
public:
    // `file`: "cache/static". `params`: parameters without their defaults; flags are "1".
    any_policy(const std::string &file, world &test_world, const parameters &params = {})
        : world_(test_world) {
        host_ = {sizeof(host_), 0,        MOORAGE_ABI_MAJOR, MOORAGE_ABI_MINOR, this,
                 find_service,  set_error};
        const moorage_module *module = open_library(file);
        const moorage_descriptor *about = module->descriptor(0);
        const std::vector<moorage_value> values = values_of(*about, params);
        const auto count = static_cast<uint32_t>(values.size());
        if (module->create(about->plugin_name, &host_, values.data(), count, &plugin) != MOORAGE_OK)
            throw std::runtime_error(error_);
        observer = table<moorage_observer>(MOORAGE_INTERFACE_OBSERVER);
        cache = table<moorage_cache>(MOORAGE_INTERFACE_CACHE);
        budget = table<moorage_budget>(MOORAGE_INTERFACE_BUDGET);
        prefetch = table<moorage_prefetch>(MOORAGE_INTERFACE_PREFETCH);
        dispatch = table<moorage_dispatch>(MOORAGE_INTERFACE_DISPATCH);
        if (plugin->activate(plugin, &test_world.limits) == MOORAGE_OK) return;
        plugin->destroy(plugin);
        throw std::runtime_error(error_);
    }
    any_policy(const any_policy &) = delete;
    ~any_policy() {
        plugin->deactivate(plugin);
        plugin->destroy(plugin);
    }

    void observe(const moorage_step &step) { observer->observe(plugin, &step); }
    std::vector<uint32_t> victims(uint32_t pool, uint32_t layer, uint32_t count) {
        const moorage_room room{sizeof(room), 0, pool, layer, count, MOORAGE_DEMAND};
        std::vector<uint32_t> pages(count);
        pages.resize(cache->victims(plugin, &room, pages.data()));
        return pages;
    }
    bool admit(uint32_t page, uint32_t victim = MOORAGE_NONE) {
        const moorage_admission ask{sizeof(ask), 0, page, victim, MOORAGE_WHOLE, MOORAGE_DEMAND};
        return !cache->admit || cache->admit(plugin, &ask) != 0;
    }
    std::vector<uint32_t> fill(uint32_t pool, uint32_t layer, uint32_t count) {
        const moorage_room room{sizeof(room), 0, pool, layer, count, MOORAGE_BUDGET};
        std::vector<uint32_t> pages(count);
        pages.resize(cache->fill(plugin, &room, pages.data()));
        return pages;
    }

    moorage_plugin *plugin = nullptr;
    const moorage_observer *observer = nullptr;
    const moorage_cache *cache = nullptr;
    const moorage_budget *budget = nullptr;
    const moorage_prefetch *prefetch = nullptr;
    const moorage_dispatch *dispatch = nullptr;

private:
    template <class Table>
    const Table *table(const char *id) const {
        return static_cast<const Table *>(plugin->get_interface(plugin, id));
    }
    static any_policy &self(const moorage_host *host) {
        return *static_cast<any_policy *>(host->host_data);
    }
    static void set_error(const moorage_host *host, const char *text) { self(host).error_ = text; }
    static const moorage_residency *residency(const moorage_host *host) {
        return &self(host).world_.view;
    }
    static const moorage_costs *costs(const moorage_host *host) { return &self(host).world_.costs; }
    static uint64_t random(const moorage_host *host) { return self(host).world_.generator(); }
    static const void *find_service(const moorage_host *, const char *id) {
        static constexpr moorage_residency_service residencies{sizeof(residencies), 0, residency};
        static constexpr moorage_costs_service prices{sizeof(prices), 0, costs};
        static constexpr moorage_random randoms{sizeof(randoms), 0, random};
        const std::string_view service = id;
        if (service == MOORAGE_SERVICE_RESIDENCY) return &residencies;
        if (service == MOORAGE_SERVICE_COSTS) return &prices;
        if (service == MOORAGE_SERVICE_RANDOM) return &randoms;
        return nullptr;
    }

    world &world_;
    moorage_host host_{};
    std::string error_;
};

// A step and the arrays it points to.
struct step_data {
    std::vector<uint32_t> chosen, distinct, tokens, streams, predicted;
    std::vector<uint64_t> requests;
    std::vector<float> weights;
    moorage_step step{};
    step_data() = default;
    step_data(const step_data &) = delete;
};

// `chosen`: [tokens][k]. Streams are 0, 1, ... and requests 0 until a test changes them.
inline void fill_step(step_data &target, const world &test_world, uint64_t index, uint32_t layer,
                      const std::vector<std::vector<uint32_t>> &chosen) {
    target.chosen.clear(), target.distinct.clear(), target.tokens.clear();
    target.streams.clear(), target.requests.clear();
    for (const auto &of_token : chosen) {
        target.streams.push_back(static_cast<uint32_t>(target.streams.size()));
        target.requests.push_back(0);
        for (const uint32_t expert : of_token) {
            target.chosen.push_back(expert);
            const auto found = std::find(target.distinct.begin(), target.distinct.end(), expert);
            if (found != target.distinct.end()) {
                ++target.tokens[static_cast<size_t>(found - target.distinct.begin())];
                continue;
            }
            target.distinct.push_back(expert);
            target.tokens.push_back(1);
        }
    }
    moorage_step &step = target.step;
    step = {};
    step.size = sizeof(step);
    step.index = step.visit = index;
    step.token = index / test_world.limits.layers;
    step.layer = layer;
    step.phase = MOORAGE_DECODE;
    step.token_count = static_cast<uint32_t>(chosen.size());
    step.top_k = static_cast<uint32_t>(chosen[0].size());
    step.experts = test_world.limits.experts;
    step.distinct_count = static_cast<uint32_t>(target.distinct.size());
    step.host_streams = target.streams.data();
    step.host_requests = target.requests.data();
    step.host_chosen = target.chosen.data();
    step.host_distinct = target.distinct.data();
    step.host_distinct_tokens = target.tokens.data();
}

// `count` different numbers below `bound`, smaller ones more often.
inline std::vector<uint32_t> draw_distinct(std::mt19937_64 &generator, uint32_t count,
                                           uint32_t bound) {
    std::vector<uint32_t> drawn;
    while (drawn.size() < count) {
        const auto expert =
            static_cast<uint32_t>(std::min(generator() % bound, generator() % bound));
        if (std::find(drawn.begin(), drawn.end(), expert) == drawn.end()) drawn.push_back(expert);
    }
    return drawn;
}

}  // namespace moorage::test
