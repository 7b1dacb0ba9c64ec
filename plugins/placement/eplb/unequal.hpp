// unequal.hpp - the load balancer for unequal devices, and for incomplete published plans.
//
// The published algorithm wants as many places on every GPU and equal GPUs. Here a device has as
// many places as its memory allows, and a speed. An expert gets copies as published: always one
// more for the largest load per copy, but at most as many as there are devices. The copies go
// heaviest first to the device that would be done first with them, (load + copy) / speed. No device
// gets two. Groups go to nodes in the same way, as many as a node has room for. If all places are
// filled like this, a slow device has as much to do as a fast one with as many places. So slow
// devices give up copies while that brings loads nearer to speeds. The other copies of the expert
// take over their load. Free places go to light experts that do not raise the longest time again.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
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

// One layer. Requires: devices in order of nodes, without experts.
class unequal_layer {
public:
    unequal_layer(std::span<const float> weight, std::span<device> devices)
        : weight_(weight),
          devices_(devices),
          copies_(weight.size(), 0),
          held_(weight.size() * devices.size(), 0),
          holders_(weight.size()) {
        for (device &device : devices_) {
            device.load = 0;
            slowness_.push_back(1 / device.speed);
        }
    }

    // Groups to nodes, then within the nodes. Returns false if the nodes have no room for whole
    // groups.
    bool place_by_groups(uint32_t groups, uint32_t nodes) {
        const std::vector<uint32_t> node_of = group_nodes(groups, nodes);
        if (node_of.empty()) return false;
        const size_t size = weight_.size() / groups;
        uint32_t first = 0;
        for (uint32_t node = 0; node < nodes; ++node) {
            uint32_t last = first;
            while (last < devices_.size() && devices_[last].node == node) ++last;
            std::vector<uint32_t> experts;
            for (uint32_t expert = 0; expert < weight_.size(); ++expert)
                if (node_of[expert / size] == node) experts.push_back(expert);
            place(experts, first, last);
            first = last;
        }
        return true;
    }
    void place_all() {
        std::vector<uint32_t> experts(weight_.size());
        std::iota(experts.begin(), experts.end(), 0u);
        place(experts, 0, static_cast<uint32_t>(devices_.size()));
    }
    // Takes a layer that another algorithm placed. `experts` may contain one more than once.
    void take(uint32_t device, std::span<const uint32_t> experts) {
        for (const uint32_t expert : experts)
            if (!held(expert, device)) add(expert, device);
    }
    // Fills free places of [first, last) one by one. Each goes to the largest load per copy of
    // `experts`. The device is the one that is done first with it, among those that lack it and
    // then take at most `limit`.
    void refill(std::span<const uint32_t> experts, uint32_t first, uint32_t last,
                double limit = std::numeric_limits<double>::infinity()) {
        std::vector<uint32_t> order;
        for (const uint32_t expert : experts)
            if (copies_[expert] > 0 && weight_[expert] > 0) order.push_back(expert);
        const auto lighter = [&](uint32_t a, uint32_t b) {
            return share(a) != share(b) ? share(a) < share(b) : a > b;
        };
        std::make_heap(order.begin(), order.end(), lighter);
        while (!order.empty() && has_place(first, last)) {
            std::pop_heap(order.begin(), order.end(), lighter);
            const uint32_t expert = order.back();
            const double copy_load = double{weight_[expert]} / (copies_[expert] + 1);
            const uint32_t device = earliest(expert, copy_load, first, last);
            if (device == last ||
                (devices_[device].load + copy_load) / devices_[device].speed > limit) {
                order.pop_back();  // it will not fit later: loads of others only fall by its own
                continue;
            }
            add(expert, device);
            std::push_heap(order.begin(), order.end(), lighter);
        }
    }

private:
    bool held(uint32_t expert, uint32_t device) const {
        return held_[size_t{expert} * devices_.size() + device] != 0;
    }
    double share(uint32_t expert) const {
        return copies_[expert] > 0 ? double{weight_[expert]} / copies_[expert] : 0;
    }
    bool has_place(uint32_t first, uint32_t last) const {
        return std::any_of(
            devices_.begin() + first, devices_.begin() + last,
            [](const device &device) { return device.experts.size() < device.slots; });
    }
    void hold(uint32_t expert, uint32_t device) {
        held_[size_t{expert} * devices_.size() + device] = 1;
        holders_[expert].push_back(device);
        devices_[device].experts.push_back(expert);
    }
    // One copy more or less. All holders of the expert share its load anew.
    void change_copies(uint32_t expert, uint32_t copies) {
        const double old_share = share(expert);
        copies_[expert] = copies;
        const double change = share(expert) - old_share;
        for (const uint32_t device : holders_[expert]) devices_[device].load += change;
    }
    void add(uint32_t expert, uint32_t device) {
        change_copies(expert, copies_[expert] + 1);
        hold(expert, device);
        devices_[device].load += share(expert);
    }
    void remove(uint32_t expert, uint32_t device) {
        devices_[device].load -= share(expert);
        held_[size_t{expert} * devices_.size() + device] = 0;
        std::erase(devices_[device].experts, expert);
        std::erase(holders_[expert], device);
        change_copies(expert, copies_[expert] - 1);
    }
    // The device of [first, last) that is done first with the extra load. It must have a place and
    // lack the expert.
    uint32_t earliest(uint32_t expert, double load, uint32_t first, uint32_t last) const {
        uint32_t best = last;
        double soonest = 0;
        for (uint32_t index = first; index < last; ++index) {
            const device &device = devices_[index];
            if (device.experts.size() >= device.slots || held(expert, index)) continue;
            const double done = (device.load + load) / device.speed;
            if (best != last && done >= soonest) continue;
            best = index;
            soonest = done;
        }
        return best;
    }

    // The node of each group. Empty if they do not fit.
    std::vector<uint32_t> group_nodes(uint32_t groups, uint32_t nodes) const {
        const size_t size = weight_.size() / groups;
        std::vector<double> speed(nodes, 0), load(nodes, 0), group_load(groups, 0);
        std::vector<size_t> room(nodes, 0);
        for (const device &device : devices_) {
            speed[device.node] += device.slots > 0 ? device.speed : 0;
            room[device.node] += device.slots;
        }
        for (size_t expert = 0; expert < weight_.size(); ++expert)
            group_load[expert / size] += weight_[expert];
        std::vector<uint32_t> order(groups), node_of(groups);
        std::iota(order.begin(), order.end(), 0u);
        std::stable_sort(order.begin(), order.end(),
                         [&](uint32_t a, uint32_t b) { return group_load[a] > group_load[b]; });
        for (const uint32_t group : order) {
            uint32_t best = nodes;
            for (uint32_t node = 0; node < nodes; ++node)
                if (room[node] >= size &&
                    (best == nodes || (load[node] + group_load[group]) / speed[node] <
                                          (load[best] + group_load[group]) / speed[best]))
                    best = node;
            if (best == nodes) return {};
            room[best] -= size;
            load[best] += group_load[group];
            node_of[group] = best;
        }
        return node_of;
    }

    // Places all on the devices [first, last). If not all find a place, only the heaviest experts.
    void place(std::span<const uint32_t> experts, uint32_t first, uint32_t last) {
        size_t places = 0, hosts = 0;
        for (uint32_t device = first; device < last; ++device) {
            places += std::min<size_t>(devices_[device].slots, experts.size());
            hosts += devices_[device].slots > 0;
        }
        std::vector<uint32_t> order(experts.begin(), experts.end());
        std::stable_sort(order.begin(), order.end(),
                         [&](uint32_t a, uint32_t b) { return weight_[a] > weight_[b]; });
        if (order.size() > places) order.resize(places);
        std::sort(order.begin(), order.end());
        pack(order, replicate(order, places, hosts), first, last);
        refill(order, first, last);
        if (same_speeds(first, last)) return;
        relieve(first, last);
        refill(order, first, last, longest(first, last));
    }
    std::vector<uint32_t> replicate(std::span<const uint32_t> experts, size_t places,
                                    size_t hosts) const {
        std::vector<uint32_t> count(experts.size(), 1), heap;
        const auto copy_load = [&](uint32_t i) { return double{weight_[experts[i]]} / count[i]; };
        const auto lighter = [&](uint32_t a, uint32_t b) {
            return copy_load(a) != copy_load(b) ? copy_load(a) < copy_load(b) : a > b;
        };
        for (uint32_t i = 0; i < experts.size(); ++i)
            if (weight_[experts[i]] > 0 && hosts > 1) heap.push_back(i);
        std::make_heap(heap.begin(), heap.end(), lighter);
        for (size_t used = experts.size(); used < places && !heap.empty(); ++used) {
            std::pop_heap(heap.begin(), heap.end(), lighter);
            if (++count[heap.back()] == hosts)
                heap.pop_back();
            else
                std::push_heap(heap.begin(), heap.end(), lighter);
        }
        return count;
    }
    // Packs copies by their loads, heaviest first. A copy without a device is left out, but never
    // the first of an expert: while some are to be placed, some place is free.
    void pack(std::span<const uint32_t> experts, std::span<const uint32_t> count, uint32_t first,
              uint32_t last) {
        std::vector<uint32_t> order(experts.size());
        std::iota(order.begin(), order.end(), 0u);
        const auto copy_load = [&](uint32_t i) { return double{weight_[experts[i]]} / count[i]; };
        std::stable_sort(order.begin(), order.end(),
                         [&](uint32_t a, uint32_t b) { return copy_load(a) > copy_load(b); });
        for (const uint32_t i : order)
            for (uint32_t copy = 0; copy < count[i]; ++copy) {
                const uint32_t device = earliest(experts[i], copy_load(i), first, last);
                if (device == last) break;
                hold(experts[i], device);
                devices_[device].load += copy_load(i);
                ++copies_[experts[i]];
            }
        for (uint32_t device = first; device < last; ++device) {  // with the copies placed so far
            devices_[device].load = 0;
            for (const uint32_t expert : devices_[device].experts)
                devices_[device].load += share(expert);
        }
    }

    double time(uint32_t device) const { return devices_[device].load / devices_[device].speed; }
    double longest(uint32_t first, uint32_t last) const {
        double most = 0;
        for (uint32_t device = first; device < last; ++device) most = std::max(most, time(device));
        return most;
    }
    // Removes copies, from the slowest devices first. Each time it takes the one that lowers the
    // sum of load^2 / speed most. That sum is least if loads are proportional to speeds.
    void relieve(uint32_t first, uint32_t last) {
        std::vector<uint32_t> open(last - first);
        std::iota(open.begin(), open.end(), first);
        while (!open.empty()) {
            const auto slow =
                std::max_element(open.begin(), open.end(),
                                 [&](uint32_t a, uint32_t b) { return time(a) < time(b); });
            uint32_t best = UINT32_MAX;
            double least = 0;
            for (const uint32_t expert : devices_[*slow].experts) {
                if (copies_[expert] < 2) continue;
                const double change = change_without(expert, *slow);
                if (change >= least) continue;
                best = expert;
                least = change;
            }
            if (best != UINT32_MAX)
                remove(best, *slow);
            else
                open.erase(slow);
        }
    }
    // Change of the sum if the device gave the expert up.
    double change_without(uint32_t expert, uint32_t slow) const {
        const double lost = share(expert);
        const double gained = double{weight_[expert]} / (copies_[expert] - 1) - lost;
        double slowness = 0, times = 0;  // for the other holders
        for (const uint32_t device : holders_[expert]) {
            if (device == slow) continue;
            slowness += slowness_[device];
            times += devices_[device].load * slowness_[device];
        }
        return lost * (lost - 2 * devices_[slow].load) * slowness_[slow] +
               gained * (gained * slowness + 2 * times);
    }
    bool same_speeds(uint32_t first, uint32_t last) const {
        return std::all_of(
            devices_.begin() + first, devices_.begin() + last,
            [&](const device &device) { return device.speed == devices_[first].speed; });
    }

    const std::span<const float> weight_;
    const std::span<device> devices_;
    std::vector<uint32_t> copies_;
    std::vector<uint8_t> held_;                   // [experts, devices]
    std::vector<std::vector<uint32_t>> holders_;  // of each expert
    std::vector<double> slowness_;                // of each device, 1 / speed
};

}  // namespace moorage::eplb
