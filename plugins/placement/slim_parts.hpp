// slim_parts.hpp - shared by SlimCaching's policies: facts, finishing a plan, knapsacks.
//
// "SlimCaching: Edge Caching of Mixture-of-Experts for Distributed Inference", Sections III-V. The
// paper's servers have one device. If a server has several, each is a knapsack of its own (slim_dp,
// slim_maxconv), or they are filled in order (the others). The paper also has a cloud. Without a
// cloud, an expert that no server holds counts as in the latency model (absent_s): more than any
// call takes, so gains lead to coverage. Experts that are still left get the room that is left. If
// there is none, the plan is refused.
//
// All policies state `objective_s` (seconds a token) and `saved_s` (F, Eq. 17: the difference from
// the empty placement). Results on the setting of Section VI-A with drawn statistics
// (tests/plugin/slim_instance.h; 4 servers of 5 GB, 20 users, processor time at 2.6 GHz,
// bin/placement_slim_perf):
//
//                  3,360 experts, K = 1   of a dual bound   3,872 experts, K = 1, 2, 4   latency
//   slim_greedy    2.8 ms                 99.7 %            31 ms                        146.2 ms
//   slim_dp        5.9 ms                 99.6 %            500 ms                       147.3 ms
//   slim_maxconv   1.3 ms                 99.6 %            44 ms                        147.3 ms
//   lfu            0.9 ms                 72.8 %            13 ms                        219.5 ms
//   random         0.4 ms                 59.9 %            8 ms                         267.5 ms
//   ushape         0.2 ms                 50.1 %            9 ms                         264.4 ms
//
// Greedy is a little better than the paper's method here as on most instances, not 16.7 % worse.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <numeric>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include <moorage/latency.hpp>
#include <moorage/moorage.hpp>

namespace moorage::slim {

// Smaller gains count as none (seconds a token). Sums of doubles leave such remainders.
inline constexpr double gain_min_s = 1e-12;

// The facts that a policy states about its last plan.
class fact_list {
public:
    void clear() { list_.clear(); }
    void add(const char *name, double value) { list_.push_back({name, value}); }
    uint32_t write(std::span<moorage_fact> target) const {
        const size_t count = std::min(target.size(), list_.size());
        std::copy_n(list_.begin(), count, target.begin());
        return static_cast<uint32_t>(count);
    }

private:
    std::vector<moorage_fact> list_;
};

// The common part of all policies beside plan(). Only facts outlive a plan.
class planner {
public:
    uint32_t facts(std::span<moorage_fact> target) { return facts_.write(target); }

protected:
    fact_list facts_;
};

// The common part of those that solve one server after another as a knapsack of up to `units_max`
// steps.
class knapsack_planner : public planner {
public:
    explicit knapsack_planner(const moorage::setup &setup)
        : units_max_(static_cast<uint64_t>(setup.integer("units_max"))) {}

protected:
    static constexpr moorage::param units_parameter(int64_t most) {
        return moorage::integer(
            "units_max", 1 << 17, 64, most,
            "memory of a device in steps of the knapsack; where sizes have no common divisor that "
            "keeps within it they are rounded up to a coarser one, and the optimum is not exact");
    }
    const uint64_t units_max_;
};

inline bool wanted(const moorage_demand &demand, uint32_t model) {
    for (uint32_t h = 0; h < demand.homes; ++h)
        if (demand.host_home_model[size_t{h} * demand.models + model] > 0) return true;
    return false;
}

// Without a cloud: places a copy of every expert that has none, if there is room.
inline void cover_rest(const char *policy, latency_model &model, device_room &room) {
    const moorage_demand &demand = model.demand();
    const uint32_t servers = model.cluster().servers;
    for (uint32_t m = 0; m < demand.models; ++m) {
        if (!wanted(demand, m)) continue;
        for (uint32_t x = demand.host_model_first[m]; x < demand.host_model_first[m + 1]; ++x) {
            bool held = false;
            uint32_t device = latency_model::none;
            for (uint32_t n = 0; n < servers && !held; ++n) {
                held = model.holds(x, n);
                if (device == latency_model::none) device = room.find(x, n);
            }
            if (held) continue;
            if (device == latency_model::none)
                throw std::invalid_argument(
                    std::string(policy) + ": expert " +
                    std::to_string(x - demand.host_model_first[m]) + " of model " +
                    std::to_string(m) +
                    " has no copy, the devices are full and there is no cloud to compute it; "
                    "SlimCaching assumes a cloud: add [cluster.cloud], more expert memory, or use "
                    "a policy that covers every expert, such as prism");
            model.add(x, device);
            room.take(x, device);
        }
    }
}

// Completes the plan, returns it and states its value.
inline void finish(const char *policy, latency_model &model, device_room &room, copies &copies,
                   fact_list &facts) {
    if (!model.has_cloud()) cover_rest(policy, model, room);
    for (const moorage_copy &copy : model.copies()) copies.push(copy.expert, copy.device);
    const double token_s = model.token_s();
    facts.add("objective_s", token_s);
    facts.add("saved_s", model.empty_s() - token_s);
}

// One expert as a knapsack's item: `units` of memory, `value` in seconds a token.
struct item {
    uint32_t expert;
    uint32_t units;
    double value;
};

// A knapsack of a device: room in units of `unit_bytes`. Exact if the unit divides every size,
// which is the greatest common divisor. If that gives more than `units_max` units, the unit is
// coarser and sizes are rounded up.
struct knapsack {
    std::vector<item> items;  // by expert, ascending
    uint32_t units = 0;
    uint64_t unit_bytes = 1;
    bool exact = true;
    double curvature = 0;
};

inline uint64_t unit_of(const latency_model &model, uint64_t room_bytes, uint64_t units_max,
                        bool &exact) {
    uint64_t unit = 0;
    const moorage_demand &demand = model.demand();
    for (uint32_t m = 0; m < demand.models; ++m)
        if (wanted(demand, m)) unit = std::gcd(unit, demand.host_expert_bytes[m]);
    unit = std::max<uint64_t>(unit, 1);
    exact = room_bytes / unit <= units_max;
    return exact ? unit : room_bytes / units_max + 1;
}

// Gains in the order of pack(), device after device. If sets are unknown, an expert's gain changes
// only with its own copies. So it is computed for many devices at once.
class successive_gains {
public:
    explicit successive_gains(const latency_model &model) : model_(model) {
        for (uint32_t x = 0; x < model.experts(); ++x) asked_.push_back(model.asked(x) ? 1 : 0);
        if (model.grouped()) return;
        block_.emplace_back(model);
        gains_.resize(model.experts());
    }
    bool asked(uint32_t x) const { return asked_[x] != 0; }
    // Requires: devices in ascending order.
    double gain(uint32_t x, uint32_t device) {
        if (block_.empty()) return model_.gain(x, device);
        if (const uint32_t block = device / width; block != current_block_) {
            for (uint32_t y = 0; y < model_.experts(); ++y)
                if (asked(y)) gains_[y] = block_[0].compute_gains(y, block);
            stale_.assign(model_.experts(), 0);
            current_block_ = block;
        }
        return stale_[x] != 0 ? model_.gain(x, device) : gains_[x][device % width];
    }
    // The expert has one more copy.
    void forget(uint32_t x) {
        if (!block_.empty()) stale_[x] = 1;
    }

private:
    static constexpr uint32_t width = latency_model::gain_block::width;
    const latency_model &model_;
    std::vector<uint8_t> asked_, stale_;            // [X]
    std::vector<latency_model::gain_block> block_;  // one, or none
    std::vector<latency_model::gain_block::gains> gains_;
    uint32_t current_block_ = latency_model::none;
};

// The knapsack of a device alone: what each expert would save there. Also the curvature of
// Definition 4: 1 - the least quotient of an expert's saving as the last one to its saving as the
// first one. Models with K = 1 are the modular part and have none.
inline knapsack pack(const latency_model &model, successive_gains &gains, uint32_t device,
                     uint64_t room_bytes, uint64_t units_max) {
    knapsack bag;
    bag.unit_bytes = unit_of(model, room_bytes, units_max, bag.exact);
    double least = 1;
    uint64_t units_sum = 0;
    for (uint32_t x = 0; x < model.experts(); ++x) {
        if (!gains.asked(x) || model.holds(x, model.server_of(device))) continue;
        const double gain = gains.gain(x, device);
        // If sets are unknown, an expert saves as much last as first. Only an expert that is worth
        // less than this share of its possible worth can lower the least.
        if (model.grouped() && model.demand().host_model_top_k[model.model_of(x)] > 1 &&
            gain < least * (1 + 1e-9) * model.gain_most(x)) {
            const double last = model.gain_last(x, device);
            if (last >= gain_min_s) least = std::min(least, gain / last);
        }
        if (gain < gain_min_s || model.bytes(x) > room_bytes) continue;
        const uint64_t units =
            std::max<uint64_t>(1, (model.bytes(x) + bag.unit_bytes - 1) / bag.unit_bytes);
        bag.items.push_back({x, static_cast<uint32_t>(units), gain});
        units_sum += units;
    }
    bag.units = static_cast<uint32_t>(std::min(units_sum, room_bytes / bag.unit_bytes));
    bag.curvature = 1 - least;
    return bag;
}

// Solves server after server, given the content of those before (Section V-B1). `solve` returns the
// items of a knapsack that it takes, as indices.
template <class Solve>
void place_successively(const char *policy, const moorage_cluster &cluster,
                        const moorage_demand &demand, uint64_t units_max, copies &copies,
                        fact_list &facts, Solve solve) {
    latency_model model(cluster, demand);
    device_room room(model);
    successive_gains gains(model);
    facts.clear();
    double curvature_most = 0, first_value = 0;
    uint64_t marginals = 0;
    bool exact = true;
    for (uint32_t d = 0; d < cluster.devices; ++d) {
        const knapsack bag = pack(model, gains, d, room.free(d), units_max);
        curvature_most = std::max(curvature_most, bag.curvature);
        marginals += model.experts();
        exact = exact && bag.exact;
        for (const uint32_t index : solve(bag)) {
            if (d == 0) first_value += bag.items[index].value;
            model.add(bag.items[index].expert, d);
            gains.forget(bag.items[index].expert);
            room.take(bag.items[index].expert, d);
        }
    }
    finish(policy, model, room, copies, facts);
    facts.add("curvature", curvature_most);
    const double share = std::max(0.0, 1 - curvature_most);
    facts.add("guarantee", !exact ? 0 : cluster.devices == 1 ? share : share / 2);
    facts.add("marginals", static_cast<double>(marginals));
    facts.add("first_knapsack_s", first_value);
}

}  // namespace moorage::slim
