// world.cpp - draws the trace and lays out what the host's views show.
#include "tools/moorage/check/world.h"

#include <algorithm>

#include "core/store/ledger.h"

namespace moorage::check {

void dice::distinct(uint32_t bound, uint32_t count, uint32_t *out) {
    for (uint32_t n = 0; n < count;) {
        const uint32_t drawn = std::min(below(bound), below(bound));
        // Dense draws end with the smallest that is left, so this always ends.
        uint32_t candidate = drawn;
        for (uint32_t tries = 0; std::find(out, out + n, candidate) != out + n; ++tries)
            candidate = tries < 8 ? below(bound) : (candidate + 1) % bound;
        out[n++] = candidate;
    }
}

uint64_t known_future::next_use(uint32_t page, uint64_t step, uint64_t *token) {
    if (page >= uses_.size()) return MOORAGE_NEVER;
    const auto &uses = uses_[page];
    const auto at = std::upper_bound(uses.begin(), uses.end(), step,
                                     [](uint64_t value, const use &u) { return value < u.step; });
    if (at == uses.end()) return MOORAGE_NEVER;
    if (token) *token = at->token;
    return at->step;
}

world::world(const world_options &o)
    : options(o),
      state(o.layers * o.experts, o.arrays),
      slots(o.per_layer ? o.layers : 1, o.arrays),
      used(o.per_layer ? o.layers : 1, o.arrays),
      split(o.layers, o.arrays),
      remote_ns(o.servers, o.arrays) {
    limits = {sizeof(limits),
              0,
              o.layers,
              o.experts,
              o.top_k,
              tokens_max(),
              tokens_max(),
              o.per_layer ? o.layers : 1,
              o.slots,
              o.buffer_slots,
              o.two_segments ? 2u : 1u,
              o.extras ? o.predictions : 0,
              o.servers,
              o.links,
              o.transfers,
              0,
              1u << 20};
    residency = {sizeof(residency), 0,           o.layers,   o.experts,  limits.pools, 0,
                 state.all(),       slots.all(), used.all(), split.all(), nullptr, nullptr};
    costs.size = sizeof(costs);
    costs.servers = o.servers;
    costs.expert_bytes = limits.expert_bytes;
    costs.load_ns = 50'000, costs.transfer_issue_ns = 5'000, costs.attention_ns = 20'000;
    costs.gpu_expert_ns = 8'000, costs.gpu_token_ns = 1'000;
    costs.cpu_expert_ns = 90'000, costs.cpu_token_ns = 30'000;
    costs.host_remote_ns = remote_ns.all();
    for (uint64_t &ns : remote_ns.span()) ns = 70'000;
    future.assign(page_count());
    restart(o.seed);
}

void world::restart(uint64_t seed) {
    options.seed = seed;
    clock_ns = 0;
    std::fill_n(state.all(), state.capacity(), uint8_t{0});
    std::fill_n(used.all(), used.capacity(), 0u);
    std::fill_n(split.all(), split.capacity(), 1.0f);
    const auto shares = core::divide_slots(options.slots, options.layers, options.per_layer);
    std::copy(shares.begin(), shares.end(), slots.all());
    draw_trace();
}

void world::draw_trace() {
    dice draw(options.seed * 2 + 1);
    const size_t row = size_t{tokens_max()} * options.top_k;
    trace_.assign(size_t{options.rounds} * options.layers * row, 0);
    future.assign(page_count());
    std::vector<uint8_t> seen(options.experts);
    uint64_t step = 0, token = 0;
    for (uint32_t round = 0; round < options.rounds; token += tokens_of(round++)) {
        for (uint32_t layer = 0; layer < options.layers; ++layer, ++step) {
            uint32_t *at = trace_.data() + step * row;
            std::fill(seen.begin(), seen.end(), uint8_t{0});
            for (uint32_t b = 0; b < tokens_of(round); ++b, at += options.top_k) {
                draw.distinct(options.experts, options.top_k, at);
                for (uint32_t k = 0; k < options.top_k; ++k)
                    if (!std::exchange(seen[at[k]], uint8_t{1}))
                        future.add(layer * options.experts + at[k], step, token);
            }
        }
    }
}

const uint32_t *world::chosen(uint32_t round, uint32_t layer) const {
    const size_t row = size_t{tokens_max()} * options.top_k;
    return trace_.data() + (size_t{round} * options.layers + layer) * row;
}

core::environment world::environment() {
    return {&residency, options.costs ? &costs : nullptr, &clock_ns, &future, options.seed};
}

}  // namespace moorage::check
