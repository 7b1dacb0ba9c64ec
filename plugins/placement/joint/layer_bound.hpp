// layer_bound.hpp - a bound for the joint policy that keeps layers whole; for few experts.
//
// bound.hpp takes a mean of plans. In the mean a server may hold half of every layer, with half of
// each set. No plan can do that: if K experts are chosen together, a layer waits unless all of them
// are near. So this bound counts whole choices. For a server n and a layer, A is the set of its
// experts that n holds. A set S of the homes that enter through n then takes
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

#include <bit>
#include <numeric>

#include "time.hpp"

namespace moorage::joint {

class layer_bound {
public:
    // All are borrowed for this call only.
    layer_bound(const latency_model &latency, const layer_time &time, bool cover);

    // Whether the instance is small enough to count. Otherwise value() is -infinity.
    bool counted() const { return counted_; }
    // Bound of the latency that depends on the placement, rounded down, after that many steps.
    // `target` is the latency of some plan.
    double value(double target, uint32_t steps);

private:
    static constexpr uint32_t experts_most = 14;
    static constexpr uint64_t work_most = uint64_t{1} << 26, units_most = 1 << 13;

    struct block {  // a layer on a server
        uint32_t server, first, count;
        size_t units;                // units of one expert
        std::vector<double> cost;    // [2^count] h(A); empty: no home requests there
        std::vector<double> best;    // [count + 1] least cost with that many experts, lambda
                                     // subtracted
        std::vector<uint32_t> held;  // [count + 1] these experts
    };
    struct chosen_set {
        uint32_t mask;
        double weight;
    };
    void read_server(const latency_model &latency, const layer_time &time, uint32_t server);
    void count_sets(const latency_model &latency, const layer_time &time, block &block,
                    const std::vector<chosen_set> &sets) const;
    void price(block &block);
    double knapsack(uint32_t server);

    bool counted_ = true, cover_;
    uint64_t unit_ = 0;
    std::vector<uint8_t> wanted_;                             // [M]
    std::vector<size_t> room_;                                // [N] units
    std::vector<std::vector<std::vector<chosen_set>>> sets_;  // [N][layers]
    std::vector<block> blocks_;
    std::vector<size_t> server_block_;  // [N + 1]
    std::vector<double> lambda_, sum_;  // [X], [2^experts]
    std::vector<uint32_t> copies_;      // [X] from the last knapsacks
};

inline layer_bound::layer_bound(const latency_model &latency, const layer_time &time, bool cover)
    : cover_(cover), lambda_(latency.experts(), 0), copies_(latency.experts(), 0) {
    const moorage_cluster &cluster = latency.cluster();
    const moorage_demand &demand = latency.demand();
    std::vector<uint32_t> layer_of, layer_first;  // [X]
    for (uint32_t model = 0; model < demand.models; ++model) {
        bool wanted = false;
        for (uint32_t home = 0; home < demand.homes; ++home)
            wanted = wanted || demand.host_home_model[size_t{home} * demand.models + model] > 0;
        wanted_.push_back(wanted ? 1 : 0);
        if (wanted) unit_ = std::gcd(unit_, demand.host_expert_bytes[model]);
        counted_ = counted_ && demand.host_model_experts[model] <= experts_most;
        for (uint32_t model_layer = 0; model_layer < demand.host_model_layers[model];
             ++model_layer) {
            const auto layer = static_cast<uint32_t>(layer_first.size());
            layer_first.push_back(demand.host_model_first[model] +
                                  model_layer * demand.host_model_experts[model]);
            layer_of.resize(layer_of.size() + demand.host_model_experts[model], layer);
        }
    }
    room_.assign(cluster.servers, 0);
    for (uint32_t device = 0; device < cluster.devices && unit_ > 0; ++device)
        room_[time.server_of(device)] += cluster.host_device_bytes[device] / unit_;
    sets_.assign(cluster.servers, std::vector<std::vector<chosen_set>>(layer_first.size()));
    uint64_t work = 0;
    latency.for_sets([&](uint32_t server, double weight, std::span<const uint32_t> set) {
        if (!counted_) return;
        uint32_t mask = 0;
        for (const uint32_t expert : set) mask |= 1u << (expert - layer_first[layer_of[expert]]);
        sets_[server][layer_of[set[0]]].push_back({mask, weight});
        work += uint64_t{1} << demand.host_model_experts[latency.model_of(set[0])];
    });
    for (uint32_t server = 0; server < cluster.servers && counted_; ++server) {
        for (uint32_t expert = 0; expert < latency.experts(); ++expert) {
            if (const double alone = latency.single_weight(expert, server); alone > 0) {
                const uint32_t layer = layer_of[expert];
                sets_[server][layer].push_back({1u << (expert - layer_first[layer]), alone});
                work += uint64_t{1} << demand.host_model_experts[latency.model_of(expert)];
            }
        }
        // More room than everything takes changes nothing.
        room_[server] = std::min<size_t>(room_[server], size_t{1} << 40);
    }
    counted_ = counted_ && work <= work_most && unit_ > 0;
    server_block_.push_back(0);
    for (uint32_t server = 0; server < cluster.servers && counted_; ++server) {
        read_server(latency, time, server);
        server_block_.push_back(blocks_.size());
    }
    sets_.clear();
}

inline void layer_bound::read_server(const latency_model &latency, const layer_time &time,
                                     uint32_t server) {
    const moorage_demand &demand = latency.demand();
    size_t layer = 0, all_units = 0;
    for (uint32_t model = 0; model < demand.models; ++model)
        for (uint32_t model_layer = 0; model_layer < demand.host_model_layers[model];
             ++model_layer, ++layer) {
            if (wanted_[model] == 0) continue;
            block layer_block{
                server,
                demand.host_model_first[model] + model_layer * demand.host_model_experts[model],
                demand.host_model_experts[model],
                demand.host_expert_bytes[model] / unit_,
                {},
                {},
                {}};
            all_units += layer_block.units * layer_block.count;
            if (!sets_[server][layer].empty())
                count_sets(latency, time, layer_block, sets_[server][layer]);
            else if (!cover_)
                continue;
            layer_block.best.resize(layer_block.count + 1),
                layer_block.held.resize(layer_block.count + 1);
            blocks_.push_back(std::move(layer_block));
        }
    room_[server] = std::min(room_[server], all_units);
    counted_ = counted_ && room_[server] <= units_most;
}

// h(A) for all A.
inline void layer_bound::count_sets(const latency_model &latency, const layer_time &time,
                                    block &block, const std::vector<chosen_set> &sets) const {
    const uint32_t model = latency.model_of(block.first), entry = time.server_entry(block.server);
    const bool apart = time.serial() && time.returns_each();
    double call_s = infinity, once_s = time.absent_once_s(model, entry),
           each_s = time.absent_each_s(model, entry);
    if (!apart) once_s += each_s, each_s = 0;
    uint32_t devices = 0;
    for (uint32_t device = 0; device < time.devices(); ++device) {
        const uint32_t server = time.server_of(device);
        if (server == block.server) {
            call_s = std::min(call_s, time.call_s(device, model)), ++devices;
        } else if (time.reached(entry, server)) {
            const double back_s = time.back_s(model, entry, server);
            once_s = std::min(once_s, time.there_s(model, entry, server) +
                                          time.call_s(device, model) + (apart ? 0 : back_s));
            each_s = std::min(each_s, apart ? back_s : 0);
        }
    }
    std::array<std::array<double, experts_most + 1>, experts_most + 1> takes{};  // near, missing
    for (uint32_t near = 0; near <= block.count; ++near)
        for (uint32_t missing = 0; near + missing <= block.count; ++missing) {
            double near_s = 0;
            if (near > 0 && devices > 0)
                near_s = call_s * (time.serial() ? 1 : (near + devices - 1) / devices);
            const double far_s = missing > 0 ? once_s + missing * each_s : 0;
            takes[near][missing] = time.serial() ? near_s + far_s : std::max(near_s, far_s);
        }
    block.cost.assign(size_t{1} << block.count, 0);
    for (uint32_t held = 0; held < block.cost.size(); ++held)
        for (const chosen_set &set : sets)
            block.cost[held] += set.weight *
                                takes[static_cast<size_t>(std::popcount(set.mask & held))]
                                     [static_cast<size_t>(std::popcount(set.mask & ~held))];
}

// The least cost of the block, by the number of experts that it holds.
inline void layer_bound::price(block &block) {
    std::fill(block.best.begin(), block.best.end(), infinity);
    sum_.resize(std::max(sum_.size(), size_t{1} << block.count));
    sum_[0] = 0;
    for (uint32_t held = 0; held < 1u << block.count; ++held) {
        const auto lowest = static_cast<uint32_t>(std::countr_zero(held));
        if (held != 0) sum_[held] = sum_[held & (held - 1)] + lambda_[block.first + lowest];
        const double cost = (block.cost.empty() ? 0 : block.cost[held]) - sum_[held];
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
        for (uint32_t left = blocks_[index].held[count]; left != 0; left &= left - 1)
            ++copies_[blocks_[index].first + static_cast<uint32_t>(std::countr_zero(left))];
        room -= count * blocks_[index].units;
    }
    return least[rooms - 1];
}

inline double layer_bound::value(double target, uint32_t steps) {
    if (!counted_) return -infinity;
    std::vector<uint8_t> needed(lambda_.size(), 0);
    for (const block &block : blocks_)
        for (uint32_t expert = block.first; cover_ && expert < block.first + block.count; ++expert)
            needed[expert] = 1;
    double best = -infinity, length = 1;
    uint32_t since = 0;
    std::vector<double> best_lambda = lambda_;
    for (uint32_t step = 0; step <= steps && length > 1e-4; ++step) {
        std::fill(copies_.begin(), copies_.end(), 0u);
        double sum = std::accumulate(lambda_.begin(), lambda_.end(), 0.0);
        for (uint32_t server = 0; server + 1 < server_block_.size(); ++server)
            sum += knapsack(server);
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
