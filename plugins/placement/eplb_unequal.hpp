// eplb_unequal.hpp - the load balancer for unequal devices, and the repair of the published one.
//
// The published algorithm wants as many places on every GPU and equal GPUs. Here a device has the
// places that its memory allows and a speed: an expert gets copies as published, one more always
// for the largest load per copy, but no more than there are devices; the copies go heaviest first
// to the device that would be done first with it, (load + copy) / speed, and never twice to one.
// Groups go to nodes alike, as many as a node has room for. Places that no copy can take, and those
// that a second copy on the same device would waste, go to the expert with the largest load per
// copy among those that a device lacks.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

namespace moorage::eplb {

struct device {
    uint32_t node;
    uint32_t slots;
    double speed;  // any unit, above 0
    std::vector<uint32_t> experts;
    double load = 0;  // of the copies that it holds
};

// One layer. Requires: devices in order of nodes.
class unequal_layer {
public:
    unequal_layer(std::span<const float> weight, std::span<device> devices)
        : weight_(weight), devices_(devices), copies_(weight.size(), 0) {}

    // Groups to nodes, then within the nodes; false: the nodes have no room for whole groups.
    bool place_by_groups(uint32_t groups, uint32_t nodes) {
        const std::vector<uint32_t> node_of = group_nodes(groups, nodes);
        if (node_of.empty()) return false;
        const size_t size = weight_.size() / groups;
        size_t first = 0;
        for (uint32_t node = 0; node < nodes; ++node) {
            size_t last = first;
            while (last < devices_.size() && devices_[last].node == node) ++last;
            std::vector<uint32_t> experts;
            for (uint32_t expert = 0; expert < weight_.size(); ++expert)
                if (node_of[expert / size] == node) experts.push_back(expert);
            place(experts, devices_.subspan(first, last - first));
            first = last;
        }
        return true;
    }
    void place_all() {
        std::vector<uint32_t> experts(weight_.size());
        std::iota(experts.begin(), experts.end(), 0u);
        place(experts, devices_);
    }
    // A layer that another algorithm placed; `experts` may be in it more than once a device.
    void take(uint32_t device, std::span<const uint32_t> experts) {
        for (const uint32_t expert : experts)
            if (!holds(devices_[device], expert)) {
                devices_[device].experts.push_back(expert);
                ++copies_[expert];
            }
    }
    // Free places to experts of `scope` that their devices lack, one by one: the largest load per
    // copy, on the device that has least to do of those with a place for it.
    void refill(std::span<const uint32_t> scope, std::span<device> among) {
        std::vector<uint32_t> order(scope.begin(), scope.end());
        while (has_place(among)) {
            std::stable_sort(order.begin(), order.end(),
                             [&](uint32_t a, uint32_t b) { return per_copy(a) > per_copy(b); });
            update_loads(among);
            const bool done = std::none_of(order.begin(), order.end(), [&](uint32_t expert) {
                return copies_[expert] > 0 && weight_[expert] > 0 && add_copy(expert, among);
            });
            if (done) return;
        }
    }
    const std::vector<uint32_t> &copies() const { return copies_; }

private:
    static bool holds(const device &at, uint32_t expert) {
        return std::find(at.experts.begin(), at.experts.end(), expert) != at.experts.end();
    }
    static bool has_place(std::span<const device> among) {
        return std::any_of(among.begin(), among.end(),
                           [](const device &at) { return at.experts.size() < at.slots; });
    }
    double per_copy(uint32_t expert) const {
        return copies_[expert] > 0 ? double{weight_[expert]} / copies_[expert] : 0;
    }
    void update_loads(std::span<device> among) const {
        for (device &at : among) {
            at.load = 0;
            for (const uint32_t expert : at.experts) at.load += per_copy(expert);
        }
    }
    device *earliest(uint32_t expert, double load, std::span<device> among) const {
        device *best = nullptr;
        double soonest = 0;
        for (device &at : among) {
            if (at.experts.size() >= at.slots) continue;
            const double done = (at.load + load) / at.speed;
            if ((best != nullptr && done >= soonest) || holds(at, expert)) continue;
            best = &at;
            soonest = done;
        }
        return best;
    }
    bool add_copy(uint32_t expert, std::span<device> among) {
        const double load = double{weight_[expert]} / (copies_[expert] + 1);
        device *at = earliest(expert, load, among);
        if (at == nullptr) return false;
        at->experts.push_back(expert);
        ++copies_[expert];
        return true;
    }

    // The node of each group; empty where they do not fit.
    std::vector<uint32_t> group_nodes(uint32_t groups, uint32_t nodes) const {
        const size_t size = weight_.size() / groups;
        std::vector<double> speed(nodes, 0), load(nodes, 0), of_group(groups, 0);
        std::vector<size_t> room(nodes, 0);
        for (const device &at : devices_) {
            speed[at.node] += at.slots > 0 ? at.speed : 0;
            room[at.node] += at.slots;
        }
        for (size_t expert = 0; expert < weight_.size(); ++expert)
            of_group[expert / size] += weight_[expert];
        std::vector<uint32_t> order(groups), node_of(groups);
        std::iota(order.begin(), order.end(), 0u);
        std::stable_sort(order.begin(), order.end(),
                         [&](uint32_t a, uint32_t b) { return of_group[a] > of_group[b]; });
        for (const uint32_t group : order) {
            uint32_t best = nodes;
            for (uint32_t node = 0; node < nodes; ++node)
                if (room[node] >= size &&
                    (best == nodes || (load[node] + of_group[group]) / speed[node] <
                                          (load[best] + of_group[group]) / speed[best]))
                    best = node;
            if (best == nodes) return {};
            room[best] -= size;
            load[best] += of_group[group];
            node_of[group] = best;
        }
        return node_of;
    }

    // Experts in the order of their copies' loads; the heaviest alone where not all find a place.
    void place(std::span<const uint32_t> experts, std::span<device> among) {
        size_t places = 0, hosts = 0;
        for (const device &at : among) {
            places += std::min<size_t>(at.slots, experts.size());
            hosts += at.slots > 0;
        }
        std::vector<uint32_t> order(experts.begin(), experts.end());
        const auto heavier = [&](uint32_t a, uint32_t b) { return weight_[a] > weight_[b]; };
        std::stable_sort(order.begin(), order.end(), heavier);
        if (order.size() > places) order.resize(places);
        for (const uint32_t expert : order) copies_[expert] = 1;
        replicate(order, places, hosts);
        std::sort(order.begin(), order.end());
        std::stable_sort(order.begin(), order.end(),
                         [&](uint32_t a, uint32_t b) { return per_copy(a) > per_copy(b); });
        for (const uint32_t expert : order) {
            const double load = per_copy(expert);
            uint32_t put = 0;
            for (uint32_t copy = 0; copy < copies_[expert]; ++copy)
                if (device *at = earliest(expert, load, among); at != nullptr) {
                    at->experts.push_back(expert);
                    at->load += load;
                    ++put;
                }
            copies_[expert] = put;
        }
        refill(order, among);
    }
    void replicate(std::span<const uint32_t> experts, size_t places, size_t hosts) {
        for (size_t used = experts.size(); used < places; ++used) {
            uint32_t most = UINT32_MAX;
            for (const uint32_t expert : experts)
                if (copies_[expert] < hosts &&
                    (most == UINT32_MAX || per_copy(expert) > per_copy(most) ||
                     (per_copy(expert) == per_copy(most) && expert < most)))
                    most = expert;
            if (most == UINT32_MAX || !(weight_[most] > 0)) return;
            ++copies_[most];
        }
    }

    const std::span<const float> weight_;
    const std::span<device> devices_;
    std::vector<uint32_t> copies_;
};

}  // namespace moorage::eplb
