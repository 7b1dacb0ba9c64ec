// local_search.hpp - improves a placement until no move helps any more, for the joint policy.
#pragma once

#include <cmath>

#include "packing.hpp"
#include "relocating.hpp"
#include "replacing.hpp"
#include "whole_moves.hpp"

namespace moorage::joint {

// Moves within the servers, one after another.
inline bool improve_servers(search_context &search) {
    bool better = false;
    for (uint32_t server = 0; server < search.state().servers() && !search.is_spent(); ++server) {
        for (uint32_t round = 0; round < 4 && !search.is_spent(); ++round) {
            if (!replace_copies(search, server)) break;
            better = true;
        }
        better = trade_copies(search, server) || better;
    }
    return better;
}

// Moves between devices: all pairs of few devices. With many devices, each one with some random
// others.
inline bool improve_pairs(search_context &search) {
    bool better = false;
    const uint32_t devices = search.cluster().devices;
    for (uint32_t first = 0; first < devices && !search.is_spent(); ++first) {
        const uint32_t others = devices <= 8 ? devices - 1 - first : 2;
        for (uint32_t pair = 0; pair < others && !search.is_spent(); ++pair) {
            const uint32_t second = devices <= 8 ? first + 1 + pair : search.random_below(devices);
            if (first != second) better = relocate_copies(search, first, second) || better;
        }
    }
    return better;
}

// Improves until nothing helps any more, or the limit. `whole_moves`: also moves whole layers and
// servers.
inline void improve(search_context &search, bool whole_moves) {
    placement_state &state = search.state();
    for (bool better = true; better && !search.is_spent();) {
        const double old_total = state.total();
        better = improve_servers(search);
        // If sizes differ, combinations that fit together count.
        if (!better && search.has_unequal_sizes())
            for (uint32_t device = 0; device < search.cluster().devices && !search.is_spent();
                 ++device)
                better = pack_device(search, device) || better;
        better = improve_pairs(search) || better;
        state.forget_changes();
        if (old_total - state.total() >= 1e-6 * std::abs(state.total())) continue;
        better = whole_moves && try_whole_moves(search);
    }
}

}  // namespace moorage::joint
