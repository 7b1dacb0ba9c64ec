// slim_maxconv.hpp - slim_dp's knapsacks, one size class at a time (SlimCaching, Algorithm 3).
//
// Experts of one size are worth taking in the order of their gains. So the value of the first l
// experts of a class is concave in l. The best value for every room is the max-plus convolution of
// the classes so far with that sequence, spread over multiples of the size (Definition 3). Along
// one residue the best number to take moves only one way, so halving finds it: the middle room
// first, then both sides within what the middle allows. The class with the most items comes last,
// because then only one room matters: the whole.
//
// Cost: a server takes classes * units * log(units) steps and classes * units words. Value and
// guarantee are those of slim_dp. If values tie, the set may differ.
#pragma once

#include "../slim_parts.hpp"

namespace moorage::policies {

namespace maxconv {

using moorage::slim::item;
using moorage::slim::knapsack;

// Items of one size, most valuable first.
struct size_class {
    uint32_t units = 0;
    std::vector<uint32_t> items;  // indices into the knapsack
    std::vector<double> value;    // value of the first 0, 1, 2, ... items
};

inline std::vector<size_class> classes_of(const knapsack &bag) {
    std::vector<uint32_t> order(bag.items.size());
    std::iota(order.begin(), order.end(), 0u);
    const auto precedes = [&](uint32_t a, uint32_t b) {
        const item &left = bag.items[a], &right = bag.items[b];
        if (left.units != right.units) return left.units > right.units;
        return left.value != right.value ? left.value > right.value : a < b;
    };
    // Items of one size beyond those that fit are never read.
    size_t fit = order.size();
    const auto same = [&](const item &entry) { return entry.units == bag.items[0].units; };
    if (!order.empty() && std::all_of(bag.items.begin(), bag.items.end(), same))
        fit = std::min<size_t>(fit, bag.units / bag.items[0].units);
    const auto middle = order.begin() + static_cast<ptrdiff_t>(fit);
    if (fit < order.size()) std::nth_element(order.begin(), middle, order.end(), precedes);
    order.resize(fit);
    std::sort(order.begin(), order.end(), precedes);
    std::vector<size_class> classes;
    for (const uint32_t index : order) {
        const item &member = bag.items[index];
        if (classes.empty() || classes.back().units != member.units) {
            classes.push_back({member.units, {}, {0}});
        }
        classes.back().items.push_back(index);
        classes.back().value.push_back(classes.back().value.back() + member.value);
    }
    std::stable_sort(classes.begin(), classes.end(), [](const size_class &a, const size_class &b) {
        return a.items.size() < b.items.size();
    });
    return classes;
}

// Convolution along one residue: rooms residue + j * units for j below `count`.
struct convolution {
    const size_class &added;
    std::span<const double> values;
    std::span<double> next_values;
    std::span<uint32_t> taken;
    size_t residue;

    size_t room(size_t j) const { return residue + j * added.units; }

    // Rooms j of [begin, end). The classes before get i in [least, most] of j.
    void solve(size_t begin, size_t end, size_t least, size_t most) {
        if (begin >= end) return;
        const size_t j = begin + (end - begin) / 2, items = added.items.size();
        const size_t low = std::max(least, j > items ? j - items : 0), high = std::min(most, j);
        size_t best_i = low;
        double best = values[room(low)] + added.value[j - low];
        for (size_t i = low + 1; i <= high; ++i) {
            const double value = values[room(i)] + added.value[j - i];
            if (value > best) best = value, best_i = i;
        }
        next_values[room(j)] = best;
        taken[room(j)] = static_cast<uint32_t>(j - best_i);
        solve(begin, j, least, best_i);
        solve(j + 1, end, best_i, most);
    }
};

// How many of the last class to take if `units` is all the room.
inline uint32_t last_taken(const size_class &added, std::span<const double> values, size_t units) {
    size_t taken = 0;
    double best = values[units];
    for (size_t l = 1; l <= added.items.size() && l * added.units <= units; ++l) {
        const double value = values[units - l * added.units] + added.value[l];
        if (value > best) best = value, taken = l;
    }
    return static_cast<uint32_t>(taken);
}

inline std::vector<uint32_t> solve(const knapsack &bag) {
    const size_t rooms = size_t{bag.units} + 1;
    const std::vector<size_class> classes = classes_of(bag);
    std::vector<double> values(rooms, 0), next_values(rooms, 0);
    std::vector<std::vector<uint32_t>> taken;
    for (size_t c = 0; c + 1 < classes.size(); ++c) {
        taken.emplace_back(rooms, 0);
        for (size_t residue = 0; residue < std::min<size_t>(classes[c].units, rooms); ++residue) {
            const size_t count = (rooms - 1 - residue) / classes[c].units + 1;
            convolution{classes[c], values, next_values, taken.back(), residue}.solve(0, count, 0,
                                                                                      count - 1);
        }
        values.swap(next_values);
    }
    std::vector<uint32_t> chosen;
    size_t q = bag.units;
    for (size_t c = classes.size(); c-- > 0;) {
        const uint32_t count =
            c + 1 == classes.size() ? last_taken(classes[c], values, q) : taken[c][q];
        chosen.insert(chosen.end(), classes[c].items.begin(), classes[c].items.begin() + count);
        q -= size_t{count} * classes[c].units;
    }
    return chosen;
}

}  // namespace maxconv

class slim_maxconv : public moorage::slim::knapsack_planner {
public:
    static constexpr moorage::about about{
        .name = "slim_maxconv",
        .summary = "solves one server after the other as a knapsack, by max-plus convolution",
        .source = "SlimCaching, Algorithm 3"};
    static constexpr moorage::param params[] = {units_parameter(1 << 24)};

    using knapsack_planner::knapsack_planner;

    void plan(const moorage_cluster &cluster, const moorage_demand &demand,
              std::span<const moorage_copy>, moorage::copies &copies) {
        moorage::slim::place_successively(about.name, cluster, demand, units_max_, copies, facts_,
                                          maxconv::solve);
    }
};

}  // namespace moorage::policies
