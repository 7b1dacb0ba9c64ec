// harness.h - drives one cache policy library through the C ABI, step by step, without the core.
//
// This file uses nothing of the core on purpose: a trace is plain vectors, the residency is naive,
// a test controls the host services. `cache_model` is the host's side of a step, in the order of
// calls of cache.h. Decisions come from a library (`library_policy`) or from a definition written
// out in a test (`policy_model`). Both run over the same events and are compared.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <moorage/cache.h>

#include "policy_library.h"

namespace moorage::test {

enum class order { rounds, token, serial };

// [token][layer] the chosen experts, best first.
using routing = std::vector<std::vector<std::vector<uint32_t>>>;

struct request_step {
    uint64_t index, visit, token;
    uint32_t layer;
    std::vector<uint32_t> experts;
};

inline std::vector<request_step> steps_of(const routing &tokens, order requests) {
    std::vector<request_step> steps;
    uint64_t visit = 0;
    const auto add = [&](uint64_t token, uint32_t layer, std::vector<uint32_t> experts) {
        steps.push_back({steps.size(), visit, token, layer, std::move(experts)});
    };
    for (uint64_t token = 0; token < tokens.size(); ++token) {
        const auto &layers = tokens[token];
        const size_t rounds = requests == order::rounds ? layers[0].size() : 1;
        for (size_t round = 0; round < rounds; ++round)
            for (uint32_t layer = 0; layer < layers.size(); ++layer, ++visit) {
                if (requests == order::rounds)
                    add(token, layer, {layers[layer][round]});
                else if (requests == order::token)
                    add(token, layer, layers[layer]);
                else
                    for (const uint32_t expert : layers[layer]) add(token, layer, {expert});
            }
    }
    return steps;
}

struct cache_shape {
    uint32_t layers, experts, top_k;
    bool shared;
    uint32_t slots;  // in all
    uint32_t pages() const { return layers * experts; }
    uint32_t pools() const { return shared ? 1 : layers; }
};

// The cache's side. Calls come in the order of cache.h.
class policy_model {
public:
    virtual ~policy_model() = default;
    virtual void reset() {}
    virtual void observe(const request_step &) {}
    // `candidates`: the pages that may go, ascending. Returns at most `count` of them; the first
    // goes first.
    virtual std::vector<uint32_t> victims(const moorage_room &room,
                                          const std::vector<uint32_t> &candidates) = 0;
    virtual void load(uint32_t, int32_t) {}
    virtual void evict(uint32_t, int32_t) {}
};

// The outcome of each request, in the encoding of moorage_replay. Misses are counted beside.
using outcomes = std::vector<uint32_t>;

class cache_model {
public:
    explicit cache_model(const cache_shape &cache)
        : shape(cache),
          state(cache.pages()),
          slots(cache.pools()),
          used(cache.pools()),
          split(cache.layers, 1) {
        for (uint32_t pool = 0; pool < cache.pools(); ++pool)
            slots[pool] =
                cache.slots / cache.pools() + (pool < cache.slots % cache.pools() ? 1 : 0);
        view = {
            sizeof(view), 0,           cache.layers, cache.experts, cache.pools(), 0, state.data(),
            slots.data(), used.data(), split.data(), nullptr,       nullptr};
    }
    cache_model(const cache_model &) = delete;

    void clear() {
        std::fill(state.begin(), state.end(), 0);
        std::fill(used.begin(), used.end(), 0);
        misses = 0;
    }
    uint32_t pool_of(uint32_t layer) const { return shape.shared ? 0 : layer; }
    bool is_in_slot(uint32_t page) const {
        return (state[page] & (MOORAGE_STATE_RESIDENT | MOORAGE_STATE_IN_FLIGHT)) != 0 &&
               (state[page] & MOORAGE_STATE_BUFFERED) == 0;
    }
    std::vector<uint32_t> candidates(uint32_t pool) const {
        std::vector<uint32_t> pages;
        for (uint32_t page = 0; page < state.size(); ++page)
            if (pool_of(page / shape.experts) == pool && is_in_slot(page) &&
                !(state[page] & MOORAGE_STATE_PINNED))
                pages.push_back(page);
        return pages;
    }

    // One step; an event of several experts pins them, a single request pins nothing.
    outcomes run(policy_model &policy, const request_step &step) {
        const uint32_t first = step.layer * shape.experts;
        const bool pins = step.experts.size() > 1;
        std::vector<uint32_t> missing;
        for (const uint32_t expert : step.experts) {
            if (state[first + expert] == 0) missing.push_back(first + expert);
            if (pins) state[first + expert] |= MOORAGE_STATE_PINNED;
        }
        policy.observe(step);
        misses += missing.size();
        const auto loaded = load(policy, missing, step.layer, MOORAGE_DEMAND);
        outcomes results;
        size_t next = 0;
        for (const uint32_t expert : step.experts) {
            const bool missed = next < missing.size() && missing[next] == first + expert;
            results.push_back(missed ? loaded[next++] : MOORAGE_REPLAY_KEPT);
            if (pins) state[first + expert] &= ~MOORAGE_STATE_PINNED;
        }
        return results;
    }

    outcomes load(policy_model &policy, const std::vector<uint32_t> &pages, uint32_t layer,
                  int32_t cause) {
        const uint32_t pool = pool_of(layer);
        const uint32_t free = slots[pool] > used[pool] ? slots[pool] - used[pool] : 0;
        const auto lacking =
            static_cast<uint32_t>(pages.size()) - std::min<uint32_t>(free, pages.size());
        std::vector<uint32_t> going;
        const uint32_t ask = std::min(lacking, slots[pool]);
        if (ask > 0) going = checked_victims(policy, pool, layer, ask, cause);
        outcomes results;
        uint32_t spare = free;
        size_t next = 0;
        for (const uint32_t page : pages) {
            uint32_t victim = MOORAGE_REPLAY_KEPT;
            if (spare > 0) {
                --spare;
                ++used[pool];
            } else if (next < going.size()) {
                victim = going[next++];
                remove_page(victim);
                policy.evict(victim, cause);
            } else {
                results.push_back(MOORAGE_REPLAY_BYPASS);
                continue;
            }
            state[page] |= MOORAGE_WHOLE;
            policy.load(page, cause);
            results.push_back(victim);
        }
        return results;
    }

    void remove_page(uint32_t page) { state[page] &= MOORAGE_STATE_PINNED; }

    // The pool now has `count` slots; pages beyond that leave.
    outcomes resize(policy_model &policy, uint32_t pool, uint32_t count) {
        slots[pool] = count;
        if (used[pool] <= count) return {};
        const uint32_t layer = shape.shared ? 0 : pool;
        const auto going = checked_victims(policy, pool, layer, used[pool] - count, MOORAGE_BUDGET);
        for (const uint32_t page : going) {
            remove_page(page);
            --used[pool];
            policy.evict(page, MOORAGE_BUDGET);
        }
        return going;
    }

    const cache_shape shape;
    std::vector<uint32_t> state;
    std::vector<uint32_t> slots, used;
    std::vector<float> split;
    moorage_residency view{};
    uint64_t misses = 0;

private:
    // Checks the rules of cache.h for victims.
    std::vector<uint32_t> checked_victims(policy_model &policy, uint32_t pool, uint32_t layer,
                                          uint32_t count, int32_t cause) {
        const auto may_go = candidates(pool);
        const moorage_room room{sizeof(room), 0, pool, layer, count, cause};
        auto going = policy.victims(room, may_go);
        const size_t wanted = std::min<size_t>(count, may_go.size());
        if (going.size() != wanted)
            throw std::runtime_error(std::to_string(going.size()) + " victims, not " +
                                     std::to_string(wanted));
        auto sorted = going;
        std::sort(sorted.begin(), sorted.end());
        if (std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end())
            throw std::runtime_error("a victim is named twice");
        if (!std::includes(may_go.begin(), may_go.end(), sorted.begin(), sorted.end()))
            throw std::runtime_error("a victim cannot go");
        return going;
    }
};

// One instance of the policy `name` of build/plugins/cache/<name>.so over `model`.
class library_policy final : public policy_model {
public:
    // `steps`: the future that it may ask for; borrowed.
    library_policy(const std::string &name, cache_model &model, const parameters &params = {},
                   const std::vector<request_step> *steps = nullptr)
        : model_(model), name_(name), steps_(steps) {
        host_ = {sizeof(host_), 0,        MOORAGE_ABI_MAJOR, MOORAGE_ABI_MINOR, this,
                 find_service,  set_error};
        const moorage_module *module = open_library("cache/" + name);
        const moorage_descriptor *about = module->descriptor(0);
        const std::vector<moorage_value> values = values_of(*about, params);
        if (module->create(about->plugin_name, &host_, values.data(),
                           static_cast<uint32_t>(values.size()), &plugin_) != MOORAGE_OK)
            throw std::runtime_error(name + ": " + error_);
        const auto *observer = static_cast<const moorage_observer *>(
            plugin_->get_interface(plugin_, MOORAGE_INTERFACE_OBSERVER));
        cache_ = static_cast<const moorage_cache *>(
            plugin_->get_interface(plugin_, MOORAGE_INTERFACE_CACHE));
        replayer_ = static_cast<const moorage_replayer *>(
            plugin_->get_interface(plugin_, MOORAGE_INTERFACE_REPLAY));
        observe_ = observer ? observer->observe : nullptr;
        moorage_limits limits{};
        limits.size = sizeof(limits);
        limits.layers = model.shape.layers;
        limits.experts = model.shape.experts;
        limits.top_k = model.shape.top_k;
        limits.tokens_max = limits.requests_max = limits.segments = 1;
        limits.pools = model.shape.pools();
        limits.slots = model.shape.slots;
        if (plugin_->activate(plugin_, &limits) != MOORAGE_OK) throw std::runtime_error(error_);
    }
    library_policy(const library_policy &) = delete;
    ~library_policy() override {
        plugin_->deactivate(plugin_);
        plugin_->destroy(plugin_);
    }

    // The draws of the random service. When none is left, a generator continues.
    std::deque<uint64_t> draws;
    uint64_t draws_taken = 0;

    void reset() override {
        generator_.seed(1);
        draws_taken = 0;
        plugin_->reset(plugin_);
    }
    void observe(const request_step &requested) override {
        const auto width = static_cast<uint32_t>(requested.experts.size());
        const uint32_t stream = 0;
        const uint64_t request = 0;
        moorage_step step{};
        step.size = sizeof(step);
        step.index = requested.index, step.visit = requested.visit, step.token = requested.token;
        step.layer = requested.layer;
        step.phase = MOORAGE_DECODE;
        step.token_count = 1;
        step.top_k = step.distinct_count = width;
        step.experts = model_.shape.experts;
        step.host_streams = &stream;
        step.host_requests = &request;
        step.host_chosen = step.host_distinct = requested.experts.data();
        if (observe_) observe_(plugin_, &step);
    }
    std::vector<uint32_t> victims(const moorage_room &room,
                                  const std::vector<uint32_t> &) override {
        std::vector<uint32_t> pages(room.count);
        pages.resize(cache_->victims(plugin_, &room, pages.data()));
        return pages;
    }
    void load(uint32_t page, int32_t cause) override {
        if (cache_->on_load) cache_->on_load(plugin_, page, MOORAGE_WHOLE, cause);
    }
    void evict(uint32_t page, int32_t cause) override {
        if (cache_->on_evict) cache_->on_evict(plugin_, page, cause);
    }
    // Runs all of `tokens` through the fast path. The residency of the model follows.
    outcomes replay(const routing &tokens, order requests, uint64_t first_token = 0) {
        const uint32_t top_k = model_.shape.top_k;
        const uint32_t rounds = requests == order::rounds ? top_k : 1;
        const uint32_t repeats = requests == order::serial ? top_k : 1;
        const uint32_t width = requests == order::token ? top_k : 1;
        std::vector<uint32_t> experts;
        for (const auto &step : steps_of(tokens, requests))
            experts.insert(experts.end(), step.experts.begin(), step.experts.end());
        std::vector<uint64_t> ids(tokens.size());
        outcomes results(experts.size());
        const uint64_t visit = first_token * rounds * model_.shape.layers;
        const moorage_replay run{sizeof(run),
                                 0,
                                 visit * repeats,
                                 visit,
                                 first_token,
                                 static_cast<uint32_t>(tokens.size()),
                                 rounds,
                                 repeats,
                                 width,
                                 experts.data(),
                                 ids.data(),
                                 model_.state.data(),
                                 model_.used.data(),
                                 results.data()};
        replayer_->replay(plugin_, &run);
        return results;
    }

private:
    static library_policy &self(const moorage_host *host) {
        return *static_cast<library_policy *>(host->host_data);
    }
    static void set_error(const moorage_host *host, const char *text) { self(host).error_ = text; }
    static const moorage_residency *residency(const moorage_host *host) {
        return &self(host).model_.view;
    }
    static uint64_t random(const moorage_host *host) {
        library_policy &policy = self(host);
        ++policy.draws_taken;
        if (policy.draws.empty()) return policy.generator_();
        const uint64_t draw = policy.draws.front();
        policy.draws.pop_front();
        return draw;
    }
    static uint64_t next_use(const moorage_host *host, uint32_t page, uint64_t step,
                             uint64_t *token) {
        const library_policy &policy = self(host);
        for (uint64_t i = step + 1; i < policy.steps_->size(); ++i) {
            const request_step &later = (*policy.steps_)[i];
            if (later.layer != page / policy.model_.shape.experts) continue;
            const uint32_t expert = page % policy.model_.shape.experts;
            if (std::find(later.experts.begin(), later.experts.end(), expert) ==
                later.experts.end())
                continue;
            if (token) *token = later.token;
            return i;
        }
        return MOORAGE_NEVER;
    }
    static const void *find_service(const moorage_host *host, const char *id) {
        static constexpr moorage_residency_service residencies{sizeof(residencies), 0, residency};
        static constexpr moorage_random randoms{sizeof(randoms), 0, random};
        static constexpr moorage_future futures{sizeof(futures), 0, next_use};
        const std::string_view service = id;
        if (service == MOORAGE_SERVICE_RESIDENCY) return &residencies;
        if (service == MOORAGE_SERVICE_RANDOM) return &randoms;
        if (service == MOORAGE_SERVICE_FUTURE && self(host).steps_) return &futures;
        return nullptr;
    }

    cache_model &model_;
    const std::string name_;
    const std::vector<request_step> *steps_;
    moorage_host host_{};
    std::string error_;
    std::mt19937_64 generator_{1};
    moorage_plugin *plugin_ = nullptr;
    const moorage_cache *cache_ = nullptr;
    const moorage_replayer *replayer_ = nullptr;
    void (*observe_)(moorage_plugin *, const moorage_step *) = nullptr;
};

// A policy over a whole trace, cold.
struct replayed {
    outcomes results;
    uint64_t misses;
};

inline replayed replay_stepwise(policy_model &policy, cache_model &model,
                                const std::vector<request_step> &steps) {
    outcomes results;
    for (const request_step &step : steps) {
        const outcomes step_results = model.run(policy, step);
        results.insert(results.end(), step_results.begin(), step_results.end());
    }
    return {std::move(results), model.misses};
}

inline replayed replay_library(const std::string &name, const cache_shape &shape,
                               const routing &tokens, order requests,
                               const parameters &params = {}) {
    cache_model model(shape);
    const auto steps = steps_of(tokens, requests);
    library_policy policy(name, model, params, &steps);
    return replay_stepwise(policy, model, steps);
}

inline uint64_t misses_of(const std::string &name, const cache_shape &shape, const routing &tokens,
                          order requests, const parameters &params = {}) {
    return replay_library(name, shape, tokens, requests, params).misses;
}

// Experts drawn without replacement, expert e with weight 1 / (1 + rank of e)^skew.
inline routing random_routing(std::mt19937_64 &generator, uint32_t tokens, uint32_t layers,
                              uint32_t experts, uint32_t top_k, double skew) {
    std::vector<std::vector<double>> weights(layers, std::vector<double>(experts));
    for (auto &layer_weights : weights) {
        for (uint32_t rank = 0; rank < experts; ++rank)
            layer_weights[rank] = std::pow(1.0 + rank, -skew);
        std::shuffle(layer_weights.begin(), layer_weights.end(), generator);
    }
    routing result(tokens, std::vector<std::vector<uint32_t>>(layers));
    for (auto &token : result)
        for (uint32_t layer = 0; layer < layers; ++layer) {
            auto left = weights[layer];
            for (uint32_t i = 0; i < top_k; ++i) {
                std::discrete_distribution<uint32_t> draw(left.begin(), left.end());
                token[layer].push_back(draw(generator));
                left[token[layer].back()] = 0;
            }
        }
    return result;
}

}  // namespace moorage::test
