// latency.hpp - the expected latency of a placement, for policies and for the host (Apache-2.0).
//
//   moorage::latency_model model(cluster, demand);       // nothing is placed yet
//   double saved = model.gain(expert, device);           // seconds a token, were it placed there
//   model.add(expert, device);
//   double worse = model.loss(expert, device);           // seconds a token, were it taken away
//   model.assign(copies);                                // a whole placement at once
//   moorage::latency_figures all = model.figures();      // per home, remote calls, local ratio
//
// One layer of one token (SlimCaching, Eq. 5-12). If the home holds all chosen experts, it computes
// them alone (home_call_s). Otherwise it sends the token's hidden state to its server once. It gets
// the missing outputs back: one by one with MOORAGE_RETURNS_EACH, else their sum. The search for an
// expert goes to the home's server, then to the other servers, then to the cloud. It keeps this
// order even if a later stop is faster. A called server costs one message there, its computation
// and its returns. Among several holders the model chooses those for which the layer takes least.
//
//   MOORAGE_CALLS_SERIAL  the times of all calls add up; a server computes its experts at once, in
//                         the time of its slowest device (SlimCaching, Eq. 7, 9-11)
//   otherwise             the layer waits for the slowest call; a device computes its experts one
//                         after another, devices work side by side (Prism, Eq. 1)
//   MOORAGE_LINKS_SHARED  without SERIAL: the layer waits for the slowest call and for the messages
//                         of the others, which the home's server sends or receives meanwhile
//
// A token passes alone. batch.hpp adds the effect of batches. The model has no queues and uses
// direct links only.
//
// The model uses the sets of experts that tokens choose together if demand.calls gives them and
// there are at most 64 servers and 16 experts a set. Otherwise every chosen expert counts as its
// own layer. That is exact for top-1 and else too much, but the nearest holder is always right.
// Among several holders the best assignment is exact up to 8 experts. Beyond 8, each expert goes to
// its nearest holder. If links are shared, each expert goes to its nearest server in the best set
// of up to 6 servers.
//
// Without a cloud, an expert that no reachable server holds has no latency. It then counts as
// absent_s(), which is more than any call can take. So gains stay finite and lead to coverage.
// figures().absent counts such experts. Equal arrays and an equal placement give equal bits.
//
// A set takes the same time whenever the same devices serve its experts. So the model remembers
// times of sets by devices (latency_known.inl). Do not use it from several threads at once, not
// even const functions.
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

// Figures of a placement under a demand. Means over homes are weighted by their tokens_per_s, or
// equally if all are 0. For equal users this is 1/U of SlimCaching's Eq. 17.
struct latency_figures {
    double token_s = 0;  // a token's time in all MoE layers, mean over homes
    double empty_s = 0;  // the same if no server held anything (T_max)
    double saved_s = 0;  // empty_s - token_s: SlimCaching's F
    // token_s if the tokens of a home's batch pass each layer together (batch.hpp). Equal to
    // token_s for batches of one.
    double batch_token_s = 0;
    std::vector<double> home_token_s;      // [H]
    std::vector<double> home_local_ratio;  // [H] of expert calls; 1 if there are none
    double calls_per_s = 0;                // expert calls of all homes
    double remote_calls_per_s = 0;  // of these, those not served by the home or its server (Prism,
                                    // Eq. 2)
    double local_ratio = 1;
    uint64_t absent = 0;  // requested experts that some home cannot reach; 0 with a cloud
};

class latency_model {
public:
    static constexpr uint32_t none = 0xffffffffu;

    // Requires: both are as placement.h says and live as long as the model.
    latency_model(const moorage_cluster &cluster, const moorage_demand &demand);

    // The cluster and the demand of the model.
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
    // Whether sets chosen together count. The gains of experts that share no set are independent.
    bool grouped() const { return grouped_; }
    // Tells what a copy of `expert` on a device of a server without one can add to the gains of the
    // experts chosen with it, set by set. Calls `visit(other, servers, most_s)` for every other
    // expert whose gains can change. add() raises the gain of a copy of `other` on server n by at
    // most the sum of most_s over the calls in which `servers` has bit n or is all_servers.
    // Requires: messages_dominate().
    static constexpr uint64_t all_servers = ~uint64_t{0};
    template <class Each>
    void for_raised(uint32_t expert, uint32_t device, Each visit) const;
    // Upper bound of what a copy of the expert saves under any placement.
    double gain_most(uint32_t expert) const;
    // Bounds of gain() of a copy on each server, [N]. Values of servers that have the expert mean
    // nothing. Requires: messages_dominate().
    void gains_most(uint32_t expert, std::vector<double> &most_s) const;
    // gain() over the empty placement, without a walk over the sets, so equal up to rounding.
    // Requires: messages_dominate().
    double gain_first(uint32_t expert, uint32_t device) const;
    // Whether no copy can cost time, and no copy saves more because of another copy of the same
    // expert (submodular in each expert's copies). This holds if calls are serial, outputs return
    // one by one, no computation is longer than a message and no server is farther than the cloud.
    bool messages_dominate() const { return messages_dominate_; }
    // The terms of token_s(), for policies with their own accounts. fixed_s() is the part that no
    // placement changes. single_weight() covers layers in which homes of a server miss this expert
    // alone. for_sets() gives the sets that are missed together: visit(server of the homes, weight,
    // numbers).
    double fixed_s() const { return constant_s_; }
    double single_weight(uint32_t expert, uint32_t server) const {
        const uint32_t entry = server_entry_[server];
        return entry == none ? 0 : single_weight_[size_t{expert} * entries_ + entry];
    }
    template <class Each>
    void for_sets(Each visit) const;

    // The placement.
    void clear();
    void add(uint32_t expert, uint32_t device);  // no effect if it is there
    // Like add(). Also calls `visit(other, server, change_s)` with the change, set by set, in the
    // gains of the experts chosen together with it. The gain is that of a copy on the device
    // `target(other, server)`. target returns none if the server already has the other expert, or
    // if the gain is not needed.
    template <class Target, class Each>
    void add_telling(uint32_t expert, uint32_t device, Target target, Each visit);
    void remove(uint32_t expert, uint32_t device);  // no effect if it is not there
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
    // gain(): the time that add() would take off token_s(). loss(): the time that remove() would
    // add to it. Both may be negative.
    double gain(uint32_t expert, uint32_t device) const;
    class gain_block;  // for one expert on many devices (latency_block.inl)
    double loss(uint32_t expert, uint32_t device) const;
    // The gain if the device's server held every other expert too. This is g(z | V \ z) of
    // SlimCaching's Definition 4.
    double gain_last(uint32_t expert, uint32_t device) const;
    latency_figures figures() const;

private:
    // A deviation from the placement. The experts of a set at positions in `mask` are at `server`
    // on `device`. device none: they are not on that server. Both none: they are on no server.
    struct change {
        uint32_t server = none, device = none, mask = 0;
    };
    static uint64_t with_change(uint64_t holders, const change &deviation) {
        if (deviation.server == none) return 0;
        const uint64_t bit = uint64_t{1} << deviation.server;
        return deviation.device == none ? holders & ~bit : holders | bit;
    }
    // Time of an expert that is the only missing one of its layer, and where it is found.
    enum : uint8_t { not_found, found_far, found_near };
    struct single {
        double seconds;
        uint8_t found;
    };
    // Experts of one layer that a home misses, with their holders.
    struct missed_experts {
        missed_experts(uint32_t model_index, uint32_t entry_index, std::span<const uint32_t> set,
                       const change &deviation)
            : model(model_index),
              entry(entry_index),
              count(static_cast<uint32_t>(set.size())),
              experts(set.data()),
              deviation(deviation) {}
        uint32_t model, entry, count;
        const uint32_t *experts;
        change deviation;
        uint32_t found = 0;                // two bits an expert: not_found, found_far, found_near
        std::array<uint64_t, 16> holders;  // of the first `count`; not zeroed, because this is the
                                           // hot path
    };

    void read_timing();
    void read_trips(uint32_t model, uint32_t entry);
    void read_demand();
    void read_calls(uint32_t home, double weight, std::vector<uint32_t> &missing);
    // The demand has homes as rows; the results have homes as columns. With many homes and experts,
    // a home is read in blocks of this many experts, which stay in the processor's cache.
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
    // Time of a hidden state over a link of `rate` and latency. Infinite without a link.
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

    single single_s(uint32_t expert, uint32_t entry, const change &deviation) const;
    void set_singles(uint32_t expert);
    double singles_difference(uint32_t expert, const change &deviation) const;
    double plain_difference(uint32_t term, uint32_t position, uint32_t server) const;
    double terms_difference(uint32_t expert, const change &deviation) const;
    double term_s(uint32_t term, const change &deviation) const;
    double layer_s(missed_experts &missed) const;
    double serial_s(const missed_experts &missed, std::span<const uint32_t> rest,
                    uint64_t servers) const;
    uint64_t worth_calling(const missed_experts &missed, std::span<const uint32_t> rest,
                           uint64_t servers) const;
    double added_s(const missed_experts &missed, std::span<const uint32_t> rest,
                   uint64_t servers) const;
    double forced_s(const missed_experts &missed, std::span<const uint32_t> rest,
                    uint64_t servers) const;
    double assigned_s(const missed_experts &missed, std::span<const uint32_t> rest,
                      uint64_t servers) const;
    double nearest_s(const missed_experts &missed, std::span<const uint32_t> rest,
                     uint64_t allowed) const;
    double shared_s(const missed_experts &missed, std::span<const uint32_t> rest,
                    uint64_t servers) const;
    // How long the messages of a server's part keep the home's server from sending or receiving.
    double line_s(const missed_experts &missed, uint32_t server, size_t count) const;
    double server_s(const missed_experts &missed, uint32_t server,
                    std::span<const uint32_t> served) const;
    double compute_s(const missed_experts &missed, uint32_t server,
                     std::span<const uint32_t> served) const;
    uint32_t device_at(const missed_experts &missed, uint32_t position, uint32_t server) const {
        if (server == missed.deviation.server && (missed.deviation.mask >> position & 1) != 0)
            return missed.deviation.device;
        return serving_[size_t{missed.experts[position]} * servers_ + server];
    }
    void refresh(uint32_t expert);
    static uint64_t mixed(uint64_t x);
    void begin_known();
    uint64_t code_with(uint32_t expert, uint32_t entry, const change &deviation) const;
    double known_s(uint32_t term, uint64_t key, const change &deviation) const;
    void move_terms(uint32_t expert, bool at_once);
    template <class Target, class Each>
    void tell_partners(uint32_t expert, uint64_t entries, double sign, Target target,
                       Each visit) const;
    struct home_sums {
        double token_s = 0, calls = 0, remote = 0;
    };
    void add_frequencies(uint32_t home, uint32_t begin, uint32_t end, home_sums &sums) const;
    double home_s(uint32_t home) const;
    class holder_view;
    double batch_token_s(const batch_model &batches) const;

    moorage_cluster cluster_;
    moorage_demand demand_;
    uint32_t servers_, devices_, experts_, entries_ = 0;
    size_t server_words_, device_words_;
    bool serial_, returns_each_, shared_, grouped_, messages_dominate_;
    std::vector<uint32_t> server_device_;  // [N + 1]
    std::vector<uint32_t> entry_server_;   // [entries] servers that some home enters by
    std::vector<uint32_t> server_entry_;   // [N]
    std::vector<uint32_t> expert_model_;   // [X]
    // Times by (model, entry): messages to and from a server; alone_s_ also contains a device's
    // time.
    std::vector<double> there_s_, back_s_;            // [M, entries, N]
    std::vector<double> there_line_s_, back_line_s_;  // [M, entries, N] for shared links: without
                                                      // latency
    std::vector<double> call_fix_s_, call_return_s_;  // [M, entries, N] for serial calls: once; per
                                                      // expert
    std::vector<double> alone_s_;                     // [M, G, entries]
    std::vector<double> last_once_s_, last_each_s_;   // [M, entries] of the cloud, or of absence:
                                                      // once; per expert
    std::vector<double> absent_s_;                    // [M]
    // [M, entries] the longest time of an expert alone: with the last resort; by a server.
    std::vector<double> trip_s_, far_s_;
    std::vector<uint64_t> reach_;   // [entries] mask of servers linked both ways, if N <= 64
    std::vector<uint8_t> uniform_;  // [M] devices of each server are equally fast
    // Two or more experts of a layer that homes of an entry miss together. A walk over such sets
    // reads these fields side by side.
    struct missed_set {
        uint64_t key = 0;  // sum of the codes of the devices that serve it, see known_
        double seconds = 0, weight = 0;
        uint32_t entry = 0, found = 0;
    };
    // The demand. Requested experts: [X, entries]. Sets of two or more are terms.
    double constant_s_ = 0, empty_s_ = 0;
    std::vector<double> home_weight_;                   // [H]
    std::vector<double> single_weight_, asked_weight_;  // missed alone; missed alone or in a set
    std::vector<uint64_t> term_first_{0};
    std::vector<uint32_t> term_experts_;
    std::vector<missed_set> terms_;
    std::vector<uint32_t> term_slots_;  // hash table of terms, while reading
    std::vector<uint64_t> use_first_;   // [X + 1] terms of an expert
    std::vector<uint32_t> use_term_, use_position_;
    // The placement, and values that follow from it.
    std::vector<uint64_t> copies_;   // [X, device words]
    std::vector<uint64_t> holders_;  // [X, server words]
    std::vector<uint32_t> serving_;  // [X, N] fastest device with a copy
    std::vector<double> single_s_;   // [X, entries]
    std::vector<uint8_t> single_found_;
    // Times of sets, by the devices that serve their experts. A device has a random number as its
    // code. The code of an expert, seen from an entry, is the sum over the devices that would serve
    // it. The key of a set is the sum over its experts' codes, each times a random factor of the
    // position. Two different sets share a key with a probability of 2^-64.
    struct remembered_time {
        uint64_t key = 0;
        double seconds = 0;
    };
    std::vector<uint64_t> device_code_, place_code_;  // [G], [16]
    std::vector<uint64_t> code_;                      // [X, entries]
    mutable std::vector<remembered_time> known_;
    uint32_t known_shift_ = 0;
};

// Free bytes of the devices, filled in order: an expert goes to the first device of its server with
// room.
class device_room {
public:
    explicit device_room(const latency_model &model)
        : model_(&model),
          free_(model.cluster().host_device_bytes,
                model.cluster().host_device_bytes + model.cluster().devices) {}
    uint64_t free(uint32_t device) const { return free_[device]; }
    // The first device of the server with room for the expert, or none.
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
