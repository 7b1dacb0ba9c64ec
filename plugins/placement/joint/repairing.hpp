// repairing.hpp - moves of the joint policy that make a placement valid.
//
// cover_experts() gives every expert that needs one a copy. shrink_to_fit() removes copies from
// devices that hold more than they can.
#pragma once

#include "filling.hpp"

namespace moorage::joint {

// Replaces one copy that is not the last of its expert, where that loses the fewest calls.
inline bool swap_in(search_context &search, uint32_t expert) {
    placement_state &state = search.state();
    uint32_t best_expert = none, best_server = none;
    double least = infinity;
    for (uint32_t server = 0; server < state.servers(); ++server)
        for (uint32_t resident = 0; resident < state.experts(); ++resident) {
            const uint32_t device = state.device_at(resident, server);
            if (device == none || search.is_pinned(resident)) continue;
            const int64_t room =
                state.free_bytes(device) + static_cast<int64_t>(state.bytes(resident));
            const double lost = state.calls(resident, server) - state.calls(expert, server);
            if (room >= static_cast<int64_t>(state.bytes(expert)) && lost < least)
                least = lost, best_expert = resident, best_server = server;
        }
    if (best_expert == none) return false;
    const uint32_t device = state.device_at(best_expert, best_server);
    state.put(best_expert, best_server, none);
    state.put(expert, best_server, device);
    return true;
}

// Places the expert where other copies, none the last of its expert, can make room at the least
// cost. `losses`: [devices] from search_context::rank_losses(), filled where empty.
inline bool evict_for(search_context &search, uint32_t expert,
                      std::vector<std::vector<ranked_expert>> &losses) {
    placement_state &state = search.state();
    uint32_t best = none;
    double least = infinity;
    std::vector<uint32_t> victims, best_victims;
    for (uint32_t device = 0; device < search.cluster().devices; ++device) {
        const size_t mark = state.mark();
        if (losses[device].empty()) search.rank_losses(device, losses[device]);
        if (search.find_victims(expert, device, losses[device], infinity, victims)) {
            const double change_s = search.replace_victims(expert, device, victims);
            if (change_s < least) least = change_s, best = device, best_victims = victims;
        }
        state.rollback(mark);
    }
    if (best == none) return false;
    search.replace_victims(expert, best, best_victims);
    return true;
}

// Returns false if there was no room, or no step left.
inline bool cover_experts(search_context &search) {
    if (!search.must_cover()) return true;
    placement_state &state = search.state();
    std::vector<uint32_t> missing;
    for (uint32_t expert = 0; expert < state.experts(); ++expert)
        if (search.is_wanted(expert) && state.copy_count(expert) == 0) missing.push_back(expert);
    std::stable_sort(missing.begin(), missing.end(), [&state](uint32_t left, uint32_t right) {
        return state.bytes(left) > state.bytes(right);
    });
    std::vector<std::vector<ranked_expert>> losses(search.cluster().devices);
    server_changes changes;
    for (const uint32_t expert : missing) {
        if (search.is_spent()) return false;
        uint32_t best = none;
        double least = infinity;
        changes.compute(search, expert);  // no server has it
        for (uint32_t server = 0; server < state.servers(); ++server)
            if (changes.device[server] != none && changes.change_s[server] < least)
                least = changes.change_s[server], best = changes.device[server];
        if (best != none)
            state.put(expert, search.server_of(best), best);
        else if (!swap_in(search, expert) && !evict_for(search, expert, losses))
            return false;
    }
    return true;
}

// Once through the device's copies in the order of their worth. Removes at most an eighth of the
// excess, because the worth of others changes with every removed copy.
inline bool shrink_device(search_context &search, uint32_t device) {
    placement_state &state = search.state();
    std::vector<ranked_expert> losses;
    search.rank_losses(device, losses);
    const int64_t goal = state.free_bytes(device) - state.free_bytes(device) / 8;
    bool removed = false;
    for (const ranked_expert &loss : losses) {
        if (state.free_bytes(device) >= 0 || (removed && state.free_bytes(device) >= goal)) break;
        if (search.is_pinned(loss.expert)) continue;
        state.put(loss.expert, search.server_of(device), none);
        removed = true;
    }
    return removed;
}

// Returns false if that is impossible, or no step is left.
inline bool shrink_to_fit(search_context &search) {
    for (bool overfull = true; overfull;) {
        overfull = false;
        for (uint32_t device = 0; device < search.cluster().devices; ++device) {
            if (search.state().free_bytes(device) >= 0) continue;
            if (search.is_spent() || !shrink_device(search, device)) return false;
            overfull = true;
        }
    }
    return true;
}

// Both. Returns false if the placement could not be repaired.
inline bool repair(search_context &search) {
    return shrink_to_fit(search) && cover_experts(search);
}

}  // namespace moorage::joint
