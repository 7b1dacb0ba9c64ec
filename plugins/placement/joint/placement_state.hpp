// placement_state.hpp - a placement that moves change, take back and judge, for the joint policy.
//
// It keeps the cost (placement_cost.hpp) up to date from change to change.
#pragma once

#include <vector>

#include "placement_cost.hpp"

namespace moorage::joint {

class placement_state {
public:
    // The placement is empty. The model and the times are borrowed. With `stride` above 1, one set
    // in `stride` stands for all.
    placement_state(const latency_model &latency, const call_times &times,
                    const cost_weights &weights, uint32_t stride = 1)
        : latency_(latency),
          times_(times),
          servers_(latency.cluster().servers),
          cost_(latency, times, weights, stride) {
        settle();
    }

    const latency_model &latency() const { return latency_; }
    const call_times &times() const { return times_; }
    uint32_t servers() const { return servers_; }
    uint32_t experts() const { return latency_.experts(); }
    uint64_t bytes(uint32_t expert) const { return copies().bytes(expert); }
    // The device of the expert on the server, or none.
    uint32_t device_at(uint32_t expert, uint32_t server) const {
        return copies().device_at(expert, server);
    }
    const std::vector<uint32_t> &placement() const { return copies().placement(); }
    uint32_t copy_count(uint32_t expert) const { return copies().copy_count(expert); }
    // Below 0: the device holds more than it can.
    int64_t free_bytes(uint32_t device) const { return copies().free_bytes(device); }
    // Calls of the expert by homes of the server.
    double calls(uint32_t expert, uint32_t server) const {
        const uint32_t entry = times_.server_entry(server);
        return entry == none ? 0 : cost_.demand().calls(cost_.demand().pair_index(expert, entry));
    }
    // Whether tokens choose experts together. If so, the sum of the sets' sizes.
    bool has_sets() const { return cost_.sets().uses() != 0; }
    uint64_t set_uses() const { return cost_.sets().uses(); }
    bool has_batches() const { return cost_.demand().has_batches(); }

    // Sum of the costs so far, with the rounding of all changes. settle() computes it anew.
    double total() const { return total_; }
    void settle() {
        if (!settled_) total_ = cost_.total();
        settled_ = true;
    }
    // Figures of the placement for a token alone, not in a batch; bounds are of this. The latency
    // is the part that depends on the placement.
    double latency_s() const { return cost_.latency_s(); }
    double remote_calls() const { return cost_.remote_calls(); }

    // These change the cost. A remote call above `remote_max` costs `over_s`.
    void limit_remote(double remote_max, double over_s) {
        cost_.limit_remote(remote_max, over_s);
        settle_anew();
    }
    // `current`: copies that cost nothing to keep. `added_s`: [devices] cost of a byte elsewhere.
    void set_current(std::span<const moorage_copy> current, std::span<const double> added_s) {
        cost_.set_current(current, added_s);
        settle_anew();
    }
    // Counts all holders of a set's experts from now on (set_times.hpp).
    void count_all_holders() {
        if (!has_sets()) return;
        cost_.count_all_holders();
        settle_anew();
    }

    // The cost of putting the expert on `device` of `server`, or of taking it from there (none).
    double change_s(uint32_t expert, uint32_t server, uint32_t device) {
        return cost_.change_s({expert, server, device});
    }
    // The same for every server whose device[server] is not none. Such a server lacks the expert.
    void changes_s(uint32_t expert, std::span<const uint32_t> device, std::span<double> change_s) {
        cost_.changes_s(expert, device, change_s);
    }
    // Makes the change and returns its cost.
    double put(uint32_t expert, uint32_t server, uint32_t device) {
        const uint32_t old_device = device_at(expert, server);
        if (old_device == device) return 0;
        if (in_bulk_) {
            cost_.place({expert, server, device});
            return 0;
        }
        settled_ = false;
        const double change_s = cost_.apply({expert, server, device});
        journal_.push_back({expert, server, old_device});
        total_ += change_s;
        return change_s;
    }

    // Changes after a mark can be taken back.
    size_t mark() const { return journal_.size(); }
    void rollback(size_t mark) {
        while (journal_.size() > mark) {
            const copy_change former = journal_.back();
            put(former.expert, former.server, former.device);
            journal_.resize(journal_.size() - 2);
        }
    }
    void forget_changes() { journal_.clear(); }

    // Between these two, put() accounts for memory only and rollback() does not undo it.
    void begin_bulk() { in_bulk_ = true, settled_ = false; }
    void end_bulk() {
        in_bulk_ = settled_ = false;
        cost_.refresh();
        settle();
    }
    void restore(const std::vector<uint32_t> &placement) {
        size_t differences = 0;
        for (size_t index = 0; index < placement.size(); ++index)
            differences += this->placement()[index] != placement[index] ? 1 : 0;
        if (differences > few_changes) begin_bulk();
        for (uint32_t expert = 0; expert < experts(); ++expert)
            for (uint32_t server = 0; server < servers_; ++server) {
                const uint32_t device = placement[size_t{expert} * servers_ + server];
                if (device_at(expert, server) != device) put(expert, server, device);
            }
        if (differences > few_changes) end_bulk();
        forget_changes();
    }
    void clear() { restore(std::vector<uint32_t>(placement().size(), none)); }
    // clear() and begin_bulk(), without computing the results of an empty placement in between.
    // Counts the steps that clear() takes.
    void begin_empty() {
        const bool few = copies().count_all() <= few_changes;
        if (few) clear();
        begin_bulk();
        if (few) return;
        for (uint32_t expert = 0; expert < experts(); ++expert)
            copies().each_holder(unchanged(expert),
                                 [&](uint32_t server, uint32_t) { put(expert, server, none); });
        cost_.add_steps(cost_.refresh_steps());
        forget_changes();
    }

    // Steps of evaluation so far; limits count these.
    uint64_t steps() const { return cost_.steps(); }
    // Adds steps that were taken elsewhere for the same plan.
    void add_steps(uint64_t steps) { cost_.add_steps(steps); }
    // Steps to compute a placement's cost anew: once to empty it and once to look at all.
    uint64_t evaluation_steps() const { return 2 * cost_.refresh_steps(); }
    // About the steps to ask for the change of every expert on every server.
    uint64_t sweep_steps() const {
        return servers_ * (set_uses() + uint64_t{experts()} * cost_.change_steps());
    }

private:
    static constexpr size_t few_changes = 64;  // more are made in bulk

    const copy_table &copies() const { return cost_.copies(); }
    void settle_anew() {
        settled_ = false;
        settle();
    }

    const latency_model &latency_;
    const call_times &times_;
    const uint32_t servers_;
    placement_cost cost_;
    double total_ = 0;
    bool in_bulk_ = false;
    bool settled_ = false;              // total_ is computed anew and nothing has changed since
    std::vector<copy_change> journal_;  // the former devices
};

}  // namespace moorage::joint
