// search.inl - definitions of search.hpp.
#pragma once

#include "search.hpp"
#include "search_whole.inl"

namespace moorage::joint {

inline search::search(state &state, bool cover, uint64_t work_max, uint64_t seed)
    : state_(state),
      cover_(cover),
      work_max_(work_max),
      seed_(seed),
      needed_(state.experts(), 0),
      layer_first_(state.experts()),
      layer_size_(state.experts()),
      losses_(state.latency().cluster().devices) {
    const moorage_demand &demand = state.latency().demand();
    uint64_t size = 0;
    for (uint32_t model = 0; model < demand.models; ++model) {
        bool wanted = false;
        for (uint32_t home = 0; home < demand.homes; ++home)
            wanted = wanted || demand.host_home_model[size_t{home} * demand.models + model] > 0;
        for (uint32_t expert = demand.host_model_first[model];
             expert < demand.host_model_first[model + 1]; ++expert) {
            needed_[expert] = wanted ? 1 : 0;
            layer_size_[expert] = demand.host_model_experts[model];
            layer_first_[expert] =
                expert - (expert - demand.host_model_first[model]) % layer_size_[expert];
        }
        if (!wanted) continue;
        unequal_ = unequal_ || (size != 0 && size != demand.host_expert_bytes[model]);
        size = demand.host_expert_bytes[model];
    }
}

// The device of the server that would be done first with its experts of the layer.
inline uint32_t search::spread_device(uint32_t expert, uint32_t server, bool with_room) const {
    uint32_t best = none;
    double least = infinity;
    for (uint32_t device = device_begin(server); device < device_end(server); ++device) {
        if (with_room && !fits(expert, device)) continue;
        if (device_end(server) - device_begin(server) == 1) return device;
        double held = 1;
        const uint32_t first = layer_first_[expert];
        for (uint32_t neighbour = first; neighbour < first + layer_size_[expert]; ++neighbour)
            if (neighbour != expert && state_.device_at(neighbour, server) == device) ++held;
        const double busy_s =
            held * state_.time().call_s(device, state_.latency().model_of(expert));
        if (busy_s < least) least = busy_s, best = device;
    }
    return best;
}

// The change for a copy on each server that has room and lacks the expert. device_ is none for the
// others.
inline void search::ask_servers(uint32_t expert) {
    device_.resize(state_.servers()), change_s_.resize(state_.servers());
    for (uint32_t server = 0; server < state_.servers(); ++server)
        device_[server] =
            state_.device_at(expert, server) != none ? none : spread_device(expert, server, true);
    state_.changes_s(expert, device_, change_s_);
}

// ---- fill ------------------------------------------------------------------------------------

inline void search::fill() {
    const uint32_t servers = state_.servers();
    std::vector<double> latest(size_t{state_.experts()} * servers, 0);
    std::priority_queue<candidate> queue;
    const auto offer = [&](uint32_t expert) {
        ask_servers(expert);
        for (uint32_t server = 0; server < servers; ++server) {
            if (device_[server] == none) continue;
            double &rank = latest[size_t{expert} * servers + server];
            rank = -change_s_[server] > least_s ? -change_s_[server] / size(expert) : 0;
            if (rank > 0) queue.push({rank, expert, server});
        }
    };
    for (uint32_t expert = 0; expert < state_.experts() && !spent(); ++expert) offer(expert);
    // A new expert raises the gains of experts chosen together with it. They are computed again
    // while that takes a moderate time.
    const uint64_t refresh_max = state_.work() + std::min<uint64_t>(work_left() / 4, 20'000'000);
    while (!queue.empty() && !spent()) {
        const candidate top = queue.top();
        queue.pop();
        if (top.rank != latest[size_t{top.expert} * servers + top.server] ||
            state_.device_at(top.expert, top.server) != none)
            continue;
        const uint32_t device = spread_device(top.expert, top.server, true);
        if (device == none) continue;
        const double rank = -state_.change_s(top.expert, top.server, device) / size(top.expert);
        if (rank < top.rank && (queue.empty() || rank < queue.top().rank)) {
            latest[size_t{top.expert} * servers + top.server] = rank;
            if (rank * size(top.expert) > least_s) queue.push({rank, top.expert, top.server});
            continue;
        }
        if (rank * size(top.expert) <= least_s) continue;
        state_.put(top.expert, top.server, device);
        ++moves_;
        if (state_.work() > refresh_max) continue;
        const uint32_t first = layer_first_[top.expert];
        for (uint32_t neighbour = first;
             state_.uses() != 0 && neighbour < first + layer_size_[top.expert]; ++neighbour)
            offer(neighbour);
    }
}

inline void search::by_calls(bool first) {
    std::vector<uint32_t> order(state_.experts());
    std::vector<double> calls(state_.experts(), 0);
    std::iota(order.begin(), order.end(), 0u);
    for (uint32_t expert = 0; expert < state_.experts(); ++expert)
        for (uint32_t server = 0; server < state_.servers(); ++server)
            calls[expert] += state_.calls(expert, server);
    const auto place = [this](uint32_t expert, uint32_t server) {
        if (state_.device_at(expert, server) != none || needed_[expert] == 0) return false;
        const uint32_t device = spread_device(expert, server, true);
        if (device == none) return false;
        state_.put(expert, server, device);
        return true;
    };
    std::vector<uint32_t> by_server(state_.servers());
    state_.begin_bulk();
    std::stable_sort(order.begin(), order.end(), [&](uint32_t left, uint32_t right) {
        return state_.bytes(left) != state_.bytes(right) ? state_.bytes(left) > state_.bytes(right)
                                                         : calls[left] > calls[right];
    });
    for (const uint32_t expert : order) {
        if (!first) break;
        std::iota(by_server.begin(), by_server.end(), 0u);
        std::stable_sort(by_server.begin(), by_server.end(), [&](uint32_t left, uint32_t right) {
            return state_.calls(expert, left) > state_.calls(expert, right);
        });
        for (const uint32_t server : by_server)
            if (place(expert, server)) break;
    }
    for (uint32_t server = 0; server < state_.servers(); ++server) {
        for (uint32_t expert = 0; expert < state_.experts(); ++expert)
            calls[expert] = state_.calls(expert, server);
        std::stable_sort(order.begin(), order.end(),
                         [&](uint32_t left, uint32_t right) { return calls[left] > calls[right]; });
        for (const uint32_t expert : order)
            if (calls[expert] > 0) place(expert, server);
    }
    state_.end_bulk();
}

// ---- knapsacks -------------------------------------------------------------------------------

inline void search::pack_all() {
    for (uint32_t device = 0; device < cluster().devices && !spent(); ++device) repack(device);
}

// Empties the device and fills it by the knapsack of what each expert alone would save there.
// Returns false, and takes it back, if that is too large or gains nothing.
inline bool search::repack(uint32_t device) {
    const uint32_t server = state_.time().server_of(device);
    uint64_t unit = 0;
    for (uint32_t expert = 0; expert < state_.experts(); ++expert)
        if (needed_[expert] != 0) unit = std::gcd(unit, state_.bytes(expert));
    if (unit == 0) return false;
    const uint64_t units = cluster().host_device_bytes[device] / unit;
    if (units * state_.experts() > uint64_t{1} << 27 || units > work_left()) return false;
    const size_t mark = state_.mark();
    double change_s = 0;
    for (uint32_t expert = 0; expert < state_.experts(); ++expert)
        if (state_.device_at(expert, server) == device && !pinned(expert))
            change_s += state_.put(expert, server, none);
    const auto room = static_cast<size_t>(state_.free(device)) / unit;
    std::vector<item> items;
    for (uint32_t expert = 0; expert < state_.experts(); ++expert) {
        if (state_.device_at(expert, server) != none || needed_[expert] == 0 ||
            state_.bytes(expert) > room * unit)
            continue;
        const double gain_s = -state_.change_s(expert, server, device);
        if (gain_s > least_s) items.push_back({gain_s, expert});
    }
    std::vector<double> most(room + 1, 0);
    std::vector<bool> taken(items.size() * (room + 1), false);
    for (size_t item = 0; item < items.size(); ++item) {
        const size_t size_units = state_.bytes(items[item].expert) / unit;
        for (size_t capacity = room; capacity >= size_units; --capacity)
            if (const double sum = most[capacity - size_units] + items[item].change_s;
                sum > most[capacity])
                most[capacity] = sum, taken[item * (room + 1) + capacity] = true;
    }
    size_t left = room;
    for (size_t item = items.size(); item-- > 0;)
        if (taken[item * (room + 1) + left]) {
            change_s += state_.put(items[item].expert, server, device);
            left -= state_.bytes(items[item].expert) / unit;
        }
    return settle_move(mark, change_s);
}

// ---- cover -----------------------------------------------------------------------------------

inline bool search::cover() {
    if (!cover_) return true;
    std::vector<uint32_t> open;
    for (uint32_t expert = 0; expert < state_.experts(); ++expert)
        if (needed_[expert] != 0 && state_.copies(expert) == 0) open.push_back(expert);
    std::stable_sort(open.begin(), open.end(), [this](uint32_t left, uint32_t right) {
        return state_.bytes(left) > state_.bytes(right);
    });
    for (std::vector<item> &losses : losses_) losses.clear();
    for (const uint32_t expert : open) {
        if (spent()) return false;
        uint32_t best = none;
        double least = infinity;
        ask_servers(expert);  // no server has it
        for (uint32_t server = 0; server < state_.servers(); ++server)
            if (device_[server] != none && change_s_[server] < least)
                least = change_s_[server], best = device_[server];
        if (best != none)
            state_.put(expert, state_.time().server_of(best), best);
        else if (!swap_in(expert) && !evict_for(expert))
            return false;
    }
    return true;
}

// Replaces one copy that is not the last of its expert, where that loses the fewest calls.
inline bool search::swap_in(uint32_t expert) {
    uint32_t best_expert = none, best_server = none;
    double least = infinity;
    for (uint32_t server = 0; server < state_.servers(); ++server)
        for (uint32_t resident = 0; resident < state_.experts(); ++resident) {
            const uint32_t device = state_.device_at(resident, server);
            if (device == none || pinned(resident)) continue;
            const int64_t room = state_.free(device) + static_cast<int64_t>(state_.bytes(resident));
            const double lost = state_.calls(resident, server) - state_.calls(expert, server);
            if (room >= static_cast<int64_t>(state_.bytes(expert)) && lost < least)
                least = lost, best_expert = resident, best_server = server;
        }
    if (best_expert == none) return false;
    const uint32_t device = state_.device_at(best_expert, best_server);
    state_.put(best_expert, best_server, none);
    state_.put(expert, best_server, device);
    return true;
}

// Places the expert where other copies, none the last of its expert, can make room at the least
// cost.
inline bool search::evict_for(uint32_t expert) {
    uint32_t best = none;
    double least = infinity;
    std::vector<uint32_t> best_victims;
    for (uint32_t device = 0; device < cluster().devices; ++device) {
        const uint32_t server = state_.time().server_of(device);
        const size_t mark = state_.mark();
        if (losses_[device].empty()) rank_losses(device, losses_[device]);
        if (make_room(expert, device, losses_[device], infinity)) {
            double change_s = 0;
            for (const uint32_t victim : victims_) change_s += state_.put(victim, server, none);
            change_s += state_.put(expert, server, device);
            if (change_s < least) least = change_s, best = device, best_victims = victims_;
        }
        state_.rollback(mark);
    }
    if (best == none) return false;
    const uint32_t server = state_.time().server_of(best);
    for (const uint32_t victim : best_victims) state_.put(victim, server, none);
    state_.put(expert, server, best);
    return true;
}

// ---- shrink ----------------------------------------------------------------------------------

inline void search::put_everywhere() {
    state_.begin_bulk();
    for (uint32_t server = 0; server < state_.servers(); ++server) {
        uint64_t room = 0;
        for (uint32_t device = device_begin(server); device < device_end(server); ++device)
            room = std::max(room, cluster().host_device_bytes[device]);
        for (uint32_t expert = 0; expert < state_.experts(); ++expert)
            if (state_.device_at(expert, server) == none && needed_[expert] != 0 &&
                state_.bytes(expert) <= room)
                state_.put(expert, server, spread_device(expert, server, false));
    }
    state_.end_bulk();
}

inline bool search::shrink() {
    for (bool overfull = true; overfull;) {
        overfull = false;
        for (uint32_t device = 0; device < cluster().devices; ++device) {
            if (state_.free(device) >= 0) continue;
            if (spent() || !shrink(device)) return false;
            overfull = true;
        }
    }
    return true;
}

// Once through the device's copies in the order of their worth. Removes at most an eighth of the
// excess, because the worth of others changes with every removed copy.
inline bool search::shrink(uint32_t device) {
    const uint32_t server = state_.time().server_of(device);
    rank_losses(device, losses_[device]);
    const int64_t goal = state_.free(device) - state_.free(device) / 8;
    bool removed = false;
    for (const item &loss : losses_[device]) {
        if (state_.free(device) >= 0 || (removed && state_.free(device) >= goal)) break;
        if (pinned(loss.expert)) continue;
        state_.put(loss.expert, server, none);
        removed = true;
    }
    return removed;
}

// ---- replace ---------------------------------------------------------------------------------

// Copies of the device, the least missed first.
inline void search::rank_losses(uint32_t device, std::vector<item> &losses) {
    const uint32_t server = state_.time().server_of(device);
    losses.clear();
    for (uint32_t expert = 0; expert < state_.experts(); ++expert)
        if (state_.device_at(expert, server) == device && !pinned(expert))
            losses.push_back({state_.change_s(expert, server, none), expert});
    std::sort(losses.begin(), losses.end(), [this](const item &first, const item &second) {
        const double left = first.change_s * size(second.expert),
                     right = second.change_s * size(first.expert);
        return left != right ? left < right : first.expert < second.expert;
    });
}

// Experts that the server lacks and that would save something, the most per byte first.
inline void search::rank_gains(uint32_t server, std::vector<item> &gains) {
    gains.clear();
    for (uint32_t expert = 0; expert < state_.experts(); ++expert) {
        if (state_.device_at(expert, server) != none || needed_[expert] == 0 ||
            device_begin(server) == device_end(server))
            continue;
        const double gain_s =
            -state_.change_s(expert, server, spread_device(expert, server, false));
        if (gain_s > least_s) gains.push_back({gain_s, expert});
    }
    std::sort(gains.begin(), gains.end(), [this](const item &first, const item &second) {
        const double left = first.change_s * size(second.expert),
                     right = second.change_s * size(first.expert);
        return left != right ? left > right : first.expert < second.expert;
    });
}

// Writes the copies that leave the device for `expert` to victims_. False if they cost more.
inline bool search::make_room(uint32_t expert, uint32_t device, const std::vector<item> &losses,
                              double allowed_s) {
    const uint32_t server = state_.time().server_of(device);
    int64_t lacking = static_cast<int64_t>(state_.bytes(expert)) - state_.free(device);
    double sum = 0;
    victims_.clear();
    std::vector<item> chosen;
    for (const item &loss : losses) {
        if (lacking <= 0) break;
        if (state_.device_at(loss.expert, server) != device || loss.expert == expert ||
            pinned(loss.expert))
            continue;
        chosen.push_back(loss);
        sum += loss.change_s;
        lacking -= static_cast<int64_t>(state_.bytes(loss.expert));
    }
    if (lacking > 0) return false;
    // An earlier victim is not needed if a larger one came after it.
    for (size_t index = chosen.size(); index-- > 0;) {
        const auto bytes = static_cast<int64_t>(state_.bytes(chosen[index].expert));
        if (lacking + bytes <= 0) {
            lacking += bytes;
            sum -= chosen[index].change_s;
        } else {
            victims_.push_back(chosen[index].expert);
        }
    }
    return sum < allowed_s;
}

inline bool search::settle_move(size_t mark, double change_s) {
    if (change_s < -least_s) {
        ++moves_;
        return true;
    }
    state_.rollback(mark);
    return false;
}

inline bool search::insert(uint32_t expert, uint32_t server, double gain_s) {
    // Experts of one set change each other's worth, so try a little beyond the ranks.
    const double allowed_s = state_.uses() != 0 ? 1.5 * gain_s : gain_s;
    for (uint32_t device = device_begin(server); device < device_end(server); ++device) {
        if (state_.bytes(expert) > cluster().host_device_bytes[device]) continue;
        if (!make_room(expert, device, losses_[device], allowed_s)) continue;
        const size_t mark = state_.mark();
        double change_s = 0;
        for (const uint32_t victim : victims_) change_s += state_.put(victim, server, none);
        change_s += state_.put(expert, server, device);
        if (settle_move(mark, change_s)) return true;
    }
    return false;
}

// Places experts that the server lacks in place of some that it has.
inline bool search::replace(uint32_t server) {
    std::vector<item> gains;
    rank_gains(server, gains);
    if (gains.empty()) return false;
    for (uint32_t device = device_begin(server); device < device_end(server); ++device)
        rank_losses(device, losses_[device]);
    bool better = false;
    uint32_t failed = 0;
    const uint32_t patience = state_.experts() <= 64 ? 64 : 32;
    for (const item &gain : gains) {
        if (failed >= patience || spent()) break;
        if (insert(gain.expert, server, gain.change_s))
            better = true, failed = 0;
        else
            ++failed;
    }
    return better;
}

// Replaces a copy of the server by several smaller ones, or by one that fits as well.
inline bool search::trade(uint32_t server) {
    bool better = false;
    std::vector<item> gains;
    for (uint32_t device = device_begin(server); device < device_end(server); ++device) {
        rank_losses(device, losses_[device]);
        rank_gains(server, gains);
        const size_t count = std::min<size_t>(losses_[device].size(), 24);
        for (size_t index = 0; index < count && !spent(); ++index) {
            const uint32_t removed = losses_[device][index].expert;
            if (state_.device_at(removed, server) != device || pinned(removed)) continue;
            const size_t mark = state_.mark();
            double change_s = state_.put(removed, server, none);
            uint32_t tried = 0;
            for (const item &gain : gains) {
                if (tried >= 24 || state_.free(device) <= 0) break;
                if (gain.expert == removed || state_.device_at(gain.expert, server) != none ||
                    !fits(gain.expert, device))
                    continue;
                ++tried;
                if (state_.change_s(gain.expert, server, device) < -least_s)
                    change_s += state_.put(gain.expert, server, device);
            }
            better = settle_move(mark, change_s) || better;
        }
    }
    return better;
}

// ---- exchange --------------------------------------------------------------------------------

inline double search::move(uint32_t expert, uint32_t source, uint32_t target) {
    const uint32_t source_server = state_.time().server_of(source),
                   target_server = state_.time().server_of(target);
    if (source_server == target_server) return state_.put(expert, source_server, target);
    const double change_s = state_.put(expert, target_server, target);
    return change_s + state_.put(expert, source_server, none);
}

// Copies of a device by the change of moving them to another device, the best first.
inline void search::rank_moves(uint32_t source, uint32_t target, std::vector<item> &moves) {
    const uint32_t source_server = state_.time().server_of(source),
                   target_server = state_.time().server_of(target);
    moves.clear();
    for (uint32_t expert = 0; expert < state_.experts(); ++expert) {
        if (state_.device_at(expert, source_server) != source ||
            (source_server != target_server && state_.device_at(expert, target_server) != none))
            continue;
        if (state_.bytes(expert) > cluster().host_device_bytes[target]) continue;
        if (source_server == target_server) {
            moves.push_back({state_.change_s(expert, source_server, target), expert});
            continue;
        }
        const size_t mark = state_.mark();
        moves.push_back({move(expert, source, target), expert});
        state_.rollback(mark);
    }
    std::sort(moves.begin(), moves.end(), [](const item &left, const item &right) {
        return left.change_s != right.change_s ? left.change_s < right.change_s
                                               : left.expert < right.expert;
    });
}

// Moves copies between two devices: alone if there is room, else in exchange.
inline bool search::relocate(uint32_t first, uint32_t second) {
    std::vector<item> forward_moves, backward_moves;
    rank_moves(first, second, forward_moves);
    rank_moves(second, first, backward_moves);
    bool better = false;
    const auto alone = [&](const std::vector<item> &moves, uint32_t source, uint32_t target) {
        const uint32_t server = state_.time().server_of(source);
        for (const item &moved : moves) {
            if (moved.change_s >= -least_s || spent()) break;
            if (state_.device_at(moved.expert, server) != source || !fits(moved.expert, target))
                continue;
            const size_t mark = state_.mark();
            better = settle_move(mark, move(moved.expert, source, target)) || better;
        }
    };
    alone(forward_moves, first, second);
    alone(backward_moves, second, first);
    // The best against the best pairs that still pay together. Sets of one layer add more than
    // that.
    const double slack_s = state_.uses() != 0 ? 0.25 : 0;
    uint32_t failed = 0;
    for (const item &forward : forward_moves) {
        uint32_t tried = 0;
        for (const item &backward : backward_moves) {
            const double hoped = forward.change_s + backward.change_s;
            if (hoped >=
                -least_s + slack_s * std::abs(std::min(forward.change_s, backward.change_s)))
                break;
            if (tried++ >= 6 || failed >= 96 || spent()) break;
            if (relocate_pair(forward.expert, first, backward.expert, second)) {
                better = true, failed = 0;
                break;
            }
            ++failed;
        }
        if (failed >= 96 || tried == 0 || spent()) break;
    }
    return better;
}

// Moves `expert` from device `source` to `target`, and `partner` the other way.
inline bool search::relocate_pair(uint32_t expert, uint32_t source, uint32_t partner,
                                  uint32_t target) {
    const uint32_t source_server = state_.time().server_of(source),
                   target_server = state_.time().server_of(target);
    if (state_.device_at(expert, source_server) != source ||
        state_.device_at(partner, target_server) != target)
        return false;
    if (source_server != target_server && (state_.device_at(expert, target_server) != none ||
                                           state_.device_at(partner, source_server) != none))
        return false;
    const auto larger =
        static_cast<int64_t>(state_.bytes(expert)) - static_cast<int64_t>(state_.bytes(partner));
    if (state_.free(target) < larger || state_.free(source) < -larger) return false;
    const size_t mark = state_.mark();
    const double change_s = move(expert, source, target);
    return settle_move(mark, change_s + move(partner, target, source));
}

// ---- all together ----------------------------------------------------------------------------

inline void search::improve(bool layers) {
    const uint32_t devices = cluster().devices;
    for (bool better = true; better && !spent();) {
        const double old_total = state_.total();
        better = false;
        for (uint32_t server = 0; server < state_.servers() && !spent(); ++server) {
            for (uint32_t round = 0; round < 4 && !spent(); ++round) {
                if (!replace(server)) break;
                better = true;
            }
            better = trade(server) || better;
        }
        // If sizes differ, combinations that fit together count.
        if (!better && unequal_)
            for (uint32_t device = 0; device < devices && !spent(); ++device)
                better = repack(device) || better;
        // All pairs of few devices. With many devices, each one with some random others.
        for (uint32_t first = 0; first < devices && !spent(); ++first) {
            const uint32_t others = devices <= 8 ? devices - 1 - first : 2;
            for (uint32_t pair = 0; pair < others && !spent(); ++pair) {
                const uint32_t second = devices <= 8 ? first + 1 + pair : random_below(devices);
                if (first != second) better = relocate(first, second) || better;
            }
        }
        state_.forget();
        if (old_total - state_.total() >= 1e-6 * std::abs(state_.total())) continue;
        better = layers && try_whole_layers();
    }
}

}  // namespace moorage::joint
