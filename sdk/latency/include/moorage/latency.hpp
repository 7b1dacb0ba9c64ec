// latency.hpp - the expected latency of a placement, for policies and for the host (Apache-2.0).
//
//   moorage::latency_model model(cluster, demand);       // nothing is placed yet
//   double saved = model.gain(expert, device);           // seconds a token, were it placed there
//   model.add(expert, device);
//   double worse = model.loss(expert, device);           // seconds a token, were it taken away
//   model.assign(copies);                                // a whole placement at once
//   moorage::latency_figures all = model.figures();      // per home, remote calls, local ratio
//
// One layer of one token (SlimCaching, Eq. 5-12). The home computes alone what it holds, if that is
// all (home_call_s). Otherwise it sends the token's hidden state to its server once and gets the
// outputs that it misses back: each on its own with MOORAGE_RETURNS_EACH, else their sum. An expert
// is looked for at the home's server first, then at the other servers, then in the cloud, even
// where a later stop were faster. A server that is called costs one message there, its computation
// and its returns; which of several holders serve is chosen so that the layer takes least.
//
//   MOORAGE_CALLS_SERIAL  times of all that are called add up; a server computes its experts at
//                         once, in the time of its slowest device (SlimCaching, Eq. 7, 9-11)
//   otherwise             the layer waits for the slowest of them; a device computes its experts
//                         one after another, devices work side by side (Prism, Eq. 1)
//   MOORAGE_LINKS_SHARED  without SERIAL: the layer waits for the slowest, and for the messages of
//                         the others, which the home's server sends or receives meanwhile
//
// A token passes alone: what batches add is in batch.hpp, queues are not part of the model. Only
// direct links count.
//
// Which sets of experts are chosen together is used where it is known (demand.calls) and there are
// at most 64 servers and 16 experts a set. Otherwise every chosen expert counts as a layer of its
// own: exact for top-1, else too much, but never wrong about which holder is nearest. Among several
// holders the best assignment is found exactly up to 8 experts; beyond, each goes to its nearest.
// Where links are shared, each goes to its nearest of the best set of up to 6 servers.
//
// Without a cloud an expert that no reachable server holds has no latency. It then counts as
// absent_s(): more than any call can take, so that gains stay finite and lead to coverage, and
// figures().absent says how many there are. Same arrays, same placement: same bits.
//
// A set takes as long whenever the same devices would serve its experts, so times of sets are
// remembered by that (latency_known.inl). Not for several threads at once, const functions neither.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "moorage/batch.hpp"
#include "moorage/placement.h"

namespace moorage {

// Of a placement under a demand. Means over homes are weighted by their tokens_per_s (equally where
// all are 0), which is 1/U of SlimCaching's Eq. 17 for equal users.
struct latency_figures {
    double token_s = 0;  // a token's time in all MoE layers, mean over homes
    double empty_s = 0;  // the same if no server held anything (T_max)
    double saved_s = 0;  // empty_s - token_s: SlimCaching's F
    // token_s where the tokens of a home's batch pass each layer together (batch.hpp); of batches
    // of one the same.
    double batch_token_s = 0;
    std::vector<double> home_token_s;      // [H]
    std::vector<double> home_local_ratio;  // [H] of expert calls; 1 where there are none
    double calls_per_s = 0;                // expert calls of all homes
    double remote_calls_per_s = 0;  // of these, by neither the home nor its server (Prism, Eq. 2)
    double local_ratio = 1;
    uint64_t absent = 0;  // experts asked for that some home cannot reach; 0 with a cloud
};

class latency_model {
public:
    static constexpr uint32_t none = 0xffffffffu;

    // Requires: both as placement.h says, and alive as long as the model.
    latency_model(const moorage_cluster &cluster, const moorage_demand &demand);

    // What is asked and of what.
    const moorage_cluster &cluster() const { return cluster_; }
    const moorage_demand &demand() const { return demand_; }
    uint32_t experts() const { return experts_; }
    uint32_t model_of(uint32_t expert) const { return expert_model_[expert]; }
    uint64_t bytes(uint32_t expert) const { return demand_.host_expert_bytes[model_of(expert)]; }
    uint32_t server_of(uint32_t device) const { return cluster_.host_device_server[device]; }
    // Devices of a server are [device_begin(server), device_begin(server + 1)).
    uint32_t device_begin(uint32_t server) const { return server_device_[server]; }
    bool has_cloud() const { return cluster_.host_cloud_s != nullptr; }
    double absent_s(uint32_t model) const { return absent_s_[model]; }
    // Whether a home ever chooses the expert without holding it.
    bool asked(uint32_t expert) const { return gain_most(expert) > 0; }
    // Whether sets chosen together count. Gains of experts that share no set do not depend on each
    // other.
    bool grouped() const { return grouped_; }
    // Before a copy of `expert` comes to a device of a server that has none: what that can add to
    // the gains of those chosen with it, set by set. Calls `each(other, servers, most_s)` for every
    // other expert whose gains can change; by no more than the sum of most_s does add() raise the
    // gain of a copy of `other` on a server n with bit n of `servers`, or on any where that is
    // all_servers. Requires: messages_dominate().
    static constexpr uint64_t all_servers = ~uint64_t{0};
    template <class Each>
    void for_raised(uint32_t expert, uint32_t device, Each each) const;
    // No copy of the expert can ever save more than this, whatever else is placed.
    double gain_most(uint32_t expert) const;
    // Bounds of gain() of a copy on each server, [N]; of those that have the expert, nothing.
    // Requires: messages_dominate().
    void gains_most(uint32_t expert, std::vector<double> &most_s) const;
    // gain() over the empty placement, without a walk over the sets, and so up to rounding.
    // Requires: messages_dominate().
    double gain_first(uint32_t expert, uint32_t device) const;
    // Whether no copy can cost anything and none saves more for another copy of the same expert
    // (submodular in each expert's copies): calls are serial, outputs return one by one, and no
    // computation is longer than a message, nor a server farther than the cloud.
    bool messages_dominate() const { return messages_dominate_; }
    // What token_s() is a sum of, for policies that keep account of it in their own way: what no
    // placement changes, layers by homes of a server that miss the expert alone, and sets that are
    // missed together: each(server of the homes, weight, numbers).
    double fixed_s() const { return constant_s_; }
    double single_weight(uint32_t expert, uint32_t server) const {
        const uint32_t entry = server_entry_[server];
        return entry == none ? 0 : single_weight_[size_t{expert} * entries_ + entry];
    }
    template <class Each>
    void for_sets(Each each) const;

    // The placement.
    void clear();
    void add(uint32_t expert, uint32_t device);  // no effect where it is there
    // add(), and `each(other, server, change_s)` of what it does, set by set, to the gains of the
    // experts chosen together with it: of a copy on the device that `target(other, server)` names,
    // none where the server has the other already or the gain is not asked for.
    template <class Target, class Each>
    void add_telling(uint32_t expert, uint32_t device, Target target, Each each);
    void remove(uint32_t expert, uint32_t device);  // no effect where it is not
    void assign(std::span<const moorage_copy> copies);
    bool holds(uint32_t expert, uint32_t server) const {
        return serving_[size_t{expert} * servers_ + server] != none;
    }
    bool has_copy(uint32_t expert, uint32_t device) const {
        return (copies_[size_t{expert} * device_words_ + device / 64] >> (device % 64) & 1) != 0;
    }
    std::vector<moorage_copy> copies() const;  // ascending by expert, then device

    // Seconds a token, mean over homes. Pure functions of the placement: no drift.
    double token_s() const;
    double empty_s() const { return empty_s_; }
    // What add() would take off token_s(), and what remove() would put on it; may be negative.
    double gain(uint32_t expert, uint32_t device) const;
    class gain_block;  // of one expert on many devices (latency_block.inl)
    double loss(uint32_t expert, uint32_t device) const;
    // The gain if the device's server held every other expert too: g(z | V \ z) of SlimCaching's
    // Definition 4.
    double gain_last(uint32_t expert, uint32_t device) const;
    latency_figures figures() const;

private:
    // A deviation from the placement: the experts of a set at positions in `mask` are at `server`
    // on `device`, or not there (none), or nowhere (both none).
    struct change {
        uint32_t server = none, device = none, mask = 0;
    };
    static uint64_t with_change(uint64_t holders, const change &with) {
        if (with.server == none) return 0;
        const uint64_t bit = uint64_t{1} << with.server;
        return with.device == none ? holders & ~bit : holders | bit;
    }
    // Time of an expert that is its layer's only missing one, and where it is found.
    enum : uint8_t { not_found, found_far, found_near };
    struct single {
        double seconds;
        uint8_t found;
    };
    // Experts of one layer that a home misses, with their holders.
    struct sought {
        sought(uint32_t of, uint32_t from, std::span<const uint32_t> set, const change &deviation)
            : model(of),
              entry(from),
              count(static_cast<uint32_t>(set.size())),
              experts(set.data()),
              with(deviation) {}
        uint32_t model, entry, count;
        const uint32_t *experts;
        change with;
        uint32_t found = 0;                // two bits an expert: not_found, found_far, found_near
        std::array<uint64_t, 16> holders;  // of the first `count`; not zeroed, this is the hot path
    };

    void read_timing();
    void read_trips(uint32_t model, uint32_t entry);
    void read_demand();
    void read_calls(uint32_t home, double weight, std::vector<uint32_t> &missing);
    // Homes are rows of what is asked for and columns of what follows from it: with many of both a
    // home is read by so many experts at a time, which stay in the processor's cache.
    static constexpr uint32_t block_experts = 64;
    bool held(uint32_t home, uint32_t expert) const {
        return demand_.host_home_holds &&
               demand_.host_home_holds[size_t{home} * experts_ + expert] != 0;
    }
    void read_constant(uint32_t home, double weight);
    void read_frequencies(uint32_t home, uint32_t begin, uint32_t end);
    void add_term(uint32_t entry, std::span<const uint32_t> missing, double weight);
    // The lower bit of each of `count` experts that is not found.
    static uint32_t nowhere_of(uint32_t found, size_t count) {
        return ~(found | found >> 1) & 0x55555555u >> (32 - 2 * count);
    }
    size_t term_slot(uint32_t entry, std::span<const uint32_t> missing) const;
    void grow_slots();
    std::span<const uint32_t> term_set(uint32_t term) const {
        return {term_experts_.data() + term_first_[term],
                term_first_[term + 1] - term_first_[term]};
    }
    void sort_terms();
    void index_terms();

    double call_s(uint32_t device, uint32_t model) const {
        return cluster_.host_device_call_s[size_t{device} * cluster_.models + model];
    }
    size_t pair(uint32_t model, uint32_t entry) const { return size_t{model} * entries_ + entry; }
    // A hidden state over a link of `rate` and latency; infinite where there is no link.
    static double message_s(double bytes, double rate, double latency_s) {
        if (rate <= 0) return std::numeric_limits<double>::infinity();
        return latency_s + bytes / rate;
    }
    double base_s(uint32_t home, uint32_t model, size_t missing) const;
    bool better(uint32_t device, uint32_t than, uint32_t model) const {
        return than == none || call_s(device, model) < call_s(than, model) ||
               (call_s(device, model) == call_s(than, model) && device < than);
    }
    uint32_t fastest_copy(uint32_t expert, uint32_t server, uint32_t except) const;

    single single_s(uint32_t expert, uint32_t entry, const change &with) const;
    void set_singles(uint32_t expert);
    double singles_difference(uint32_t expert, const change &with) const;
    double plain_difference(uint32_t term, uint32_t position, uint32_t server) const;
    double terms_difference(uint32_t expert, const change &with) const;
    double term_s(uint32_t term, const change &with) const;
    double layer_s(sought &of) const;
    double serial_s(const sought &of, std::span<const uint32_t> rest, uint64_t all) const;
    uint64_t worth_calling(const sought &of, std::span<const uint32_t> rest, uint64_t all) const;
    double added_s(const sought &of, std::span<const uint32_t> rest, uint64_t all) const;
    double forced_s(const sought &of, std::span<const uint32_t> rest, uint64_t all) const;
    double assigned_s(const sought &of, std::span<const uint32_t> rest, uint64_t all) const;
    double nearest_s(const sought &of, std::span<const uint32_t> rest, uint64_t allowed) const;
    double shared_s(const sought &of, std::span<const uint32_t> rest, uint64_t all) const;
    // Of a server's part, how long its messages keep the home's server from sending or receiving.
    double line_s(const sought &of, uint32_t server, size_t count) const;
    double server_s(const sought &of, uint32_t server, std::span<const uint32_t> served) const;
    double compute_s(const sought &of, uint32_t server, std::span<const uint32_t> served) const;
    uint32_t device_at(const sought &of, uint32_t position, uint32_t server) const {
        if (server == of.with.server && (of.with.mask >> position & 1) != 0) return of.with.device;
        return serving_[size_t{of.experts[position]} * servers_ + server];
    }
    void refresh(uint32_t expert);
    static uint64_t mixed(uint64_t x);
    void begin_known();
    uint64_t code_with(uint32_t expert, uint32_t entry, const change &with) const;
    double known_s(uint32_t term, uint64_t key, const change &with) const;
    void move_terms(uint32_t expert, bool at_once);
    template <class Target, class Each>
    void tell_partners(uint32_t expert, uint64_t entries, double sign, Target target,
                       Each each) const;
    struct home_sums {
        double token_s = 0, calls = 0, remote = 0;
    };
    void add_frequencies(uint32_t home, uint32_t begin, uint32_t end, home_sums &to) const;
    double home_s(uint32_t home) const;
    class holder_view;
    double batch_token_s(const batch_model &batches) const;

    moorage_cluster cluster_;
    moorage_demand demand_;
    uint32_t servers_, devices_, experts_, entries_ = 0;
    size_t server_words_, device_words_;
    bool serial_, each_, shared_, grouped_, messages_dominate_;
    std::vector<uint32_t> server_device_;  // [N + 1]
    std::vector<uint32_t> entry_server_;   // [entries] servers that some home enters by
    std::vector<uint32_t> server_entry_;   // [N]
    std::vector<uint32_t> expert_model_;   // [X]
    // Times by (model, entry): of messages to and from a server, alone with what a device adds.
    std::vector<double> there_s_, back_s_;            // [M, entries, N]
    std::vector<double> there_line_s_, back_line_s_;  // [M, entries, N] shared: without latency
    std::vector<double> call_fix_s_, call_return_s_;  // [M, entries, N] serial: once, an expert
    std::vector<double> alone_s_;                     // [M, G, entries]
    std::vector<double> last_once_s_, last_each_s_;   // [M, entries] the cloud, or absence
    std::vector<double> absent_s_;                    // [M]
    // [M, entries] the longest time of an expert alone: with the last resort, by a server.
    std::vector<double> trip_s_, far_s_;
    std::vector<uint64_t> reach_;   // [entries] servers linked both ways, where N <= 64
    std::vector<uint8_t> uniform_;  // [M] devices of each server are equally fast
    // Two or more experts of a layer that homes of an entry miss together: all that a walk over
    // such sets asks for, side by side.
    struct missed_set {
        uint64_t key = 0;  // of what serves it, see below
        double seconds = 0, weight = 0;
        uint32_t entry = 0, found = 0;
    };
    // Demand. Experts sought: [X, entries]. Sets: terms of two or more.
    double constant_s_ = 0, empty_s_ = 0;
    std::vector<double> home_weight_;                   // [H]
    std::vector<double> single_weight_, asked_weight_;  // alone; alone or in a set
    std::vector<uint64_t> term_first_{0};
    std::vector<uint32_t> term_experts_;
    std::vector<missed_set> terms_;
    std::vector<uint32_t> term_slots_;  // hash table of terms, while reading
    std::vector<uint64_t> use_first_;   // [X + 1] terms of an expert
    std::vector<uint32_t> use_term_, use_position_;
    // Placement, and what follows from it.
    std::vector<uint64_t> copies_;   // [X, device words]
    std::vector<uint64_t> holders_;  // [X, server words]
    std::vector<uint32_t> serving_;  // [X, N] fastest device with a copy
    std::vector<double> single_s_;   // [X, entries]
    std::vector<uint8_t> single_found_;
    // Times of sets by what serves their experts. A device has a random number, an expert seen from
    // an entry the sum over the devices that would serve it, a set the sum over its experts times a
    // random factor of the position: two that differ are alike with a chance of 2^-64.
    struct known {
        uint64_t key = 0;
        double seconds = 0;
    };
    std::vector<uint64_t> device_code_, place_code_;  // [G], [16]
    std::vector<uint64_t> code_;                      // [X, entries]
    mutable std::vector<known> known_;
    uint32_t known_shift_ = 0;
};

// Free bytes of the devices, filled in order: an expert goes to its server's first with room.
class device_room {
public:
    explicit device_room(const latency_model &model)
        : model_(&model),
          free_(model.cluster().host_device_bytes,
                model.cluster().host_device_bytes + model.cluster().devices) {}
    uint64_t free(uint32_t device) const { return free_[device]; }
    // First device of the server with room for the expert; none where there is none.
    uint32_t find(uint32_t expert, uint32_t server) const {
        for (uint32_t d = model_->device_begin(server); d < model_->device_begin(server + 1); ++d)
            if (free_[d] >= model_->bytes(expert)) return d;
        return latency_model::none;
    }
    void take(uint32_t expert, uint32_t device) {
        assert(free_[device] >= model_->bytes(expert));
        free_[device] -= model_->bytes(expert);
    }
    void give(uint32_t expert, uint32_t device) { free_[device] += model_->bytes(expert); }

private:
    const latency_model *model_;
    std::vector<uint64_t> free_;
};

}  // namespace moorage

#include "latency.inl"
