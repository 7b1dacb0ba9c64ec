// search_whole.inl - moves of search.hpp beyond the neighbourhood: layers, servers, random ones.
#pragma once

#include "search.hpp"

namespace moorage::joint {

// ---- whole layers, whole servers -------------------------------------------------------------

// Changes the placement, repairs what that breaks and fills the free room. Takes everything back if
// it does not pay.
template <class Change>
bool search::attempt(Change change) {
    const std::vector<uint32_t> old_placement = state_.placement();
    const double before_s = state_.total();
    change();
    bool better = shrink() && cover();
    if (better) fill();
    better = better && state_.total() < before_s - least_s - 1e-9 * std::abs(before_s);
    if (better)
        state_.forget(), ++moves_;
    else
        state_.restore(old_placement);
    return better;
}

// The server gets the missing experts of the layer that starts with expert `first`.
inline void search::take_layer(uint32_t server, uint32_t first) {
    for (uint32_t expert = first; expert < first + layer_size_[first]; ++expert) {
        if (state_.device_at(expert, server) != none || needed_[expert] == 0 ||
            state_.calls(expert, server) <= 0)
            continue;
        const uint32_t device = spread_device(expert, server, false);
        if (state_.bytes(expert) <= cluster().host_device_bytes[device])
            state_.put(expert, server, device);
    }
}

inline void search::drop_layer(uint32_t server, uint32_t first) {
    for (uint32_t expert = first; expert < first + layer_size_[first]; ++expert)
        if (state_.device_at(expert, server) != none) state_.put(expert, server, none);
}

// Exchanges all copies of one server with all of the other. Each goes to the device that would be
// done first.
inline void search::exchange_servers(uint32_t first, uint32_t second) {
    std::vector<std::pair<uint32_t, uint32_t>> copies;  // expert, where it goes
    for (uint32_t expert = 0; expert < state_.experts(); ++expert) {
        const bool at_first = state_.device_at(expert, first) != none,
                   at_second = state_.device_at(expert, second) != none;
        if (at_first == at_second) continue;
        copies.emplace_back(expert, at_first ? second : first);
        state_.put(expert, at_first ? first : second, none);
    }
    for (const auto &[expert, server] : copies)
        if (const uint32_t device = spread_device(expert, server, false);
            state_.bytes(expert) <= cluster().host_device_bytes[device])
            state_.put(expert, server, device);
}

// A layer is worth little on a server until nearly all of it is there. So moves of one expert do
// not lead from a spread layer to a whole one. Tries as many as a quarter of the time left allows.
inline bool search::try_whole_layers() {
    std::vector<std::pair<uint32_t, uint32_t>> tries;  // server, layer; or server, experts + server
    for (uint32_t server = 0; server < state_.servers(); ++server) {
        if (device_begin(server) == device_end(server)) continue;
        for (uint32_t expert = 0; expert < state_.experts(); expert += layer_size_[expert])
            if (needed_[expert] != 0) tries.emplace_back(server, expert);
        for (uint32_t partner = 0; partner < server; ++partner)
            if (device_begin(partner) != device_end(partner))
                tries.emplace_back(server, state_.experts() + partner);
    }
    const uint64_t most = state_.work() + work_left() / 4;
    if (4 * state_.sweep() > most - state_.work()) return false;
    for (size_t index = 0; index + 1 < tries.size(); ++index)
        std::swap(tries[index], tries[index + random_below(tries.size() - index)]);
    bool better = false;
    for (const auto &[tried_server, tried_first] : tries) {
        if (state_.work() >= most) break;
        const uint32_t server = tried_server, first = tried_first;
        if (first >= state_.experts()) {
            better = attempt([&] { exchange_servers(server, first - state_.experts()); }) || better;
            continue;
        }
        better = attempt([&] { take_layer(server, first); }) || better;
        better = attempt([&] { drop_layer(server, first); }) || better;
    }
    return better;
}

// ---- kicks -----------------------------------------------------------------------------------

// Removes a few copies and puts as many others in their place, whatever that costs.
inline void search::disturb_few() {
    const uint32_t count = 1 + random_below(3);
    for (uint32_t round = 0; round < count; ++round) {
        const uint32_t server = random_below(state_.servers()),
                       expert = random_below(state_.experts());
        if (state_.device_at(expert, server) != none) {
            if (!pinned(expert)) state_.put(expert, server, none);
        } else if (needed_[expert] != 0 && device_begin(server) != device_end(server)) {
            const uint32_t device =
                device_begin(server) + random_below(device_end(server) - device_begin(server));
            if (state_.bytes(expert) <= cluster().host_device_bytes[device])
                state_.put(expert, server, device);
        }
    }
}

// Exchanges two copies of different devices.
inline void search::disturb_swap() {
    std::vector<std::pair<uint32_t, uint32_t>> held;  // expert, server
    for (uint32_t expert = 0; expert < state_.experts(); ++expert)
        for (uint32_t server = 0; server < state_.servers(); ++server)
            if (state_.device_at(expert, server) != none) held.emplace_back(expert, server);
    const uint32_t count = held.empty() ? 0 : 1 + random_below(3);
    for (uint32_t round = 0; round < count; ++round) {
        const auto [expert, server] = held[random_below(held.size())];
        const auto [partner, partner_server] = held[random_below(held.size())];
        const uint32_t source = state_.device_at(expert, server),
                       target = state_.device_at(partner, partner_server);
        if (source == none || target == none || source == target) continue;
        if (server != partner_server && (state_.device_at(expert, partner_server) != none ||
                                         state_.device_at(partner, server) != none))
            continue;
        if (state_.bytes(expert) > cluster().host_device_bytes[target] ||
            state_.bytes(partner) > cluster().host_device_bytes[source])
            continue;
        move(expert, source, target);
        move(partner, target, source);
    }
}

// A server gets the missing experts of a layer.
inline void search::disturb_layer() {
    const uint32_t server = random_below(state_.servers()), drawn = random_below(state_.experts());
    if (device_begin(server) == device_end(server)) return;
    const uint32_t first = layer_first_[drawn];
    std::vector<uint32_t> lacking;
    for (uint32_t expert = first; expert < first + layer_size_[drawn]; ++expert)
        if (state_.device_at(expert, server) == none && needed_[expert] != 0 &&
            state_.calls(expert, server) > 0)
            lacking.push_back(expert);
    std::stable_sort(lacking.begin(), lacking.end(), [&](uint32_t left, uint32_t right) {
        return state_.calls(left, server) > state_.calls(right, server);
    });
    lacking.resize(
        std::min<size_t>(lacking.size(), 1 + random_below(std::max<size_t>(1, lacking.size()))));
    for (const uint32_t expert : lacking) {
        const uint32_t device = spread_device(expert, server, false);
        if (state_.bytes(expert) <= cluster().host_device_bytes[device])
            state_.put(expert, server, device);
    }
}

inline bool search::kick() {
    const uint32_t kind = random_below(4);
    if (kind == 0)
        disturb_layer();
    else if (kind == 1)
        disturb_few();
    else
        disturb_swap();
    return shrink() && cover();
}

}  // namespace moorage::joint
