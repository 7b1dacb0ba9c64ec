// search_whole.inl - moves of search.hpp beyond the neighbourhood: layers, servers, random ones.
#pragma once

#include "search.hpp"

namespace moorage::joint {

// ---- whole layers, whole servers -------------------------------------------------------------

// Changes the placement, repairs what that breaks and fills the free room. Takes everything back if
// it does not pay.
template <class Change>
bool search::attempt(Change change) {
    const std::vector<uint32_t> before = of_.placement();
    const double before_s = of_.total();
    change();
    bool better = shrink() && cover();
    if (better) fill();
    better = better && of_.total() < before_s - least_s - 1e-9 * std::abs(before_s);
    if (better)
        of_.forget(), ++moves_;
    else
        of_.restore(before);
    return better;
}

// The server gets the missing experts of the layer that starts with expert `first`.
inline void search::take_layer(uint32_t n, uint32_t first) {
    for (uint32_t x = first; x < first + layer_size_[first]; ++x) {
        if (of_.at(x, n) != none || needed_[x] == 0 || of_.calls(x, n) <= 0) continue;
        const uint32_t d = spread_device(x, n, false);
        if (of_.bytes(x) <= cluster().host_device_bytes[d]) of_.put(x, n, d);
    }
}

inline void search::drop_layer(uint32_t n, uint32_t first) {
    for (uint32_t x = first; x < first + layer_size_[first]; ++x)
        if (of_.at(x, n) != none) of_.put(x, n, none);
}

// Exchanges all copies of one server with all of the other. Each goes to the device that would be
// done first.
inline void search::exchange_servers(uint32_t a, uint32_t b) {
    std::vector<std::pair<uint32_t, uint32_t>> copies;  // expert, where it goes
    for (uint32_t x = 0; x < of_.experts(); ++x) {
        const bool at_a = of_.at(x, a) != none, at_b = of_.at(x, b) != none;
        if (at_a == at_b) continue;
        copies.emplace_back(x, at_a ? b : a);
        of_.put(x, at_a ? a : b, none);
    }
    for (const auto &[x, n] : copies)
        if (const uint32_t d = spread_device(x, n, false);
            of_.bytes(x) <= cluster().host_device_bytes[d])
            of_.put(x, n, d);
}

// A layer is worth little on a server until nearly all of it is there. So moves of one expert do
// not lead from a spread layer to a whole one. Tries as many as a quarter of the time left allows.
inline bool search::whole() {
    std::vector<std::pair<uint32_t, uint32_t>> tries;  // server, layer; or server, experts + server
    for (uint32_t n = 0; n < of_.servers(); ++n) {
        if (begin(n) == end(n)) continue;
        for (uint32_t x = 0; x < of_.experts(); x += layer_size_[x])
            if (needed_[x] != 0) tries.emplace_back(n, x);
        for (uint32_t m = 0; m < n; ++m)
            if (begin(m) != end(m)) tries.emplace_back(n, of_.experts() + m);
    }
    const uint64_t most = of_.work() + work_left() / 4;
    if (4 * of_.sweep() > most - of_.work()) return false;
    for (size_t i = 0; i + 1 < tries.size(); ++i)
        std::swap(tries[i], tries[i + below(tries.size() - i)]);
    bool better = false;
    for (const auto &[n, what] : tries) {
        if (of_.work() >= most) break;
        const uint32_t server = n, first = what;
        if (first >= of_.experts()) {
            better = attempt([&] { exchange_servers(server, first - of_.experts()); }) || better;
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
    const uint32_t count = 1 + below(3);
    for (uint32_t i = 0; i < count; ++i) {
        const uint32_t n = below(of_.servers()), x = below(of_.experts());
        if (of_.at(x, n) != none) {
            if (!pinned(x)) of_.put(x, n, none);
        } else if (needed_[x] != 0 && begin(n) != end(n)) {
            const uint32_t d = begin(n) + below(end(n) - begin(n));
            if (of_.bytes(x) <= cluster().host_device_bytes[d]) of_.put(x, n, d);
        }
    }
}

// Exchanges two copies of different devices.
inline void search::disturb_swap() {
    std::vector<std::pair<uint32_t, uint32_t>> held;  // expert, server
    for (uint32_t x = 0; x < of_.experts(); ++x)
        for (uint32_t n = 0; n < of_.servers(); ++n)
            if (of_.at(x, n) != none) held.emplace_back(x, n);
    const uint32_t count = held.empty() ? 0 : 1 + below(3);
    for (uint32_t i = 0; i < count; ++i) {
        const auto [x, n] = held[below(held.size())];
        const auto [y, m] = held[below(held.size())];
        const uint32_t from = of_.at(x, n), to = of_.at(y, m);
        if (from == none || to == none || from == to) continue;
        if (n != m && (of_.at(x, m) != none || of_.at(y, n) != none)) continue;
        if (of_.bytes(x) > cluster().host_device_bytes[to] ||
            of_.bytes(y) > cluster().host_device_bytes[from])
            continue;
        move(x, from, to);
        move(y, to, from);
    }
}

// A server gets the missing experts of a layer.
inline void search::disturb_layer() {
    const uint32_t n = below(of_.servers()), some = below(of_.experts());
    if (begin(n) == end(n)) return;
    const uint32_t first = layer_first_[some];
    std::vector<uint32_t> lacking;
    for (uint32_t x = first; x < first + layer_size_[some]; ++x)
        if (of_.at(x, n) == none && needed_[x] != 0 && of_.calls(x, n) > 0) lacking.push_back(x);
    std::stable_sort(lacking.begin(), lacking.end(),
                     [&](uint32_t a, uint32_t b) { return of_.calls(a, n) > of_.calls(b, n); });
    lacking.resize(
        std::min<size_t>(lacking.size(), 1 + below(std::max<size_t>(1, lacking.size()))));
    for (const uint32_t x : lacking) {
        const uint32_t d = spread_device(x, n, false);
        if (of_.bytes(x) <= cluster().host_device_bytes[d]) of_.put(x, n, d);
    }
}

inline bool search::kick() {
    const uint32_t kind = below(4);
    if (kind == 0)
        disturb_layer();
    else if (kind == 1)
        disturb_few();
    else
        disturb_swap();
    return shrink() && cover();
}

}  // namespace moorage::joint
