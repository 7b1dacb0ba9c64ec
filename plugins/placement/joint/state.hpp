// state.hpp - a placement, its cost and the cost of a change, for the joint policy.
//
// The policy minimises this cost, in seconds a token:
//
//   latency_weight * latency (moorage/latency.hpp, without the part that no placement changes)
//   + remote_s * expert calls of a token that neither its home nor that home's server serves,
//     and over_s for every such call above remote_max
//   + load_weight * waiting: sum over devices and links of r^2 / (1 - r) over the tokens per
//     second, which is r / (1 - r) services of an M/M/1 queue for every call; r is the
//     utilisation if each call goes to the holder that is nearest for it alone. From r = 0.9 on a
//     straight line.
//   + the cost of copies that were not there before
//
// If tokens pass in batches, the latency of a token is its part of a pass: its time alone over the
// batch, and what the other tokens add (moorage/batch.hpp). A layer is computed again whenever one
// of its holders changes.
//
// A set of experts costs the same whenever its experts have the same holders. So times of sets are
// looked up. The devices that serve an expert, seen from a server, are a pattern. Patterns have
// random 64-bit codes, and a set's key is their sum. A change of one expert changes the key by a
// difference. Two sets of holders share a key with a probability of 2^-64. An expert is on a server
// at most once. With more than 8 servers only the 4 nearest holders of an expert count until
// count_all(). A set may then seem to take longer than it does, never less.
#pragma once

#include <unordered_map>

#include "time.hpp"

namespace moorage::joint {

struct cost_weights {
    double latency = 1;
    double remote_s = 0;
    double load = 0;
    double remote_max = infinity, over_s = 0;
};

class pattern_table {
public:
    uint32_t find(uint32_t context, holders devices) {
        uint64_t hash = mix(context + 1);
        for (const uint32_t device : devices) hash = mix(hash ^ (device + 1));
        for (;; ++hash) {
            const auto [position, fresh] =
                ids_.try_emplace(hash, static_cast<uint32_t>(patterns_.size()));
            if (fresh) {
                patterns_.push_back({pool_.size(), context, static_cast<uint32_t>(devices.size()),
                                     mix(hash + 0x9e3779b97f4a7c15ull)});
                pool_.insert(pool_.end(), devices.begin(), devices.end());
                return position->second;
            }
            const pattern &pattern = patterns_[position->second];
            if (pattern.context == context &&
                std::ranges::equal(devices_of(position->second), devices))
                return position->second;
        }
    }
    holders devices_of(uint32_t id) const {
        return {pool_.data() + patterns_[id].first, patterns_[id].count};
    }
    uint64_t code(uint32_t id) const { return patterns_[id].code; }
    // splitmix64's last step.
    static uint64_t mix(uint64_t bits) {
        bits = (bits ^ bits >> 30) * 0xbf58476d1ce4e5b9ull;
        bits = (bits ^ bits >> 27) * 0x94d049bb133111ebull;
        return bits ^ bits >> 31;
    }

private:
    struct pattern {
        size_t first;
        uint32_t context, count;
        uint64_t code;
    };
    std::vector<pattern> patterns_;
    std::vector<uint32_t> pool_;
    std::unordered_map<uint64_t, uint32_t> ids_;  // only looked up, its order is never used
};

class state {
public:
    // The placement is empty. `current`: [experts, devices], copies that cost nothing to keep.
    // `added_s[device]` is the cost of a byte elsewhere. With `stride` above 1, one set in `stride`
    // stands for all.
    state(const latency_model &latency, const layer_time &time, const cost_weights &weights,
          uint32_t stride = 1);
    void limit_remote(double remote_max, double over_s);
    void set_current(std::span<const moorage_copy> current, std::span<const double> added_s);

    const latency_model &latency() const { return latency_; }
    const layer_time &time() const { return time_; }
    uint32_t servers() const { return servers_; }
    uint32_t experts() const { return experts_; }
    uint64_t bytes(uint32_t expert) const { return bytes_[latency_.model_of(expert)]; }
    // The device of the expert on the server, or none.
    uint32_t device_at(uint32_t expert, uint32_t server) const {
        return placement_[size_t{expert} * servers_ + server];
    }
    const std::vector<uint32_t> &placement() const { return placement_; }
    uint32_t copies(uint32_t expert) const { return copies_[expert]; }
    int64_t free(uint32_t device) const { return free_[device]; }
    // Sum of the costs so far, with the rounding of all changes. settle() computes it anew.
    double total() const { return total_; }
    void settle();

    // Figures of the placement for a token: the latency that depends on it, and remote calls. For a
    // token alone, not in a batch; bounds are of this.
    double latency_s() const;
    bool batched() const { return batches_.any(); }
    double remote_calls() const;

    // The cost of putting the expert on `device` of `server`, or of taking it from there (none).
    double change_s(uint32_t expert, uint32_t server, uint32_t device);
    // The same for every server whose device[server] is not none. Such a server lacks the expert.
    void changes_s(uint32_t expert, std::span<const uint32_t> device, std::span<double> change_s);
    double put(uint32_t expert, uint32_t server, uint32_t device);
    void restore(const std::vector<uint32_t> &placement);
    void clear() { restore(std::vector<uint32_t>(placement_.size(), none)); }
    // Between this and the end, put() accounts for memory only and rollback() does not undo it.
    void begin_bulk() { in_bulk_ = true, settled_ = false; }
    // clear() and begin_bulk(), without computing the results of an empty placement in between.
    void begin_empty();
    void end_bulk();
    void count_all();

    // Changes after a mark can be taken back.
    size_t mark() const { return journal_.size(); }
    void rollback(size_t mark);
    void forget() { journal_.clear(); }

    // Steps of evaluation so far; limits count these.
    uint64_t work() const { return work_; }
    // Adds steps that were taken elsewhere for the same plan.
    void add_work(uint64_t steps) { work_ += steps; }
    // Steps to compute a placement's cost anew: once to empty it and once to look at all.
    uint64_t evaluation() const { return 2 * refresh_work(); }
    // About the steps to ask for the change of every expert on every server.
    uint64_t sweep() const {
        return servers_ * (use_.size() + uint64_t{experts_} * (4 + entries_ / 8));
    }
    uint64_t uses() const { return use_.size(); }
    // Expected calls of the expert by homes of the server, per token.
    double calls(uint32_t expert, uint32_t server) const {
        const uint32_t entry = time_.server_entry(server);
        return entry == none ? 0 : calls_[size_t{expert} * entries_ + entry];
    }

private:
    struct set {
        uint64_t key;
        double value_s, weight;
        uint32_t first, count;  // in members_
        uint32_t context;
    };
    struct remembered_time {
        uint64_t key = 0;
        double value_s = 0;
    };
    struct placement_change {
        uint32_t expert, server, device;
    };

    class holder_view;
    void read_layers();
    void read_sets(uint32_t stride);
    double batch(uint32_t entry) const { return batches_.any() ? batches_.batch(entry) : 1; }
    // The time that batches add, seen from the entry, in the expert's layer after the change.
    double extra_s(uint32_t expert, uint32_t entry, uint32_t server, uint32_t device);
    void refresh();
    uint64_t refresh_work() const {
        return use_.size() + (extra_.empty() ? 0 : uint64_t{experts_} * entries_);
    }
    void read_calls();
    size_t pair_index(uint32_t expert, uint32_t entry) const {
        return size_t{expert} * entries_ + entry;
    }
    uint32_t device_with_change(uint32_t expert, uint32_t server, uint32_t changed,
                                uint32_t device) const {
        return server == changed ? device : device_at(expert, server);
    }
    bool nearer(uint32_t model, uint32_t entry, uint32_t device, uint32_t reference) const {
        const double device_s = time_.alone_s(model, entry, device),
                     reference_s = time_.alone_s(model, entry, reference);
        return device_s != reference_s ? device_s < reference_s : device < reference;
    }
    // Calls `call(server, device)` for all holders of the expert, with `device` (or none) on
    // `server`.
    template <class Each>
    void each_holder(uint32_t expert, uint32_t server, uint32_t device, Each call) const {
        const size_t row = size_t{expert} * server_words_;
        for (uint32_t word = 0; word < server_words_; ++word) {
            uint64_t left = holders_[row + word];
            if (server / 64 == word) {
                const uint64_t bit = uint64_t{1} << (server % 64);
                left = device == none ? left & ~bit : left | bit;
            }
            for (; left != 0; left &= left - 1) {
                const uint32_t holder_server =
                    word * 64 + static_cast<uint32_t>(std::countr_zero(left));
                call(holder_server, device_with_change(expert, holder_server, server, device));
            }
        }
    }
    // Sets where the expert is, without the values that follow.
    void set_at(uint32_t expert, uint32_t server, uint32_t device) {
        const uint64_t bit = uint64_t{1} << (server % 64);
        uint64_t &word = holders_[size_t{expert} * server_words_ + server / 64];
        word = device == none ? word & ~bit : word | bit;
        placement_[size_t{expert} * servers_ + server] = device;
    }
    void set_serving_device(uint32_t expert, uint32_t entry, uint32_t device) {
        serving_[pair_index(expert, entry)] = device;
        serving_rank_[pair_index(expert, entry)] =
            time_.rank(latency_.model_of(expert), entry, device);
    }
    // Whether an entry's costs follow from the nearest holder alone.
    bool nearest_decides() const { return sets_.empty() && extra_.empty(); }
    // Calls `call(entry)`, ascending, for all entries that `device` (or none) on `server` serves
    // better, or as well with `equal`, or that the server serves now. These are few
    // of hundreds of entries. Calls it for all entries if sets or batches count, because the
    // nearest holder then does not decide.
    template <class Each>
    void each_touched(uint32_t expert, uint32_t server, uint32_t device, bool equal,
                      Each call) const;
    uint32_t serving_device(uint32_t expert, uint32_t entry, uint32_t server,
                            uint32_t device) const;
    uint32_t nearest(uint32_t expert, uint32_t entry, uint32_t server, uint32_t device) const;
    uint32_t pattern_with(uint32_t expert, uint32_t entry, uint32_t server, uint32_t device);
    bool seen_from(uint32_t expert, uint32_t entry, uint32_t server) const {
        const uint32_t own_server = time_.entry_server(entry);
        return own_server == server ||
               (device_at(expert, own_server) == none && time_.reached(entry, server));
    }
    double alone_cost(size_t pair, uint32_t model, uint32_t entry, uint32_t device) const {
        return weights_.latency * single_[pair] * time_.alone_s(model, entry, device);
    }
    double remote_calls_of(size_t pair, uint32_t entry, uint32_t device) const {
        const bool near = device != none && time_.server_of(device) == time_.entry_server(entry);
        return near ? 0 : calls_[pair];
    }
    double remote_cost(double calls) const {
        return weights_.remote_s * calls +
               weights_.over_s * std::max(0.0, calls - weights_.remote_max);
    }
    double copy_cost(uint32_t expert, uint32_t device) const {
        if (device == none || added_s_.empty() ||
            current_[size_t{expert} * added_s_.size() + device] != 0)
            return 0;
        return added_s_[device] * static_cast<double>(bytes(expert));
    }
    double set_s(const set &set, uint64_t key, uint32_t expert, uint32_t pattern);
    double load_change(uint32_t expert, uint32_t server, uint32_t device, bool keep);
    template <class Each>
    void visit_load(uint32_t expert, uint32_t entry, uint32_t device, Each visit) const;
    static double waiting(double utilisation) {
        if (utilisation >= 0.9) return 8.1 + 99 * (utilisation - 0.9);
        return utilisation * utilisation / (1 - utilisation);
    }

    const latency_model &latency_;
    const layer_time &time_;
    const batch_model batches_;
    cost_weights weights_;
    const uint32_t servers_, experts_, entries_, server_words_;
    const std::vector<uint64_t> bytes_;  // [M]
    // Demand by (expert, entry).
    std::vector<double> single_;  // layers that miss it alone, per token
    std::vector<double> calls_;   // calls per token
    std::vector<set> sets_;
    std::vector<uint32_t> members_;
    std::vector<size_t> use_first_;  // [X * entries + 1] sets of an expert
    std::vector<uint32_t> use_;
    std::vector<uint32_t> layer_, layer_first_;  // [X], [layers]
    // The placement, and values that follow from it.
    std::vector<double> extra_;  // [layers, entries] time that batches add
    std::vector<uint32_t> placement_, copies_;
    std::vector<uint64_t> holders_;  // [X, server words]
    std::vector<int64_t> free_;
    std::vector<uint32_t> serving_;       // (expert, entry): the device that serves it alone
    std::vector<uint32_t> serving_rank_;  // its rank
    std::vector<uint32_t> pattern_;
    std::vector<double> load_;  // utilisation of devices, then of links
    double tokens_per_s_ = 0;
    std::vector<uint8_t> current_;
    std::vector<double> added_s_;
    double total_ = 0, remote_ = 0;
    bool in_bulk_ = false;
    bool settled_ = false;  // total_ is computed anew and nothing has changed since
    uint32_t far_max_;
    // Lookup.
    static constexpr uint32_t known_bits = 18;
    pattern_table patterns_;
    std::vector<remembered_time> known_;
    std::vector<placement_change> journal_;
    std::vector<std::pair<uint32_t, double>> load_changes_;
    uint64_t work_ = 0;
};

}  // namespace moorage::joint

#include "state.inl"
