// search.inl - definitions of search.hpp.
#pragma once

#include "search.hpp"
#include "search_whole.inl"

namespace moorage::joint {

inline search::search(state &of, bool cover, uint64_t work_max, uint64_t seed)
    : of_(of),
      cover_(cover),
      work_max_(work_max),
      seed_(seed),
      needed_(of.experts(), 0),
      layer_first_(of.experts()),
      layer_size_(of.experts()),
      losses_(of.model().cluster().devices) {
    const moorage_demand &demand = of.model().demand();
    uint64_t size = 0;
    for (uint32_t m = 0; m < demand.models; ++m) {
        bool wanted = false;
        for (uint32_t h = 0; h < demand.homes; ++h)
            wanted = wanted || demand.host_home_model[size_t{h} * demand.models + m] > 0;
        for (uint32_t x = demand.host_model_first[m]; x < demand.host_model_first[m + 1]; ++x) {
            needed_[x] = wanted ? 1 : 0;
            layer_size_[x] = demand.host_model_experts[m];
            layer_first_[x] = x - (x - demand.host_model_first[m]) % layer_size_[x];
        }
        if (!wanted) continue;
        unequal_ = unequal_ || (size != 0 && size != demand.host_expert_bytes[m]);
        size = demand.host_expert_bytes[m];
    }
}

// The device of the server that would be done first with its experts of the layer.
inline uint32_t search::spread_device(uint32_t x, uint32_t n, bool with_room) const {
    uint32_t best = none;
    double least = infinity;
    for (uint32_t d = begin(n); d < end(n); ++d) {
        if (with_room && !fits(x, d)) continue;
        if (end(n) - begin(n) == 1) return d;
        double held = 1;
        const uint32_t first = layer_first_[x];
        for (uint32_t y = first; y < first + layer_size_[x]; ++y)
            if (y != x && of_.at(y, n) == d) ++held;
        const double busy_s = held * of_.time().call_s(d, of_.model().model_of(x));
        if (busy_s < least) least = busy_s, best = d;
    }
    return best;
}

// The change for a copy on each server that has room and lacks the expert. device_ is none for the
// others.
inline void search::ask_servers(uint32_t x) {
    device_.resize(of_.servers()), change_s_.resize(of_.servers());
    for (uint32_t n = 0; n < of_.servers(); ++n)
        device_[n] = of_.at(x, n) != none ? none : spread_device(x, n, true);
    of_.changes_s(x, device_, change_s_);
}

// ---- fill ------------------------------------------------------------------------------------

inline void search::fill() {
    const uint32_t servers = of_.servers();
    std::vector<double> latest(size_t{of_.experts()} * servers, 0);
    std::priority_queue<candidate> queue;
    const auto offer = [&](uint32_t x) {
        ask_servers(x);
        for (uint32_t n = 0; n < servers; ++n) {
            if (device_[n] == none) continue;
            double &rank = latest[size_t{x} * servers + n];
            rank = -change_s_[n] > least_s ? -change_s_[n] / size(x) : 0;
            if (rank > 0) queue.push({rank, x, n});
        }
    };
    for (uint32_t x = 0; x < of_.experts() && !spent(); ++x) offer(x);
    // A new expert raises the gains of experts chosen together with it. They are computed again
    // while that takes a moderate time.
    const uint64_t refresh_max = of_.work() + std::min<uint64_t>(work_left() / 4, 20'000'000);
    while (!queue.empty() && !spent()) {
        const candidate top = queue.top();
        queue.pop();
        if (top.rank != latest[size_t{top.x} * servers + top.n] || of_.at(top.x, top.n) != none)
            continue;
        const uint32_t device = spread_device(top.x, top.n, true);
        if (device == none) continue;
        const double rank = -of_.change_s(top.x, top.n, device) / size(top.x);
        if (rank < top.rank && (queue.empty() || rank < queue.top().rank)) {
            latest[size_t{top.x} * servers + top.n] = rank;
            if (rank * size(top.x) > least_s) queue.push({rank, top.x, top.n});
            continue;
        }
        if (rank * size(top.x) <= least_s) continue;
        of_.put(top.x, top.n, device);
        ++moves_;
        if (of_.work() > refresh_max) continue;
        const uint32_t first = layer_first_[top.x];
        for (uint32_t y = first; of_.uses() != 0 && y < first + layer_size_[top.x]; ++y) offer(y);
    }
}

inline void search::by_calls(bool first) {
    std::vector<uint32_t> order(of_.experts());
    std::vector<double> all(of_.experts(), 0);
    std::iota(order.begin(), order.end(), 0u);
    for (uint32_t x = 0; x < of_.experts(); ++x)
        for (uint32_t n = 0; n < of_.servers(); ++n) all[x] += of_.calls(x, n);
    const auto place = [this](uint32_t x, uint32_t n) {
        if (of_.at(x, n) != none || needed_[x] == 0) return false;
        const uint32_t device = spread_device(x, n, true);
        if (device == none) return false;
        of_.put(x, n, device);
        return true;
    };
    std::vector<uint32_t> by_server(of_.servers());
    of_.begin_many();
    std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
        return of_.bytes(a) != of_.bytes(b) ? of_.bytes(a) > of_.bytes(b) : all[a] > all[b];
    });
    for (const uint32_t x : order) {
        if (!first) break;
        std::iota(by_server.begin(), by_server.end(), 0u);
        std::stable_sort(by_server.begin(), by_server.end(),
                         [&](uint32_t a, uint32_t b) { return of_.calls(x, a) > of_.calls(x, b); });
        for (const uint32_t n : by_server)
            if (place(x, n)) break;
    }
    for (uint32_t n = 0; n < of_.servers(); ++n) {
        for (uint32_t x = 0; x < of_.experts(); ++x) all[x] = of_.calls(x, n);
        std::stable_sort(order.begin(), order.end(),
                         [&](uint32_t a, uint32_t b) { return all[a] > all[b]; });
        for (const uint32_t x : order)
            if (all[x] > 0) place(x, n);
    }
    of_.end_many();
}

// ---- knapsacks -------------------------------------------------------------------------------

inline void search::pack_all() {
    for (uint32_t d = 0; d < cluster().devices && !spent(); ++d) repack(d);
}

// Empties the device and fills it by the knapsack of what each expert alone would save there.
// Returns false, and takes it back, if that is too large or gains nothing.
inline bool search::repack(uint32_t device) {
    const uint32_t n = of_.time().server_of(device);
    uint64_t unit = 0;
    for (uint32_t x = 0; x < of_.experts(); ++x)
        if (needed_[x] != 0) unit = std::gcd(unit, of_.bytes(x));
    if (unit == 0) return false;
    const uint64_t units = cluster().host_device_bytes[device] / unit;
    if (units * of_.experts() > uint64_t{1} << 27 || units > work_left()) return false;
    const size_t mark = of_.mark();
    double change_s = 0;
    for (uint32_t x = 0; x < of_.experts(); ++x)
        if (of_.at(x, n) == device && !pinned(x)) change_s += of_.put(x, n, none);
    const auto room = static_cast<size_t>(of_.free(device)) / unit;
    std::vector<item> items;
    for (uint32_t x = 0; x < of_.experts(); ++x) {
        if (of_.at(x, n) != none || needed_[x] == 0 || of_.bytes(x) > room * unit) continue;
        const double gain_s = -of_.change_s(x, n, device);
        if (gain_s > least_s) items.push_back({gain_s, x});
    }
    std::vector<double> most(room + 1, 0);
    std::vector<bool> taken(items.size() * (room + 1), false);
    for (size_t i = 0; i < items.size(); ++i) {
        const size_t size_units = of_.bytes(items[i].x) / unit;
        for (size_t q = room; q >= size_units; --q)
            if (const double with = most[q - size_units] + items[i].change_s; with > most[q])
                most[q] = with, taken[i * (room + 1) + q] = true;
    }
    size_t left = room;
    for (size_t i = items.size(); i-- > 0;)
        if (taken[i * (room + 1) + left]) {
            change_s += of_.put(items[i].x, n, device);
            left -= of_.bytes(items[i].x) / unit;
        }
    return settle_move(mark, change_s);
}

// ---- cover -----------------------------------------------------------------------------------

inline bool search::cover() {
    if (!cover_) return true;
    std::vector<uint32_t> open;
    for (uint32_t x = 0; x < of_.experts(); ++x)
        if (needed_[x] != 0 && of_.copies(x) == 0) open.push_back(x);
    std::stable_sort(open.begin(), open.end(),
                     [this](uint32_t a, uint32_t b) { return of_.bytes(a) > of_.bytes(b); });
    for (std::vector<item> &each : losses_) each.clear();
    for (const uint32_t x : open) {
        if (spent()) return false;
        uint32_t best = none;
        double least = infinity;
        ask_servers(x);  // no server has it
        for (uint32_t n = 0; n < of_.servers(); ++n)
            if (device_[n] != none && change_s_[n] < least) least = change_s_[n], best = device_[n];
        if (best != none)
            of_.put(x, of_.time().server_of(best), best);
        else if (!swap_in(x) && !evict_for(x))
            return false;
    }
    return true;
}

// Replaces one copy that is not the last of its expert, where that loses the fewest calls.
inline bool search::swap_in(uint32_t x) {
    uint32_t best = none, server = none;
    double least = infinity;
    for (uint32_t n = 0; n < of_.servers(); ++n)
        for (uint32_t y = 0; y < of_.experts(); ++y) {
            const uint32_t d = of_.at(y, n);
            if (d == none || pinned(y)) continue;
            const int64_t room = of_.free(d) + static_cast<int64_t>(of_.bytes(y));
            const double lost = of_.calls(y, n) - of_.calls(x, n);
            if (room >= static_cast<int64_t>(of_.bytes(x)) && lost < least)
                least = lost, best = y, server = n;
        }
    if (best == none) return false;
    const uint32_t device = of_.at(best, server);
    of_.put(best, server, none);
    of_.put(x, server, device);
    return true;
}

// Places the expert where other copies, none the last of its expert, can make room at the least
// cost.
inline bool search::evict_for(uint32_t x) {
    uint32_t best = none;
    double least = infinity;
    std::vector<uint32_t> best_victims;
    for (uint32_t d = 0; d < cluster().devices; ++d) {
        const uint32_t n = of_.time().server_of(d);
        const size_t mark = of_.mark();
        if (losses_[d].empty()) rank_losses(d, losses_[d]);
        if (make_room(x, d, losses_[d], infinity)) {
            double change_s = 0;
            for (const uint32_t y : victims_) change_s += of_.put(y, n, none);
            change_s += of_.put(x, n, d);
            if (change_s < least) least = change_s, best = d, best_victims = victims_;
        }
        of_.rollback(mark);
    }
    if (best == none) return false;
    const uint32_t n = of_.time().server_of(best);
    for (const uint32_t y : best_victims) of_.put(y, n, none);
    of_.put(x, n, best);
    return true;
}

// ---- shrink ----------------------------------------------------------------------------------

inline void search::put_everywhere() {
    of_.begin_many();
    for (uint32_t n = 0; n < of_.servers(); ++n) {
        uint64_t room = 0;
        for (uint32_t d = begin(n); d < end(n); ++d)
            room = std::max(room, cluster().host_device_bytes[d]);
        for (uint32_t x = 0; x < of_.experts(); ++x)
            if (of_.at(x, n) == none && needed_[x] != 0 && of_.bytes(x) <= room)
                of_.put(x, n, spread_device(x, n, false));
    }
    of_.end_many();
}

inline bool search::shrink() {
    for (bool more = true; more;) {
        more = false;
        for (uint32_t d = 0; d < cluster().devices; ++d) {
            if (of_.free(d) >= 0) continue;
            if (spent() || !shrink(d)) return false;
            more = true;
        }
    }
    return true;
}

// Once through the device's copies in the order of their worth. Removes at most an eighth of the
// excess, because the worth of others changes with every removed copy.
inline bool search::shrink(uint32_t device) {
    const uint32_t n = of_.time().server_of(device);
    rank_losses(device, losses_[device]);
    const int64_t goal = of_.free(device) - of_.free(device) / 8;
    bool some = false;
    for (const item &each : losses_[device]) {
        if (of_.free(device) >= 0 || (some && of_.free(device) >= goal)) break;
        if (pinned(each.x)) continue;
        of_.put(each.x, n, none);
        some = true;
    }
    return some;
}

// ---- replace ---------------------------------------------------------------------------------

// Copies of the device, the least missed first.
inline void search::rank_losses(uint32_t device, std::vector<item> &losses) {
    const uint32_t n = of_.time().server_of(device);
    losses.clear();
    for (uint32_t x = 0; x < of_.experts(); ++x)
        if (of_.at(x, n) == device && !pinned(x)) losses.push_back({of_.change_s(x, n, none), x});
    std::sort(losses.begin(), losses.end(), [this](const item &a, const item &b) {
        const double left = a.change_s * size(b.x), right = b.change_s * size(a.x);
        return left != right ? left < right : a.x < b.x;
    });
}

// Experts that the server lacks and that would save something, the most per byte first.
inline void search::rank_gains(uint32_t n, std::vector<item> &gains) {
    gains.clear();
    for (uint32_t x = 0; x < of_.experts(); ++x) {
        if (of_.at(x, n) != none || needed_[x] == 0 || begin(n) == end(n)) continue;
        const double gain_s = -of_.change_s(x, n, spread_device(x, n, false));
        if (gain_s > least_s) gains.push_back({gain_s, x});
    }
    std::sort(gains.begin(), gains.end(), [this](const item &a, const item &b) {
        const double left = a.change_s * size(b.x), right = b.change_s * size(a.x);
        return left != right ? left > right : a.x < b.x;
    });
}

// Writes the copies that leave the device for x to victims_. Returns false if they would cost more.
inline bool search::make_room(uint32_t x, uint32_t device, const std::vector<item> &losses,
                              double allowed_s) {
    const uint32_t n = of_.time().server_of(device);
    int64_t lacking = static_cast<int64_t>(of_.bytes(x)) - of_.free(device);
    double sum = 0;
    victims_.clear();
    std::vector<item> chosen;
    for (const item &each : losses) {
        if (lacking <= 0) break;
        if (of_.at(each.x, n) != device || each.x == x || pinned(each.x)) continue;
        chosen.push_back(each);
        sum += each.change_s;
        lacking -= static_cast<int64_t>(of_.bytes(each.x));
    }
    if (lacking > 0) return false;
    // An earlier victim is not needed if a larger one came after it.
    for (size_t i = chosen.size(); i-- > 0;) {
        const auto bytes = static_cast<int64_t>(of_.bytes(chosen[i].x));
        if (lacking + bytes <= 0) {
            lacking += bytes;
            sum -= chosen[i].change_s;
        } else {
            victims_.push_back(chosen[i].x);
        }
    }
    return sum < allowed_s;
}

inline bool search::settle_move(size_t mark, double change_s) {
    if (change_s < -least_s) {
        ++moves_;
        return true;
    }
    of_.rollback(mark);
    return false;
}

inline bool search::insert(uint32_t x, uint32_t n, double gain_s) {
    // Experts of one set change each other's worth, so try a little beyond the ranks.
    const double allowed_s = of_.uses() != 0 ? 1.5 * gain_s : gain_s;
    for (uint32_t d = begin(n); d < end(n); ++d) {
        if (of_.bytes(x) > cluster().host_device_bytes[d]) continue;
        if (!make_room(x, d, losses_[d], allowed_s)) continue;
        const size_t mark = of_.mark();
        double change_s = 0;
        for (const uint32_t y : victims_) change_s += of_.put(y, n, none);
        change_s += of_.put(x, n, d);
        if (settle_move(mark, change_s)) return true;
    }
    return false;
}

// Places experts that the server lacks in place of some that it has.
inline bool search::replace(uint32_t n) {
    std::vector<item> gains;
    rank_gains(n, gains);
    if (gains.empty()) return false;
    for (uint32_t d = begin(n); d < end(n); ++d) rank_losses(d, losses_[d]);
    bool better = false;
    uint32_t failed = 0;
    const uint32_t patience = of_.experts() <= 64 ? 64 : 32;
    for (const item &each : gains) {
        if (failed >= patience || spent()) break;
        if (insert(each.x, n, each.change_s))
            better = true, failed = 0;
        else
            ++failed;
    }
    return better;
}

// Replaces a copy of the server by several smaller ones, or by one that fits as well.
inline bool search::trade(uint32_t n) {
    bool better = false;
    std::vector<item> gains;
    for (uint32_t d = begin(n); d < end(n); ++d) {
        rank_losses(d, losses_[d]);
        rank_gains(n, gains);
        const size_t count = std::min<size_t>(losses_[d].size(), 24);
        for (size_t i = 0; i < count && !spent(); ++i) {
            const uint32_t y = losses_[d][i].x;
            if (of_.at(y, n) != d || pinned(y)) continue;
            const size_t mark = of_.mark();
            double change_s = of_.put(y, n, none);
            uint32_t tried = 0;
            for (const item &each : gains) {
                if (tried >= 24 || of_.free(d) <= 0) break;
                if (each.x == y || of_.at(each.x, n) != none || !fits(each.x, d)) continue;
                ++tried;
                if (of_.change_s(each.x, n, d) < -least_s) change_s += of_.put(each.x, n, d);
            }
            better = settle_move(mark, change_s) || better;
        }
    }
    return better;
}

// ---- exchange --------------------------------------------------------------------------------

inline double search::move(uint32_t x, uint32_t from, uint32_t to) {
    const uint32_t n = of_.time().server_of(from), other = of_.time().server_of(to);
    if (n == other) return of_.put(x, n, to);
    const double change_s = of_.put(x, other, to);
    return change_s + of_.put(x, n, none);
}

// Copies of a device by the change of moving them to another device, the best first.
inline void search::rank_moves(uint32_t from, uint32_t to, std::vector<item> &moves) {
    const uint32_t n = of_.time().server_of(from), other = of_.time().server_of(to);
    moves.clear();
    for (uint32_t x = 0; x < of_.experts(); ++x) {
        if (of_.at(x, n) != from || (n != other && of_.at(x, other) != none)) continue;
        if (of_.bytes(x) > cluster().host_device_bytes[to]) continue;
        if (n == other) {
            moves.push_back({of_.change_s(x, n, to), x});
            continue;
        }
        const size_t mark = of_.mark();
        moves.push_back({move(x, from, to), x});
        of_.rollback(mark);
    }
    std::sort(moves.begin(), moves.end(), [](const item &a, const item &b) {
        return a.change_s != b.change_s ? a.change_s < b.change_s : a.x < b.x;
    });
}

// Moves copies between two devices: alone if there is room, else in exchange.
inline bool search::relocate(uint32_t a, uint32_t b) {
    std::vector<item> there, back;
    rank_moves(a, b, there);
    rank_moves(b, a, back);
    bool better = false;
    const auto alone = [&](const std::vector<item> &moves, uint32_t from, uint32_t to) {
        const uint32_t n = of_.time().server_of(from);
        for (const item &each : moves) {
            if (each.change_s >= -least_s || spent()) break;
            if (of_.at(each.x, n) != from || !fits(each.x, to)) continue;
            const size_t mark = of_.mark();
            better = settle_move(mark, move(each.x, from, to)) || better;
        }
    };
    alone(there, a, b);
    alone(back, b, a);
    // The best against the best pairs that still pay together. Sets of one layer add more than
    // that.
    const double slack_s = of_.uses() != 0 ? 0.25 : 0;
    uint32_t failed = 0;
    for (const item &x : there) {
        uint32_t tried = 0;
        for (const item &y : back) {
            const double hoped = x.change_s + y.change_s;
            if (hoped >= -least_s + slack_s * std::abs(std::min(x.change_s, y.change_s))) break;
            if (tried++ >= 6 || failed >= 96 || spent()) break;
            if (relocate_pair(x.x, a, y.x, b)) {
                better = true, failed = 0;
                break;
            }
            ++failed;
        }
        if (failed >= 96 || tried == 0 || spent()) break;
    }
    return better;
}

// Moves x from device `from` to `to`, and y the other way.
inline bool search::relocate_pair(uint32_t x, uint32_t from, uint32_t y, uint32_t to) {
    const uint32_t n = of_.time().server_of(from), other = of_.time().server_of(to);
    if (of_.at(x, n) != from || of_.at(y, other) != to) return false;
    if (n != other && (of_.at(x, other) != none || of_.at(y, n) != none)) return false;
    const auto larger = static_cast<int64_t>(of_.bytes(x)) - static_cast<int64_t>(of_.bytes(y));
    if (of_.free(to) < larger || of_.free(from) < -larger) return false;
    const size_t mark = of_.mark();
    const double change_s = move(x, from, to);
    return settle_move(mark, change_s + move(y, to, from));
}

// ---- all together ----------------------------------------------------------------------------

inline void search::improve(bool layers) {
    const uint32_t devices = cluster().devices;
    for (bool better = true; better && !spent();) {
        const double before = of_.total();
        better = false;
        for (uint32_t n = 0; n < of_.servers() && !spent(); ++n) {
            for (uint32_t round = 0; round < 4 && !spent(); ++round) {
                if (!replace(n)) break;
                better = true;
            }
            better = trade(n) || better;
        }
        // If sizes differ, combinations that fit together count.
        if (!better && unequal_)
            for (uint32_t d = 0; d < devices && !spent(); ++d) better = repack(d) || better;
        // All pairs of few devices. With many devices, each one with some random others.
        for (uint32_t a = 0; a < devices && !spent(); ++a) {
            const uint32_t others = devices <= 8 ? devices - 1 - a : 2;
            for (uint32_t i = 0; i < others && !spent(); ++i) {
                const uint32_t b = devices <= 8 ? a + 1 + i : below(devices);
                if (a != b) better = relocate(a, b) || better;
            }
        }
        of_.forget();
        if (before - of_.total() >= 1e-6 * std::abs(of_.total())) continue;
        better = layers && whole();
    }
}

}  // namespace moorage::joint
