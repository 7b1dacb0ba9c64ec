// world.cpp - draws the trace and lays out the data of the host's views.
#include "tools/moorage/check/world.h"

#include <algorithm>

#include "core/store/ledger.h"

namespace moorage::check {

void dice::distinct(uint32_t bound, uint32_t count, uint32_t *numbers) {
    for (uint32_t n = 0; n < count;) {
        const uint32_t drawn = std::min(below(bound), below(bound));
        // A dense draw takes the smallest remaining number, so this always ends.
        uint32_t candidate = drawn;
        for (uint32_t tries = 0; std::find(numbers, numbers + n, candidate) != numbers + n; ++tries)
            candidate = tries < 8 ? below(bound) : (candidate + 1) % bound;
        numbers[n++] = candidate;
    }
}

uint64_t known_future::next_use(uint32_t page, uint64_t step, uint64_t *token) {
    if (page >= uses_.size()) return MOORAGE_NEVER;
    const auto &uses = uses_[page];
    const auto following =
        std::upper_bound(uses.begin(), uses.end(), step,
                         [](uint64_t value, const use &u) { return value < u.step; });
    if (following == uses.end()) return MOORAGE_NEVER;
    if (token) *token = following->token;
    return following->step;
}

world::world(const world_options &o)
    : options(o),
      state(o.layers * o.experts, o.arrays),
      slots(o.per_layer ? o.layers : 1, o.arrays),
      used(o.per_layer ? o.layers : 1, o.arrays),
      split(o.layers, o.arrays),
      stores(o.servers + 2, o.arrays),
      devices(o.servers + 2, o.arrays),
      links(o.links, o.arrays) {
    limits.size = sizeof(limits);
    limits.layers = o.layers, limits.experts = o.experts, limits.top_k = o.top_k;
    limits.tokens_max = limits.requests_max = tokens_max();
    limits.pools = o.per_layer ? o.layers : 1;
    limits.slots = o.slots, limits.buffer_slots = o.buffer_slots;
    limits.segments = o.two_segments ? 2 : 1;
    limits.predictions_max = o.extras ? o.predictions : 0;
    limits.transfers_max = o.transfers;
    limits.expert_bytes = 1u << 20;
    lay_out_machine();
    residency = {
        sizeof(residency), 0,           o.layers,     o.experts, limits.pools, 0, state.data(),
        slots.data(),      used.data(), split.data(), nullptr,   nullptr};
    costs.size = sizeof(costs);
    costs.expert_bytes = limits.expert_bytes;
    costs.load_ns = 50'000, costs.transfer_issue_ns = 5'000, costs.attention_ns = 20'000;
    costs.gpu_expert_ns = 8'000, costs.gpu_token_ns = 1'000;
    costs.cpu_expert_ns = 90'000, costs.cpu_token_ns = 30'000;
    future.assign(page_count());
    restart(o.seed);
}

void world::lay_out_machine() {
    stores[0] = {sizeof(moorage_store), MOORAGE_STORE_FAST, options.slots, /*versions=*/3};
    stores[1] = {sizeof(moorage_store), MOORAGE_STORE_HOST, MOORAGE_NONE, 3};
    devices[0] = {sizeof(moorage_device), MOORAGE_DEVICE_GPU, 0, MOORAGE_DISTANCE_OWN};
    devices[1] = {sizeof(moorage_device), MOORAGE_DEVICE_CPU, 1, MOORAGE_DISTANCE_OWN};
    for (uint32_t server = 0; server < options.servers; ++server) {
        stores[server + 2] = {sizeof(moorage_store), MOORAGE_STORE_SERVER, 0, 1};
        devices[server + 2] = {sizeof(moorage_device), MOORAGE_DEVICE_SERVER, server + 2,
                               std::min<uint32_t>(server, MOORAGE_DISTANCE_CLOUD)};
    }
    for (moorage_link &link : links.span()) link = {sizeof(moorage_link), 1, 0, 0, 12e9};
    limits.stores = limits.devices = options.servers + 2;
    limits.links = options.links;
    limits.host_stores = stores.data(), limits.host_devices = devices.data();
    limits.host_links = links.data();
}

void world::restart(uint64_t seed) {
    options.seed = seed;
    clock_ns = 0;
    std::fill_n(state.data(), state.capacity(), 0u);
    std::fill_n(used.data(), used.capacity(), 0u);
    std::fill_n(split.data(), split.capacity(), 1.0f);
    const auto shares = core::divide_slots(options.slots, options.layers, options.per_layer);
    std::copy(shares.begin(), shares.end(), slots.data());
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
            uint32_t *row_experts = trace_.data() + step * row;
            std::fill(seen.begin(), seen.end(), uint8_t{0});
            for (uint32_t b = 0; b < tokens_of(round); ++b, row_experts += options.top_k) {
                draw.distinct(options.experts, options.top_k, row_experts);
                for (uint32_t k = 0; k < options.top_k; ++k)
                    if (!std::exchange(seen[row_experts[k]], uint8_t{1}))
                        future.add(layer * options.experts + row_experts[k], step, token);
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
