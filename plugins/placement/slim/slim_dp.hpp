// slim_dp.hpp - server after server, each an exact knapsack (SlimCaching, Algorithm 2).
//
// An expert of a server is valued by its saving as the first one there, given the servers before.
// The set of largest value that fits is placed. Then the next server follows. The knapsack is
// solved by dynamic programming over units of memory. A printed slip is not followed: Algorithm 2
// returns before its traceback.
//
// Cost: a server takes experts * units steps and as many bits. The unit is the greatest common
// divisor of the sizes (128 KiB for the paper's models). slim_maxconv gives a set of the same value
// in a fraction of the time. Guarantee: (1 - curvature) / 2 of the optimum, or 1 - curvature for a
// single device, if the gains of a server are modular plus supermodular (Proposition 4; K = 3 has
// exceptions). It is 0 if sizes were rounded up to a coarser unit. On the paper's setting of
// several servers the curvature is above .99: what another server already holds saves nothing as a
// first expert and a whole call as a last one. The guarantee then says nothing, but the plans are
// within a percent of greedy's.
#pragma once

#include "../slim_parts.hpp"

namespace moorage::policies {

namespace dp {

using moorage::slim::item;
using moorage::slim::knapsack;

// A table with fewer steps is made for any sizes.
inline constexpr size_t table_large = size_t{1} << 22;

// One row of the table: values with the item allowed, and a bit for each room that takes it.
inline void next_row(const item &choice, std::span<const double> values,
                     std::span<double> next_values, std::span<uint64_t> taken) {
    const size_t first = choice.units;
    std::copy_n(values.begin(), std::min(first, values.size()), next_values.begin());
    for (size_t q = first; q < values.size();) {
        const size_t end = std::min(values.size(), (q / 64 + 1) * 64);
        uint64_t bits = 0;
        for (size_t room = q; room < end; ++room) {
            const double sum = values[room - first] + choice.value;
            const bool better = sum > values[room];
            next_values[room] = better ? sum : values[room];
            bits |= uint64_t{better} << (room % 64);
        }
        taken[q / 64] |= bits;
        q = end;
    }
}

inline std::vector<uint32_t> solve_table(const knapsack &bag) {
    const size_t rooms = size_t{bag.units} + 1, words = (rooms + 63) / 64;
    std::vector<double> values(rooms, 0), next_values(rooms, 0);
    std::vector<uint64_t> taken(bag.items.size() * words, 0);
    for (size_t i = 0; i < bag.items.size(); ++i) {
        next_row(bag.items[i], values, next_values, std::span(taken).subspan(i * words, words));
        values.swap(next_values);
    }
    std::vector<uint32_t> chosen;
    size_t q = bag.units;
    for (size_t i = bag.items.size(); i-- > 0;) {
        if ((taken[i * words + q / 64] >> (q % 64) & 1) == 0) continue;
        chosen.push_back(static_cast<uint32_t>(i));
        q -= bag.items[i].units;
    }
    return chosen;
}

// The set can contain at most as many items of one size as fit: those of the largest value.
inline std::vector<uint32_t> solve(const knapsack &bag) {
    const auto same = [&](const item &choice) { return choice.units == bag.items[0].units; };
    const size_t fit = bag.items.empty() ? 0 : bag.units / bag.items[0].units;
    if (bag.items.size() * size_t{bag.units} < table_large || fit >= bag.items.size() ||
        !std::all_of(bag.items.begin(), bag.items.end(), same))
        return solve_table(bag);
    std::vector<uint32_t> order(bag.items.size());
    std::iota(order.begin(), order.end(), 0u);
    std::nth_element(order.begin(), order.begin() + static_cast<ptrdiff_t>(fit), order.end(),
                     [&](uint32_t a, uint32_t b) {
                         const double left = bag.items[a].value, right = bag.items[b].value;
                         return left != right ? left > right : a < b;
                     });
    order.resize(fit);
    std::sort(order.begin(), order.end(), std::greater<>());
    return order;
}

}  // namespace dp

class slim_dp : public moorage::slim::knapsack_planner {
public:
    static constexpr moorage::about about{
        .name = "slim_dp",
        .summary = "solves one server after the other as a knapsack, by dynamic programming",
        .source = "SlimCaching, Algorithm 2"};
    static constexpr moorage::param params[] = {units_parameter(1 << 20)};

    using knapsack_planner::knapsack_planner;

    void plan(const moorage_cluster &cluster, const moorage_demand &demand,
              std::span<const moorage_copy>, moorage::copies &copies) {
        moorage::slim::place_successively(about.name, cluster, demand, units_max_, copies, facts_,
                                          dp::solve);
    }
};

}  // namespace moorage::policies
