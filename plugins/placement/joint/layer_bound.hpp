// layer_bound.hpp - a bound for the joint policy that keeps layers whole; for few experts.
//
// lower_bound.hpp takes a mean of plans. In the mean a server may hold half of every layer, with
// half of each set. No plan can do that: if K experts are chosen together, a layer waits unless all
// of them are near. So this bound counts whole choices. For a server n and a layer, A is the set of
// its experts that n holds. A set S of the homes that enter through n then takes
//
//     at least  near(|S & A|)         if S is in A: computed on n alone
//     at least  far, or near + far    otherwise: the longest call, or one call after another; far
//                                     is the least time of any other server or the cloud
//
// h(A) is the sum over the layer's sets, for every A of up to 14 experts. The least sum over a
// server's layers within its room is a knapsack. It is solved exactly over the number of experts of
// each layer that it holds. Servers are independent except for coverage. Without a cloud every x is
// worth lambda(x) >= 0 wherever it is held, and the sum over x of lambda(x) is added. Any lambda
// gives a bound; subgradient steps improve them.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <numeric>
#include <vector>

#include "entry_demand.hpp"

namespace moorage::joint {

class layer_bound {
public:
    // All are borrowed for this call only.
    layer_bound(const latency_model &latency, const call_times &times, bool cover);

    // Bound of the latency that depends on the placement, rounded down, after that many steps.
    // `target` is the latency of some plan. -infinity: the instance is too large.
    double value(double target, uint32_t steps);

private:
    static constexpr uint32_t experts_most = 14;
    static constexpr uint64_t work_most = uint64_t{1} << 26, units_most = 1 << 13;

    // Experts of a layer by position, as bits of a number.
    using expert_mask = uint32_t;
    struct block {  // a layer on a server
        uint32_t server, first, count;
        size_t units;                   // units of one expert
        std::vector<double> cost;       // [2^count] h(A); empty: no home requests there
        std::vector<double> best;       // [count + 1] least cost with that many experts, lambda
                                        // subtracted
        std::vector<expert_mask> held;  // [count + 1] these experts
    };
    struct chosen_set {
        expert_mask mask;
        double weight;
    };
    // The least times of a layer, by how many of a set's experts are near and how many are missing.
    using time_table = std::array<std::array<double, experts_most + 1>, experts_most + 1>;

    void read_layers(const moorage_demand &demand);
    void read_room(const latency_model &latency, const call_times &times);
    void read_sets(const latency_model &latency);
    void read_server(const latency_model &latency, const call_times &times, uint32_t server);
    void count_sets(const latency_model &latency, const call_times &times, block &block,
                    const std::vector<chosen_set> &sets) const;
    time_table read_times(const latency_model &latency, const call_times &times,
                          const block &block) const;
    void price(block &block);
    double knapsack(uint32_t server);
    double evaluate();

    bool small_ = true, cover_;          // small: few enough experts and sets to count
    uint64_t unit_ = 0;                  // common divisor of the sizes, in bytes
    std::vector<uint8_t> wanted_;        // [models]
    std::vector<uint32_t> layer_of_;     // [experts]
    std::vector<uint32_t> layer_first_;  // [layers] first expert
    std::vector<size_t> room_;           // [servers] units
    std::vector<std::vector<std::vector<chosen_set>>> sets_;  // [servers, layers]
    std::vector<block> blocks_;
    std::vector<size_t> server_block_;  // [servers + 1] first block
    std::vector<double> lambda_;        // [experts]
    std::vector<double> lambda_sum_;    // [2^experts] of a running price()
    std::vector<uint32_t> copies_;      // [experts] from the last knapsacks
};

inline layer_bound::layer_bound(const latency_model &latency, const call_times &times, bool cover)
    : cover_(cover), lambda_(latency.experts(), 0), copies_(latency.experts(), 0) {
    read_layers(latency.demand());
    read_room(latency, times);
    read_sets(latency);
    server_block_.push_back(0);
    for (uint32_t server = 0; server < latency.cluster().servers && small_; ++server) {
        read_server(latency, times, server);
        server_block_.push_back(blocks_.size());
    }
    sets_.clear();
}

inline void layer_bound::read_layers(const moorage_demand &demand) {
    for (uint32_t model = 0; model < demand.models; ++model) {
        const uint32_t experts = demand.host_model_experts[model];
        wanted_.push_back(is_wanted(demand, model) ? 1 : 0);
        if (wanted_[model] != 0) unit_ = std::gcd(unit_, demand.host_expert_bytes[model]);
        small_ = small_ && experts <= experts_most;
        for (uint32_t layer = 0; layer < demand.host_model_layers[model]; ++layer) {
            layer_of_.insert(layer_of_.end(), experts, static_cast<uint32_t>(layer_first_.size()));
            layer_first_.push_back(demand.host_model_first[model] + layer * experts);
        }
    }
}

inline void layer_bound::read_room(const latency_model &latency, const call_times &times) {
    const moorage_cluster &cluster = latency.cluster();
    room_.assign(cluster.servers, 0);
    for (uint32_t device = 0; device < cluster.devices && unit_ > 0; ++device)
        room_[times.server_of(device)] += cluster.host_device_bytes[device] / unit_;
    // More room than everything takes changes nothing.
    for (size_t &room : room_) room = std::min<size_t>(room, size_t{1} << 40);
}

inline void layer_bound::read_sets(const latency_model &latency) {
    const moorage_demand &demand = latency.demand();
    const uint32_t servers = latency.cluster().servers;
    sets_.assign(servers, std::vector<std::vector<chosen_set>>(layer_first_.size()));
    uint64_t work = 0;
    latency.for_sets([&](uint32_t server, double weight, std::span<const uint32_t> set) {
        if (!small_) return;
        const uint32_t layer = layer_of_[set[0]];
        expert_mask mask = 0;
        for (const uint32_t expert : set) mask |= 1u << (expert - layer_first_[layer]);
        sets_[server][layer].push_back({mask, weight});
        work += uint64_t{1} << demand.host_model_experts[latency.model_of(set[0])];
    });
    for (uint32_t server = 0; server < servers && small_; ++server)
        for (uint32_t expert = 0; expert < latency.experts(); ++expert)
            if (const double alone = latency.single_weight(expert, server); alone > 0) {
                const uint32_t layer = layer_of_[expert];
                sets_[server][layer].push_back({1u << (expert - layer_first_[layer]), alone});
                work += uint64_t{1} << demand.host_model_experts[latency.model_of(expert)];
            }
    small_ = small_ && work <= work_most && unit_ > 0;
}

inline void layer_bound::read_server(const latency_model &latency, const call_times &times,
                                     uint32_t server) {
    const moorage_demand &demand = latency.demand();
    size_t layer = 0, all_units = 0;
    for (uint32_t model = 0; model < demand.models; ++model)
        for (uint32_t model_layer = 0; model_layer < demand.host_model_layers[model];
             ++model_layer, ++layer) {
            if (wanted_[model] == 0) continue;
            const uint32_t count = demand.host_model_experts[model];
            block layer_block;
            layer_block.server = server, layer_block.first = layer_first_[layer];
            layer_block.count = count;
            layer_block.units = demand.host_expert_bytes[model] / unit_;
            all_units += layer_block.units * count;
            if (!sets_[server][layer].empty())
                count_sets(latency, times, layer_block, sets_[server][layer]);
            else if (!cover_)
                continue;
            layer_block.best.resize(count + 1), layer_block.held.resize(count + 1);
            blocks_.push_back(std::move(layer_block));
        }
    room_[server] = std::min(room_[server], all_units);
    small_ = small_ && room_[server] <= units_most;
}

inline layer_bound::time_table layer_bound::read_times(const latency_model &latency,
                                                       const call_times &times,
                                                       const block &block) const {
    const uint32_t model = latency.model_of(block.first), entry = times.server_entry(block.server);
    // If outputs return one by one and calls are serial, replies are paid for each expert.
    const bool pays_replies = times.is_serial() && times.returns_each();
    double call_s = infinity, once_s = times.absent_once_s(model, entry),
           each_s = times.absent_each_s(model, entry);
    if (!pays_replies) once_s += each_s, each_s = 0;
    uint32_t devices = 0;
    for (uint32_t device = 0; device < times.devices(); ++device) {
        const uint32_t server = times.server_of(device);
        if (server == block.server) {
            call_s = std::min(call_s, times.call_s(device, model)), ++devices;
        } else if (times.is_reached(entry, server)) {
            const double reply_s = times.reply_s(model, entry, server);
            once_s =
                std::min(once_s, times.request_s(model, entry, server) +
                                     times.call_s(device, model) + (pays_replies ? 0 : reply_s));
            each_s = std::min(each_s, pays_replies ? reply_s : 0);
        }
    }
    time_table table{};
    for (uint32_t near = 0; near <= block.count; ++near)
        for (uint32_t missing = 0; near + missing <= block.count; ++missing) {
            double near_s = 0;
            if (near > 0 && devices > 0)
                near_s = call_s * (times.is_serial() ? 1 : (near + devices - 1) / devices);
            const double far_s = missing > 0 ? once_s + missing * each_s : 0;
            table[near][missing] = times.is_serial() ? near_s + far_s : std::max(near_s, far_s);
        }
    return table;
}

// h(A) for all A.
inline void layer_bound::count_sets(const latency_model &latency, const call_times &times,
                                    block &block, const std::vector<chosen_set> &sets) const {
    const time_table table = read_times(latency, times, block);
    block.cost.assign(size_t{1} << block.count, 0);
    for (expert_mask held = 0; held < block.cost.size(); ++held)
        for (const chosen_set &set : sets)
            block.cost[held] += set.weight *
                                table[static_cast<size_t>(std::popcount(set.mask & held))]
                                     [static_cast<size_t>(std::popcount(set.mask & ~held))];
}

// The least cost of the block, by the number of experts that it holds.
inline void layer_bound::price(block &block) {
    std::fill(block.best.begin(), block.best.end(), infinity);
    lambda_sum_.resize(std::max(lambda_sum_.size(), size_t{1} << block.count));
    lambda_sum_[0] = 0;
    for (expert_mask held = 0; held < 1u << block.count; ++held) {
        const auto lowest = static_cast<uint32_t>(std::countr_zero(held));
        if (held != 0)
            lambda_sum_[held] = lambda_sum_[held & (held - 1)] + lambda_[block.first + lowest];
        const double cost = (block.cost.empty() ? 0 : block.cost[held]) - lambda_sum_[held];
        const auto count = static_cast<size_t>(std::popcount(held));
        if (cost < block.best[count]) block.best[count] = cost, block.held[count] = held;
    }
}

// The least cost of a server's layers within its room. Counts the experts that it holds.
inline double layer_bound::knapsack(uint32_t server) {
    const size_t begin = server_block_[server], end = server_block_[server + 1];
    const size_t rooms = room_[server] + 1;
    std::vector<double> least(rooms, 0), next_least(rooms);
    std::vector<uint8_t> taken((end - begin) * rooms, 0);
    for (size_t index = begin; index < end; ++index) {
        block &block = blocks_[index];
        price(block);
        for (size_t room = 0; room < rooms; ++room) {
            next_least[room] = infinity;
            for (uint32_t count = 0; count <= block.count && count * block.units <= room; ++count)
                if (const double sum = least[room - count * block.units] + block.best[count];
                    sum < next_least[room])
                    next_least[room] = sum,
                    taken[(index - begin) * rooms + room] = static_cast<uint8_t>(count);
        }
        least.swap(next_least);
    }
    size_t room = rooms - 1;
    for (size_t index = end; index-- > begin;) {
        const uint32_t count = taken[(index - begin) * rooms + room];
        for (expert_mask left = blocks_[index].held[count]; left != 0; left &= left - 1)
            ++copies_[blocks_[index].first + static_cast<uint32_t>(std::countr_zero(left))];
        room -= count * blocks_[index].units;
    }
    return least[rooms - 1];
}

// The bound for the present lambda.
inline double layer_bound::evaluate() {
    std::fill(copies_.begin(), copies_.end(), 0u);
    double sum = std::accumulate(lambda_.begin(), lambda_.end(), 0.0);
    for (uint32_t server = 0; server + 1 < server_block_.size(); ++server) sum += knapsack(server);
    return sum;
}

inline double layer_bound::value(double target, uint32_t steps) {
    if (!small_) return -infinity;
    std::vector<uint8_t> needed(lambda_.size(), 0);  // experts that must be covered
    for (const block &block : blocks_)
        for (uint32_t expert = block.first; cover_ && expert < block.first + block.count; ++expert)
            needed[expert] = 1;
    double best = -infinity, length = 1;
    uint32_t since = 0;  // the last gain
    std::vector<double> best_lambda = lambda_;
    for (uint32_t step = 0; step <= steps && length > 1e-4; ++step) {
        const double sum = evaluate();
        ++since;
        if (sum > best) {
            if (sum > best + 1e-4 * std::abs(target - best)) since = 0;
            best = sum, best_lambda = lambda_;
        }
        if (!cover_) break;
        if (since > 8) length /= 2, since = 0, lambda_ = best_lambda;
        double norm = 0;
        for (size_t expert = 0; expert < lambda_.size(); ++expert)
            if (needed[expert] != 0 && (copies_[expert] == 0 || lambda_[expert] > 0))
                norm += (1.0 - copies_[expert]) * (1.0 - copies_[expert]);
        if (norm <= 0) break;
        const double stride = length * std::max(target - sum, 1e-9 * std::abs(target)) / norm;
        for (size_t expert = 0; expert < lambda_.size(); ++expert)
            if (needed[expert] != 0)
                lambda_[expert] = std::max(0.0, lambda_[expert] + stride * (1.0 - copies_[expert]));
    }
    return best - 1e-11 * (std::abs(best) + std::abs(target));
}

}  // namespace moorage::joint
