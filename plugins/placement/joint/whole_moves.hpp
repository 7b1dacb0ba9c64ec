// whole_moves.hpp - moves of the joint policy with whole layers and whole servers.
//
// A layer is worth little on a server until nearly all of it is there. So moves of one expert do
// not lead from a spread layer to a whole one.
#pragma once

#include <cmath>
#include <utility>

#include "repairing.hpp"

namespace moorage::joint {

// Changes the placement, repairs what that breaks and fills the free room. Takes everything back if
// it does not pay.
template <class Change>
bool try_change(search_context &search, Change change) {
    placement_state &state = search.state();
    const std::vector<uint32_t> old_placement = state.placement();
    const double before_s = state.total();
    change();
    bool better = repair(search);
    if (better) fill(search);
    better = better && state.total() < before_s - least_gain_s - 1e-9 * std::abs(before_s);
    if (better)
        state.forget_changes();
    else
        state.restore(old_placement);
    return better;
}

// Puts a copy on the server, with or without room, if it has a device of that size.
inline void put_if_possible(search_context &search, uint32_t expert, uint32_t server) {
    const uint32_t device = search.find_device(expert, server, /*with_room=*/false);
    if (search.can_hold(expert, device)) search.state().put(expert, server, device);
}

// Whether homes of the server call the expert, which it lacks.
inline bool is_missed(search_context &search, uint32_t expert, uint32_t server) {
    return search.state().device_at(expert, server) == none && search.is_wanted(expert) &&
           search.state().calls(expert, server) > 0;
}

// The server gets the missing experts of the layer that starts with expert `first`.
inline void take_layer(search_context &search, uint32_t server, uint32_t first) {
    for (uint32_t expert = first; expert < search.layer_end(first); ++expert)
        if (is_missed(search, expert, server)) put_if_possible(search, expert, server);
}

inline void drop_layer(search_context &search, uint32_t server, uint32_t first) {
    placement_state &state = search.state();
    for (uint32_t expert = first; expert < search.layer_end(first); ++expert)
        if (state.device_at(expert, server) != none) state.put(expert, server, none);
}

// Exchanges all copies of one server with all of the other. Each goes to the device that would be
// done first.
inline void exchange_servers(search_context &search, uint32_t first, uint32_t second) {
    placement_state &state = search.state();
    std::vector<std::pair<uint32_t, uint32_t>> copies;  // expert, where it goes
    for (uint32_t expert = 0; expert < state.experts(); ++expert) {
        const bool at_first = state.device_at(expert, first) != none,
                   at_second = state.device_at(expert, second) != none;
        if (at_first == at_second) continue;
        copies.emplace_back(expert, at_first ? second : first);
        state.put(expert, at_first ? first : second, none);
    }
    for (const auto &[expert, server] : copies) put_if_possible(search, expert, server);
}

// Tries all of these in a random order, as many as a quarter of the time left allows.
inline bool try_whole_moves(search_context &search) {
    placement_state &state = search.state();
    std::vector<std::pair<uint32_t, uint32_t>> tries;  // server, layer; or server, experts + server
    for (uint32_t server = 0; server < state.servers(); ++server) {
        if (!search.has_devices(server)) continue;
        for (uint32_t expert = 0; expert < state.experts(); expert += search.layer_size(expert))
            if (search.is_wanted(expert)) tries.emplace_back(server, expert);
        for (uint32_t partner = 0; partner < server; ++partner)
            if (search.has_devices(partner)) tries.emplace_back(server, state.experts() + partner);
    }
    const uint64_t most = state.steps() + search.steps_left() / 4;
    if (4 * state.sweep_steps() > most - state.steps()) return false;
    for (size_t index = 0; index + 1 < tries.size(); ++index)
        std::swap(tries[index], tries[index + search.random_below(tries.size() - index)]);
    bool better = false;
    for (const auto &[tried_server, tried_first] : tries) {
        if (state.steps() >= most) break;
        const uint32_t server = tried_server, first = tried_first;
        if (first >= state.experts()) {
            const uint32_t partner = first - state.experts();
            better =
                try_change(search, [&] { exchange_servers(search, server, partner); }) || better;
            continue;
        }
        better = try_change(search, [&] { take_layer(search, server, first); }) || better;
        better = try_change(search, [&] { drop_layer(search, server, first); }) || better;
    }
    return better;
}

}  // namespace moorage::joint
