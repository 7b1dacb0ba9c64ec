// replacing.hpp - moves of the joint policy that replace copies of one server by others.
#pragma once

#include "search_context.hpp"

namespace moorage::joint {

// Places the expert on the server in place of other copies. `losses`: [devices of the server].
inline bool insert_copy(search_context &search, uint32_t server, const ranked_expert &gain,
                        const std::vector<std::vector<ranked_expert>> &losses) {
    placement_state &state = search.state();
    const uint32_t first = search.device_begin(server);
    // Experts of one set change each other's worth, so try a little beyond the ranks.
    const double allowed_s = state.has_sets() ? 1.5 * gain.change_s : gain.change_s;
    std::vector<uint32_t> victims;
    for (uint32_t device = first; device < search.device_end(server); ++device) {
        if (!search.can_hold(gain.expert, device)) continue;
        if (!search.find_victims(gain.expert, device, losses[device - first], allowed_s, victims))
            continue;
        const size_t mark = state.mark();
        const double change_s = search.replace_victims(gain.expert, device, victims);
        if (search.keep_if_better(mark, change_s)) return true;
    }
    return false;
}

// Places experts that the server lacks in place of some that it has.
inline bool replace_copies(search_context &search, uint32_t server) {
    std::vector<ranked_expert> gains;
    search.rank_gains(server, gains);
    if (gains.empty()) return false;
    const uint32_t first = search.device_begin(server), end = search.device_end(server);
    std::vector<std::vector<ranked_expert>> losses(end - first);
    for (uint32_t device = first; device < end; ++device)
        search.rank_losses(device, losses[device - first]);
    bool better = false;
    uint32_t failed = 0;
    const uint32_t patience = search.state().experts() <= 64 ? 64 : 32;
    for (const ranked_expert &gain : gains) {
        if (failed >= patience || search.is_spent()) break;
        if (insert_copy(search, server, gain, losses))
            better = true, failed = 0;
        else
            ++failed;
    }
    return better;
}

// Replaces one copy by those of `gains` that fit and still gain.
inline bool trade_copy(search_context &search, uint32_t removed, uint32_t device,
                       const std::vector<ranked_expert> &gains) {
    placement_state &state = search.state();
    const uint32_t server = search.server_of(device);
    const size_t mark = state.mark();
    double change_s = state.put(removed, server, none);
    uint32_t tried = 0;
    for (const ranked_expert &gain : gains) {
        if (tried >= 24 || state.free_bytes(device) <= 0) break;
        if (gain.expert == removed || state.device_at(gain.expert, server) != none ||
            !search.has_room(gain.expert, device))
            continue;
        ++tried;
        if (state.change_s(gain.expert, server, device) < -least_gain_s)
            change_s += state.put(gain.expert, server, device);
    }
    return search.keep_if_better(mark, change_s);
}

// Replaces copies of the server by several smaller ones each, or by one that fits as well.
inline bool trade_copies(search_context &search, uint32_t server) {
    bool better = false;
    std::vector<ranked_expert> losses, gains;
    for (uint32_t device = search.device_begin(server); device < search.device_end(server);
         ++device) {
        search.rank_losses(device, losses);
        search.rank_gains(server, gains);
        const size_t count = std::min<size_t>(losses.size(), 24);
        for (size_t index = 0; index < count && !search.is_spent(); ++index) {
            const uint32_t removed = losses[index].expert;
            if (search.state().device_at(removed, server) != device || search.is_pinned(removed))
                continue;
            better = trade_copy(search, removed, device, gains) || better;
        }
    }
    return better;
}

}  // namespace moorage::joint
