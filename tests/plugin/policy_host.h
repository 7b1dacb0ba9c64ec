// policy_host.h - one instance of any bundled policy over a residency and costs of the test.
#pragma once

#include <functional>
#include <map>
#include <random>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <moorage/moorage.hpp>

#include "policy_library.h"

namespace moorage::test {

struct policy_shape {
    uint32_t layers, experts, top_k;
    uint32_t slots;  // whole experts in all
    bool shared = false;
    uint32_t segments = 2;
};

// Opens build/plugins/<file>.so. `params`: values of parameters without their defaults.
class policy_host {
public:
    policy_host(const std::string &file, const policy_shape &sizes,
                const std::map<std::string, std::string> &params = {}, bool timed = true)
        : shape(sizes),
          state(sizes.layers * sizes.experts),
          slots(sizes.shared ? 1 : sizes.layers),
          used(slots.size()),
          split(sizes.layers, 1),
          timed_(timed) {
        view = {sizeof(view),
                0,
                sizes.layers,
                sizes.experts,
                static_cast<uint32_t>(slots.size()),
                0,
                state.data(),
                slots.data(),
                used.data(),
                split.data(),
                nullptr,
                nullptr};
        costs.size = sizeof(costs);
        host_ = {sizeof(host_), 0,        MOORAGE_ABI_MAJOR, MOORAGE_ABI_MINOR, this,
                 find_service,  set_error};
        const moorage_module *module = open_library(file);
        const moorage_descriptor *about = module->descriptor(0);
        const std::vector<moorage_value> values = values_of(*about, params);
        if (module->create(about->plugin_name, &host_, values.data(),
                           static_cast<uint32_t>(values.size()), &plugin) != MOORAGE_OK)
            throw std::runtime_error(file + ": " + error);
        moorage_limits limits{};
        limits.size = sizeof(limits);
        limits.layers = sizes.layers, limits.experts = sizes.experts, limits.top_k = sizes.top_k;
        limits.tokens_max = 16, limits.requests_max = 16;
        limits.pools = static_cast<uint32_t>(slots.size());
        limits.slots = sizes.slots, limits.segments = sizes.segments;
        limits.predictions_max = sizes.experts;
        if (plugin->activate(plugin, &limits) != MOORAGE_OK) throw std::runtime_error(error);
        observer = table<moorage_observer>(MOORAGE_INTERFACE_OBSERVER);
        cache = table<moorage_cache>(MOORAGE_INTERFACE_CACHE);
        budget = table<moorage_budget>(MOORAGE_INTERFACE_BUDGET);
        prefetch = table<moorage_prefetch>(MOORAGE_INTERFACE_PREFETCH);
    }
    policy_host(const policy_host &) = delete;
    ~policy_host() {
        plugin->deactivate(plugin);
        plugin->destroy(plugin);
    }

    // One token at a layer, or `tokens` of them with `chosen` one after the other.
    void observe(uint32_t layer, const std::vector<uint32_t> &chosen,
                 const std::vector<uint32_t> &predicted = {}, uint32_t tokens = 1) {
        std::vector<uint32_t> distinct;
        for (const uint32_t expert : chosen)
            if (std::find(distinct.begin(), distinct.end(), expert) == distinct.end())
                distinct.push_back(expert);
        moorage_step step{};
        step.size = sizeof(step);
        step.layer = layer;
        step.index = step.visit = steps++;
        step.token = token;
        step.phase = MOORAGE_DECODE;
        step.token_count = tokens;
        step.top_k = static_cast<uint32_t>(chosen.size()) / tokens;
        step.experts = shape.experts;
        step.host_chosen = chosen.data();
        step.host_distinct = distinct.data();
        step.distinct_count = static_cast<uint32_t>(distinct.size());
        step.host_predicted = predicted.empty() ? nullptr : predicted.data();
        step.prediction_count = static_cast<uint32_t>(predicted.size());
        observer->observe(plugin, &step);
        if (layer + 1 == shape.layers) token += tokens;
    }
    std::vector<uint32_t> fill(uint32_t pool, uint32_t count) {
        const moorage_room room{sizeof(room),  0, pool, shape.shared ? MOORAGE_NONE : pool, count,
                                MOORAGE_BUDGET};
        std::vector<uint32_t> pages(count);
        pages.resize(cache->fill(plugin, &room, pages.data()));
        return pages;
    }

    const policy_shape shape;
    std::vector<uint32_t> state;
    std::vector<uint32_t> slots, used;
    std::vector<float> split;
    moorage_residency view{};
    moorage_costs costs{};
    uint64_t steps = 0, token = 0;
    uint64_t now_ns = 0;                                             // of its clock
    std::function<uint64_t(uint32_t page, uint64_t step)> next_use;  // the future, where it has one
    std::string error;
    std::vector<std::string> lines;  // of the log
    moorage_plugin *plugin = nullptr;
    const moorage_observer *observer = nullptr;
    const moorage_cache *cache = nullptr;
    const moorage_budget *budget = nullptr;
    const moorage_prefetch *prefetch = nullptr;

private:
    template <class Table>
    const Table *table(const char *id) {
        return static_cast<const Table *>(plugin->get_interface(plugin, id));
    }
    static policy_host &self(const moorage_host *host) {
        return *static_cast<policy_host *>(host->host_data);
    }
    static void set_error(const moorage_host *host, const char *text) { self(host).error = text; }
    static const void *find_service(const moorage_host *host, const char *id) {
        static constexpr moorage_residency_service residencies{
            sizeof(residencies), 0,
            [](const moorage_host *h) -> const moorage_residency * { return &self(h).view; }};
        static constexpr moorage_random randoms{
            sizeof(randoms), 0, [](const moorage_host *h) { return self(h).generator_(); }};
        static constexpr moorage_log logs{sizeof(logs), 0,
                                          [](const moorage_host *h, int32_t, const char *text) {
                                              self(h).lines.push_back(text);
                                          }};
        static constexpr moorage_costs_service times{
            sizeof(times), 0, [](const moorage_host *h) -> const moorage_costs * {
                return self(h).timed_ ? &self(h).costs : nullptr;
            }};
        static constexpr moorage_clock clocks{sizeof(clocks), 0,
                                              [](const moorage_host *h) { return self(h).now_ns; }};
        static constexpr moorage_future futures{
            sizeof(futures), 0,
            [](const moorage_host *h, uint32_t page, uint64_t step, uint64_t *) {
                return self(h).next_use(page, step);
            }};
        const std::string_view service = id;
        if (service == MOORAGE_SERVICE_CLOCK) return &clocks;
        if (service == MOORAGE_SERVICE_FUTURE) return &futures;
        if (service == MOORAGE_SERVICE_RESIDENCY) return &residencies;
        if (service == MOORAGE_SERVICE_RANDOM) return &randoms;
        if (service == MOORAGE_SERVICE_LOG) return &logs;
        if (service == MOORAGE_SERVICE_COSTS) return &times;
        (void)host;
        return nullptr;
    }

    const bool timed_;
    moorage_host host_{};
    std::mt19937_64 generator_{1};
};

}  // namespace moorage::test
