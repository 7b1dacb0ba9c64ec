// world.h - an invented model on an invented machine: limits, a random trace, residency, costs,
// clock.
#pragma once

#include <cstdint>
#include <memory>
#include <random>
#include <vector>

#include "core/host/instance.h"
#include "tools/moorage/check/fenced.h"

namespace moorage::check {

// Small random numbers, equal on every machine.
class dice {
public:
    explicit dice(uint64_t seed) : engine_(seed) {}
    uint32_t below(uint32_t bound) {
        return static_cast<uint32_t>(((engine_() >> 32) * bound) >> 32);
    }
    bool one_in(uint32_t n) { return below(n) == 0; }
    float unit() { return static_cast<float>(below(1u << 24)) / static_cast<float>(1u << 24); }
    uint64_t word() { return engine_(); }
    // `count` distinct numbers below `bound`, small ones more likely.
    void distinct(uint32_t bound, uint32_t count, uint32_t *numbers);

private:
    std::mt19937_64 engine_;
};

struct world_options {
    uint32_t layers = 4, experts = 8, top_k = 2, rounds = 48;
    uint32_t batch = 1;    // tokens of a decode step
    uint32_t prefill = 0;  // tokens of the first round's steps; 0: it is a decode round
    uint32_t slots = 10, buffer_slots = 2, predictions = 3;
    bool per_layer = false;
    bool two_segments = false;
    bool extras = true;  // router weights, gate scores, predictions in every step
    bool costs = true;
    bool disturb = true;  // loads that take time, prefetches, pools that shrink and grow
    uint32_t servers = 1, links = 2, transfers = 8;
    uint64_t seed = 1;
    fence arrays = fence::canary;
};

// When each page is requested, for policies that need the future.
class known_future final : public core::future_view {
public:
    void assign(uint32_t pages) { uses_.assign(pages, {}); }
    void add(uint32_t page, uint64_t step, uint64_t token) { uses_[page].push_back({step, token}); }
    uint64_t next_use(uint32_t page, uint64_t step, uint64_t *token) override;
    void rewind() override {}

private:
    struct use {
        uint64_t step, token;
    };
    std::vector<std::vector<use>> uses_;
};

class world {
public:
    explicit world(const world_options &options);

    // Makes everything absent and draws a new trace from `seed`. Addresses stay.
    void restart(uint64_t seed);
    core::environment environment();

    uint32_t page_count() const { return options.layers * options.experts; }
    uint32_t pool_of_layer(uint32_t layer) const { return options.per_layer ? layer : 0; }
    uint32_t pool_of_page(uint32_t page) const { return pool_of_layer(page / options.experts); }
    uint32_t tokens_of(uint32_t round) const {
        return round == 0 && options.prefill ? options.prefill : options.batch;
    }
    // Experts chosen in a round by a layer, [tokens, top_k].
    const uint32_t *chosen(uint32_t round, uint32_t layer) const;

    world_options options;
    moorage_limits limits{};
    fenced<uint32_t> state, slots, used;
    fenced<float> split;
    fenced<moorage_store> stores;    // a GPU's, the host's, those of servers
    fenced<moorage_device> devices;  // a GPU, the CPU, servers
    fenced<moorage_link> links;
    moorage_residency residency{};
    moorage_costs costs{};
    uint64_t clock_ns = 0;
    known_future future;

private:
    void lay_out_machine();
    void draw_trace();
    uint32_t tokens_max() const { return std::max(options.batch, options.prefill); }
    std::vector<uint32_t> trace_;  // [rounds, layers, tokens_max, top_k]
};

}  // namespace moorage::check
