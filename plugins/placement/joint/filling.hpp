// filling.hpp - moves of the joint policy that place copies where there is room.
#pragma once

#include <algorithm>
#include <numeric>
#include <queue>

#include "search_context.hpp"

namespace moorage::joint {

// The changes for a copy of one expert on each server that has room and lacks it.
struct server_changes {
    std::vector<uint32_t> device;  // [servers] none: not such a server
    std::vector<double> change_s;  // [servers]

    void compute(search_context &search, uint32_t expert) {
        placement_state &state = search.state();
        device.resize(state.servers()), change_s.resize(state.servers());
        for (uint32_t server = 0; server < state.servers(); ++server)
            device[server] = state.device_at(expert, server) != none
                                 ? none
                                 : search.find_device(expert, server, /*with_room=*/true);
        state.changes_s(expert, device, change_s);
    }
};

// Places the copy that saves most per byte, repeatedly, while anything that saves fits.
class greedy_filling {
public:
    explicit greedy_filling(search_context &search)
        : search_(search),
          state_(search.state()),
          latest_(size_t{state_.experts()} * state_.servers(), 0) {}

    void run() {
        for (uint32_t expert = 0; expert < state_.experts() && !search_.is_spent(); ++expert)
            offer(expert);
        // A new expert raises the gains of experts chosen together with it. They are computed again
        // while that takes a moderate time.
        const uint64_t refresh_max =
            state_.steps() + std::min<uint64_t>(search_.steps_left() / 4, 20'000'000);
        while (!queue_.empty() && !search_.is_spent()) {
            const candidate top = queue_.top();
            queue_.pop();
            if (!place(top) || state_.steps() > refresh_max || !state_.has_sets()) continue;
            for (uint32_t neighbour = search_.layer_first(top.expert);
                 neighbour < search_.layer_end(top.expert); ++neighbour)
                offer(neighbour);
        }
    }

private:
    struct candidate {
        double rank;
        uint32_t expert, server;
        friend bool operator<(const candidate &left, const candidate &right) {
            if (left.rank != right.rank) return left.rank < right.rank;
            return left.expert != right.expert ? left.expert > right.expert
                                               : left.server > right.server;
        }
    };

    double size(uint32_t expert) const { return static_cast<double>(state_.bytes(expert)); }
    double &latest_rank(uint32_t expert, uint32_t server) {
        return latest_[size_t{expert} * state_.servers() + server];
    }
    void offer(uint32_t expert) {
        changes_.compute(search_, expert);
        for (uint32_t server = 0; server < state_.servers(); ++server) {
            if (changes_.device[server] == none) continue;
            const double gain_s = -changes_.change_s[server];
            double &rank = latest_rank(expert, server);
            rank = gain_s > least_gain_s ? gain_s / size(expert) : 0;
            if (rank > 0) queue_.push({rank, expert, server});
        }
    }
    // Places the candidate, or puts it back into the queue if its rank has fallen behind the next.
    bool place(const candidate &top) {
        const auto [top_rank, expert, server] = top;
        if (top_rank != latest_rank(expert, server) || state_.device_at(expert, server) != none)
            return false;
        const uint32_t device = search_.find_device(expert, server, /*with_room=*/true);
        if (device == none) return false;
        const double rank = -state_.change_s(expert, server, device) / size(expert);
        if (rank < top_rank && (queue_.empty() || rank < queue_.top().rank)) {
            latest_rank(expert, server) = rank;
            if (rank * size(expert) > least_gain_s) queue_.push({rank, expert, server});
            return false;
        }
        if (rank * size(expert) <= least_gain_s) return false;
        state_.put(expert, server, device);
        return true;
    }

    search_context &search_;
    placement_state &state_;
    std::vector<double> latest_;  // [experts, servers] ranks
    std::priority_queue<candidate> queue_;
    server_changes changes_;
};

inline void fill(search_context &search) { greedy_filling(search).run(); }

// Places a copy on the server if there is room.
inline bool place_if_room(search_context &search, uint32_t expert, uint32_t server) {
    placement_state &state = search.state();
    if (state.device_at(expert, server) != none || !search.is_wanted(expert)) return false;
    const uint32_t device = search.find_device(expert, server, /*with_room=*/true);
    if (device == none) return false;
    state.put(expert, server, device);
    return true;
}

// All experts, the largest first, then the most called.
inline std::vector<uint32_t> order_by_size(const placement_state &state) {
    std::vector<uint32_t> order(state.experts());
    std::vector<double> calls(state.experts(), 0);
    std::iota(order.begin(), order.end(), 0u);
    for (uint32_t expert = 0; expert < state.experts(); ++expert)
        for (uint32_t server = 0; server < state.servers(); ++server)
            calls[expert] += state.calls(expert, server);
    std::stable_sort(order.begin(), order.end(), [&](uint32_t left, uint32_t right) {
        return state.bytes(left) != state.bytes(right) ? state.bytes(left) > state.bytes(right)
                                                       : calls[left] > calls[right];
    });
    return order;
}

// Each expert goes to the server that calls it most and has room.
inline void place_one_of_each(search_context &search, const std::vector<uint32_t> &order) {
    const placement_state &state = search.state();
    std::vector<uint32_t> servers(state.servers());
    for (const uint32_t expert : order) {
        std::iota(servers.begin(), servers.end(), 0u);
        std::stable_sort(servers.begin(), servers.end(), [&](uint32_t left, uint32_t right) {
            return state.calls(expert, left) > state.calls(expert, right);
        });
        for (const uint32_t server : servers)
            if (place_if_room(search, expert, server)) break;
    }
}

// Servers take the experts that their own homes call most, in the order of their calls. With
// `cover_first`, every expert first goes to one server, before any server gets a second copy.
inline void fill_by_calls(search_context &search, bool cover_first) {
    placement_state &state = search.state();
    // Experts that a server calls equally often keep the order that they had before.
    std::vector<uint32_t> order = order_by_size(state);
    std::vector<double> calls(state.experts(), 0);
    state.begin_bulk();
    if (cover_first) place_one_of_each(search, order);
    for (uint32_t server = 0; server < state.servers(); ++server) {
        for (uint32_t expert = 0; expert < state.experts(); ++expert)
            calls[expert] = state.calls(expert, server);
        std::stable_sort(order.begin(), order.end(),
                         [&](uint32_t left, uint32_t right) { return calls[left] > calls[right]; });
        for (const uint32_t expert : order)
            if (calls[expert] > 0) place_if_room(search, expert, server);
    }
    state.end_bulk();
}

// Every server gets a copy of every expert, with or without room.
inline void put_everywhere(search_context &search) {
    placement_state &state = search.state();
    state.begin_bulk();
    for (uint32_t server = 0; server < state.servers(); ++server) {
        uint64_t room = 0;
        for (uint32_t device = search.device_begin(server); device < search.device_end(server);
             ++device)
            room = std::max(room, search.cluster().host_device_bytes[device]);
        for (uint32_t expert = 0; expert < state.experts(); ++expert)
            if (state.device_at(expert, server) == none && search.is_wanted(expert) &&
                state.bytes(expert) <= room)
                state.put(expert, server, search.find_device(expert, server, /*with_room=*/false));
    }
    state.end_bulk();
}

}  // namespace moorage::joint
