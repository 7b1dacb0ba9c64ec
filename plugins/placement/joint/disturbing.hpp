// disturbing.hpp - random moves of the joint policy, which lead out of a local optimum.
#pragma once

#include <algorithm>
#include <utility>

#include "relocating.hpp"
#include "whole_moves.hpp"

namespace moorage::joint {

// Removes a few copies and puts as many others in their place, whatever that costs.
inline void disturb_few(search_context &search) {
    placement_state &state = search.state();
    const uint32_t count = 1 + search.random_below(3);
    for (uint32_t round = 0; round < count; ++round) {
        const uint32_t server = search.random_below(state.servers()),
                       expert = search.random_below(state.experts());
        if (state.device_at(expert, server) != none) {
            if (!search.is_pinned(expert)) state.put(expert, server, none);
        } else if (search.is_wanted(expert) && search.has_devices(server)) {
            const uint32_t first = search.device_begin(server);
            const uint32_t device = first + search.random_below(search.device_end(server) - first);
            if (search.can_hold(expert, device)) state.put(expert, server, device);
        }
    }
}

// Exchanges copies of different devices in pairs.
inline void disturb_pairs(search_context &search) {
    placement_state &state = search.state();
    std::vector<std::pair<uint32_t, uint32_t>> held;  // expert, server
    for (uint32_t expert = 0; expert < state.experts(); ++expert)
        for (uint32_t server = 0; server < state.servers(); ++server)
            if (state.device_at(expert, server) != none) held.emplace_back(expert, server);
    const uint32_t count = held.empty() ? 0 : 1 + search.random_below(3);
    for (uint32_t round = 0; round < count; ++round) {
        const auto [expert, server] = held[search.random_below(held.size())];
        const auto [partner, partner_server] = held[search.random_below(held.size())];
        const uint32_t source = state.device_at(expert, server),
                       target = state.device_at(partner, partner_server);
        if (source == none || target == none || source == target) continue;
        if (server != partner_server && (state.device_at(expert, partner_server) != none ||
                                         state.device_at(partner, server) != none))
            continue;
        if (!search.can_hold(expert, target) || !search.can_hold(partner, source)) continue;
        move_copy(search, expert, source, target);
        move_copy(search, partner, target, source);
    }
}

// A server gets some of the missing experts of a layer, the most called.
inline void disturb_layer(search_context &search) {
    placement_state &state = search.state();
    const uint32_t server = search.random_below(state.servers()),
                   drawn = search.random_below(state.experts());
    if (!search.has_devices(server)) return;
    std::vector<uint32_t> missed;
    for (uint32_t expert = search.layer_first(drawn); expert < search.layer_end(drawn); ++expert)
        if (is_missed(search, expert, server)) missed.push_back(expert);
    std::stable_sort(missed.begin(), missed.end(), [&](uint32_t left, uint32_t right) {
        return state.calls(left, server) > state.calls(right, server);
    });
    missed.resize(std::min<size_t>(missed.size(),
                                   1 + search.random_below(std::max<size_t>(1, missed.size()))));
    for (const uint32_t expert : missed) put_if_possible(search, expert, server);
}

// Disturbs the placement at random and repairs it. Returns false if it could not be repaired.
inline bool disturb_and_repair(search_context &search) {
    const uint32_t kind = search.random_below(4);
    if (kind == 0)
        disturb_layer(search);
    else if (kind == 1)
        disturb_few(search);
    else
        disturb_pairs(search);
    return repair(search);
}

}  // namespace moorage::joint
