// policy_drive.h - one policy of any kind, loaded and called through the C ABI alone, in a world of
// the test: a residency view, and steps whose arrays are plain vectors.
#pragma once

#include <algorithm>
#include <cstdint>
#include <random>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <moorage/cache.h>
#include <moorage/dispatch.h>
#include <moorage/prefetch.h>
#include <moorage/router.h>

#include "policy_library.h"

namespace moorage::test {

// The host's state. Its sizes bound everything that a policy sees.
struct policy_world {
    uint32_t layers = 1, experts = 8, top_k = 2, tokens_max = 8, slots = 4, buffer_slots = 4;
    uint32_t versions = 1;  // mask, of the one store
    bool shared = true;
    std::vector<uint32_t> state = {};  // [layers * experts]
    std::vector<uint32_t> slots_of = {}, used = {};
    std::vector<float> split = {};
    moorage_residency view = {};
    moorage_costs costs = {};

    void make() {
        const uint32_t pools = shared ? 1 : layers;
        state.assign(size_t{layers} * experts, 0);
        slots_of.assign(pools, slots);
        used.assign(pools, 0);
        split.assign(layers, 1);
        view = {sizeof(view),    0,           layers,       experts, pools,  0, state.data(),
                slots_of.data(), used.data(), split.data(), nullptr, nullptr};
        costs.size = sizeof(costs);
    }
};

class driven_policy {
public:
    // Parameters by name, flags "1"; the others have their defaults. The policy is active from here
    // on.
    driven_policy(const std::string &file, const std::string &name, const policy_world &world,
                  const parameters &params = {})
        : world_(world) {
        host_ = {sizeof(host_), 0,        MOORAGE_ABI_MAJOR, MOORAGE_ABI_MINOR, this,
                 find_service,  set_error};
        const moorage_module *module = open_library(file);
        for (uint32_t i = 0; i < module->descriptor_count; ++i)
            if (name == module->descriptor(i)->plugin_name) about = module->descriptor(i);
        if (about == nullptr) throw std::runtime_error(name + " is not in " + file);
        const std::vector<moorage_value> values = values_of(*about, params);
        require(module->create(name.c_str(), &host_, values.data(),
                               static_cast<uint32_t>(values.size()), &plugin));
        const auto table = [this](const char *id) { return plugin->get_interface(plugin, id); };
        observer = static_cast<const moorage_observer *>(table(MOORAGE_INTERFACE_OBSERVER));
        router = static_cast<const moorage_router *>(table(MOORAGE_INTERFACE_ROUTER));
        cache = static_cast<const moorage_cache *>(table(MOORAGE_INTERFACE_CACHE));
        prefetch = static_cast<const moorage_prefetch *>(table(MOORAGE_INTERFACE_PREFETCH));
        dispatch = static_cast<const moorage_dispatch *>(table(MOORAGE_INTERFACE_DISPATCH));
        moorage_limits limits{};
        limits.size = sizeof(limits);
        limits.layers = world.layers;
        limits.experts = limits.predictions_max = world.experts;
        limits.top_k = world.top_k;
        limits.tokens_max = limits.requests_max = world.tokens_max;
        limits.pools = world.view.pools;
        limits.slots = world.slots;
        limits.buffer_slots = world.buffer_slots;
        limits.segments = 2;
        const moorage_store store{sizeof(store), MOORAGE_STORE_FAST, world.slots, world.versions};
        limits.stores = 1;
        limits.host_stores = &store;
        require(plugin->activate(plugin, &limits));
    }
    driven_policy(const driven_policy &) = delete;
    ~driven_policy() {
        plugin->deactivate(plugin);
        plugin->destroy(plugin);
    }

    const moorage_descriptor *about = nullptr;
    moorage_plugin *plugin = nullptr;
    const moorage_observer *observer = nullptr;
    const moorage_router *router = nullptr;
    const moorage_cache *cache = nullptr;
    const moorage_prefetch *prefetch = nullptr;
    const moorage_dispatch *dispatch = nullptr;

private:
    void require(int32_t status) const {
        if (status != MOORAGE_OK) throw std::runtime_error(error_);
    }
    static driven_policy &self(const moorage_host *host) {
        return *static_cast<driven_policy *>(host->host_data);
    }
    static void set_error(const moorage_host *host, const char *text) { self(host).error_ = text; }
    static const moorage_residency *residency(const moorage_host *host) {
        return &self(host).world_.view;
    }
    static const moorage_costs *costs(const moorage_host *host) { return &self(host).world_.costs; }
    static const void *find_service(const moorage_host *, const char *id) {
        static constexpr moorage_residency_service residencies{sizeof(residencies), 0, residency};
        static constexpr moorage_costs_service prices{sizeof(prices), 0, costs};
        const std::string_view service = id;
        if (service == MOORAGE_SERVICE_RESIDENCY) return &residencies;
        if (service == MOORAGE_SERVICE_COSTS) return &prices;
        return nullptr;
    }

    const policy_world &world_;
    moorage_host host_{};
    std::string error_;
};

// A step of some tokens with its arrays. Distinct experts follow from `chosen`.
struct drawn_step {
    uint32_t layer = 0, experts = 0, top_k = 0;
    int32_t phase = MOORAGE_DECODE;
    uint64_t index = 0;
    std::vector<std::vector<uint32_t>> chosen = {};  // [token][k]
    std::vector<std::vector<float>> scores = {};     // [token][experts]

    // Valid until the next call, since it borrows from this object.
    const moorage_step &table() {
        flat_chosen_.clear(), flat_scores_.clear(), weights_.clear(), distinct_.clear();
        for (size_t token = 0; token < chosen.size(); ++token) {
            flat_scores_.insert(flat_scores_.end(), scores[token].begin(), scores[token].end());
            for (const uint32_t expert : chosen[token]) {
                flat_chosen_.push_back(expert);
                weights_.push_back(scores[token][expert]);
                if (std::find(distinct_.begin(), distinct_.end(), expert) == distinct_.end())
                    distinct_.push_back(expert);
            }
        }
        streams_.resize(chosen.size());
        requests_.resize(chosen.size());
        for (uint32_t token = 0; token < chosen.size(); ++token)
            streams_[token] = token, requests_[token] = token;
        table_ = {};
        table_.size = sizeof(table_);
        table_.index = table_.visit = table_.token = index;
        table_.layer = layer;
        table_.phase = phase;
        table_.token_count = static_cast<uint32_t>(chosen.size());
        table_.top_k = top_k;
        table_.experts = experts;
        table_.distinct_count = static_cast<uint32_t>(distinct_.size());
        table_.host_streams = streams_.data();
        table_.host_requests = requests_.data();
        table_.host_chosen = flat_chosen_.data();
        table_.host_weights = weights_.data();
        table_.host_gate_scores = flat_scores_.data();
        table_.host_distinct = distinct_.data();
        return table_;
    }

private:
    moorage_step table_{};
    std::vector<uint32_t> flat_chosen_, distinct_, streams_;
    std::vector<uint64_t> requests_;
    std::vector<float> flat_scores_, weights_;
};

// Experts by score, best first; equal scores by the smaller expert.
inline std::vector<uint32_t> ranking(const std::vector<float> &scores) {
    std::vector<uint32_t> ranked(scores.size());
    for (uint32_t expert = 0; expert < ranked.size(); ++expert) ranked[expert] = expert;
    std::stable_sort(ranked.begin(), ranked.end(),
                     [&](uint32_t a, uint32_t b) { return scores[a] > scores[b]; });
    return ranked;
}

// Scores like those of a softmax (`grid` 0), or multiples of 1 / grid, which tie and meet bounds
// exactly.
inline std::vector<float> draw_scores(std::mt19937_64 &draw, uint32_t experts, uint32_t grid) {
    std::vector<float> scores(experts);
    for (float &score : scores)
        score = grid ? static_cast<float>(draw() % (grid + 1)) / static_cast<float>(grid)
                     : static_cast<float>(draw() >> 40) * 0x1p-24f / 4;
    return scores;
}

}  // namespace moorage::test
