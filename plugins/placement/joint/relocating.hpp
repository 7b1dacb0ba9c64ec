// relocating.hpp - moves of the joint policy that move copies from one device to another.
#pragma once

#include <algorithm>
#include <cmath>

#include "search_context.hpp"

namespace moorage::joint {

// Moves a copy between two devices, with or without room. Returns the cost.
inline double move_copy(search_context &search, uint32_t expert, uint32_t source, uint32_t target) {
    placement_state &state = search.state();
    const uint32_t source_server = search.server_of(source),
                   target_server = search.server_of(target);
    if (source_server == target_server) return state.put(expert, source_server, target);
    const double change_s = state.put(expert, target_server, target);
    return change_s + state.put(expert, source_server, none);
}

// Copies of a device by the change of moving them to another device, the best first.
inline std::vector<ranked_expert> rank_moves(search_context &search, uint32_t source,
                                             uint32_t target) {
    placement_state &state = search.state();
    const uint32_t source_server = search.server_of(source),
                   target_server = search.server_of(target);
    std::vector<ranked_expert> moves;
    for (uint32_t expert = 0; expert < state.experts(); ++expert) {
        if (state.device_at(expert, source_server) != source ||
            (source_server != target_server && state.device_at(expert, target_server) != none))
            continue;
        if (!search.can_hold(expert, target)) continue;
        if (source_server == target_server) {
            moves.push_back({state.change_s(expert, source_server, target), expert});
            continue;
        }
        const size_t mark = state.mark();
        moves.push_back({move_copy(search, expert, source, target), expert});
        state.rollback(mark);
    }
    std::sort(moves.begin(), moves.end(),
              [](const ranked_expert &left, const ranked_expert &right) {
                  return left.change_s != right.change_s ? left.change_s < right.change_s
                                                         : left.expert < right.expert;
              });
    return moves;
}

// Moves copies to the other device as long as there is room.
inline bool relocate_alone(search_context &search, const std::vector<ranked_expert> &moves,
                           uint32_t source, uint32_t target) {
    placement_state &state = search.state();
    bool better = false;
    for (const ranked_expert &moved : moves) {
        if (moved.change_s >= -least_gain_s || search.is_spent()) break;
        if (state.device_at(moved.expert, search.server_of(source)) != source ||
            !search.has_room(moved.expert, target))
            continue;
        const size_t mark = state.mark();
        better =
            search.keep_if_better(mark, move_copy(search, moved.expert, source, target)) || better;
    }
    return better;
}

// Moves `expert` from device `source` to `target`, and `partner` the other way.
inline bool exchange_pair(search_context &search, uint32_t expert, uint32_t source,
                          uint32_t partner, uint32_t target) {
    placement_state &state = search.state();
    const uint32_t source_server = search.server_of(source),
                   target_server = search.server_of(target);
    if (state.device_at(expert, source_server) != source ||
        state.device_at(partner, target_server) != target)
        return false;
    if (source_server != target_server && (state.device_at(expert, target_server) != none ||
                                           state.device_at(partner, source_server) != none))
        return false;
    const auto larger =
        static_cast<int64_t>(state.bytes(expert)) - static_cast<int64_t>(state.bytes(partner));
    if (state.free_bytes(target) < larger || state.free_bytes(source) < -larger) return false;
    const size_t mark = state.mark();
    const double change_s = move_copy(search, expert, source, target);
    return search.keep_if_better(mark, change_s + move_copy(search, partner, target, source));
}

// Moves copies between two devices: alone if there is room, else in exchange.
inline bool relocate_copies(search_context &search, uint32_t first, uint32_t second) {
    const std::vector<ranked_expert> forward_moves = rank_moves(search, first, second);
    const std::vector<ranked_expert> backward_moves = rank_moves(search, second, first);
    bool better = relocate_alone(search, forward_moves, first, second);
    better = relocate_alone(search, backward_moves, second, first) || better;
    // The best against the best pairs that still pay together. Sets of one layer add more than
    // that.
    const double slack = search.state().has_sets() ? 0.25 : 0;
    uint32_t failed = 0;
    for (const ranked_expert &forward : forward_moves) {
        uint32_t tried = 0;
        for (const ranked_expert &backward : backward_moves) {
            const double hoped_s = forward.change_s + backward.change_s;
            if (hoped_s >=
                -least_gain_s + slack * std::abs(std::min(forward.change_s, backward.change_s)))
                break;
            if (tried++ >= 6 || failed >= 96 || search.is_spent()) break;
            if (exchange_pair(search, forward.expert, first, backward.expert, second)) {
                better = true, failed = 0;
                break;
            }
            ++failed;
        }
        if (failed >= 96 || tried == 0 || search.is_spent()) break;
    }
    return better;
}

}  // namespace moorage::joint
