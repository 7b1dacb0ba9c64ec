// cluster_emulator.h - many pipelines over one virtual clock, and the calls between them.
//
// A node is a device of a server with the requests that enter there, or a home that computes side
// by side (a user, a server of the wireless model) with one of its models. Each has the pipeline of
// any run; an expert that its dispatch policy sends elsewhere becomes part of a leg: hidden states
// to the server that has it, compute there behind what its GPU was given before, outputs back.
// Time is whole nanoseconds; of what happens at the same time the network goes first, then nodes
// in order, then timers, so that equal runs are equal to the byte.
//
//   cluster_emulator all(scene, network_options, {});
//   cluster_node &one = all.add(device, home, model);   // is the pipeline's peers and watcher
//   one.attach({&line, &where, &source});
//   all.put(copy);                                      // what the plan places
//   all.begin();
//   while (all.next_ns() <= until) all.step();
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "core/cluster/earliest.h"
#include "core/cluster/network.h"
#include "core/execute/emulator.h"
#include "core/execute/peers.h"
#include "core/host/lent_memory.h"
#include "core/pipeline/pipeline.h"
#include "core/placement/scene.h"
#include "core/source/source.h"

namespace moorage::core {

class cluster_emulator;

// Expert activations, one per token and expert chosen.
struct activation_counts {
    uint64_t local = 0;   // on the home's own server
    uint64_t remote = 0;  // on another, or in the cloud
};

class cluster_node final : public peers, public step_watcher {
public:
    // Borrowed. `gpu` is null where experts compute side by side.
    struct parts {
        pipeline *line = nullptr;
        timed_executor *where = nullptr;
        emulator *gpu = nullptr;
        source *from = nullptr;
        bool loads = false;  // its host memory has every expert
    };
    void attach(const parts &of) { parts_ = of; }

    uint32_t device() const { return device_; }  // MOORAGE_NONE: none of the plan's
    uint32_t home() const { return home_; }
    uint32_t model() const { return model_; }
    const parts &of() const { return parts_; }
    uint64_t served() const { return served_; }  // experts that it computed for others
    // Per bucket of the options.
    std::span<const activation_counts> activations() const { return activations_; }

    uint32_t servers() const override { return static_cast<uint32_t>(distances_.size()); }
    std::span<const uint8_t> distances() const override { return distances_; }
    bool serial() const override;
    bool can_load(uint32_t) const override { return parts_.loads; }
    void offers(uint32_t page, uint32_t tokens, uint32_t step_tokens,
                std::vector<remote_offer> &out) override;
    void call(const remote_call &work) override;
    void step(const moorage_step &view, const pass &tokens, source &from) override;

private:
    friend class cluster_emulator;
    struct way {  // to one server's device, or the cloud
        uint32_t there, back;
        uint64_t there_ns, back_ns;          // of one token, alone
        double there_more_ns, back_more_ns;  // of each further one
        uint64_t compute_ns;                 // of one token, alone
    };
    struct nearest {
        uint32_t version = 0, count = 0;
    };
    cluster_node(cluster_emulator &all, uint32_t device, uint32_t home, uint32_t model);
    std::span<const uint32_t> near(uint32_t page);

    cluster_emulator &all_;
    uint32_t index_, device_, home_, model_;
    bool user_;  // reaches its server over a link of its own
    parts parts_;
    lent_vector<uint8_t> distances_;
    std::vector<way> ways_;
    uint32_t up_ = MOORAGE_NONE, down_ = MOORAGE_NONE;  // of a user
    uint64_t up_ns_ = 0, down_ns_ = 0;                  // of one token
    double up_more_ns_ = 0, down_more_ns_ = 0;          // of each further one
    std::vector<nearest> nearest_;                      // [pages]
    std::vector<uint32_t> nearest_devices_;             // [pages, offers_max]
    // Of the step under way: legs in the order of the calls; then, where they go one after another,
    // by distance.
    enum class stage : uint8_t { none, calling, called };
    stage stage_ = stage::none;
    std::vector<uint32_t> legs_;
    size_t launched_ = 0, back_ = 0;
    uint32_t all_tokens_ = 0;
    uint64_t called_ns_ = 0;
    bool ended_ = false;
    uint64_t wakes_ns_ = MOORAGE_NEVER;
    std::vector<uint32_t> serving_;  // [pages] experts that it is to compute for others
    uint64_t served_ = 0;
    std::vector<activation_counts> activations_;
};

struct cluster_options {
    uint32_t offers_max = 8;  // servers that a home considers for an expert: the nearest, and of
                              // equally near ones those that follow it
    uint64_t bucket_ns = 0;   // of figures over time; 0: one bucket
};

class cluster_emulator {
public:
    // `of` is borrowed.
    cluster_emulator(const scene &of, const network_options &network, const cluster_options &how);

    uint64_t *clock() { return &now_; }
    uint64_t now_ns() const { return now_; }
    cluster_node &add(uint32_t device, uint32_t home, uint32_t model);
    std::span<const std::unique_ptr<cluster_node>> nodes() const { return nodes_; }
    const network &links() const { return links_; }
    network &links() { return links_; }

    // A copy that can be called from now on. Requires: its device has a node, where it is not an
    // ideal one, and room.
    void put(const moorage_copy &copy);
    // No call goes to it any more. False, and nothing has changed, while one is still on its way
    // there or being computed, or a step of the device's own uses it: ask again.
    bool take(const moorage_copy &copy);
    bool reachable(uint32_t expert) const { return !holders_[expert].empty(); }

    // Starts every course.
    void begin();
    // Time of the next event; MOORAGE_NEVER: all is done.
    uint64_t next_ns() const;
    void step();
    // Moves the clock. Requires: nothing happens before.
    void idle_until(uint64_t ns) { now_ = ns; }
    // A message of migration has arrived. May be empty.
    std::function<void(const delivery &)> on_migration;
    // Every layer step of every home: home, expert's number, tokens. May be empty.
    std::function<void(uint32_t, uint32_t, uint32_t)> on_activation;

    uint64_t legs() const { return legs_made_; }
    // Sum over calls, from when the hidden states were ready until the outputs were back, and the
    // experts in them.
    uint64_t remote_ns() const { return remote_ns_; }
    uint64_t remote_experts() const { return remote_experts_; }

private:
    friend class cluster_node;
    struct leg {
        uint32_t node = 0, server = 0, tokens = 0;
        uint32_t open = 0;    // experts not computed yet
        uint32_t away = 0;    // outputs (one, or one an expert) that are not at the home's server
        uint32_t absent = 0;  // not at the home
        std::vector<expert_work> experts;
        std::vector<uint32_t> ready;  // outputs that wait for those before them
        bool returning = false;       // one is on its way to the home's server
    };
    struct timer {
        uint64_t at_ns, order;
        uint32_t leg;
    };
    struct served {
        uint32_t leg, expert;  // index in the leg
    };
    enum : uint64_t { to_server = 0, to_home = 1, up = 2, down = 3 };
    static constexpr uint32_t serves = 1u << 31;  // in the tag of work for others
    static constexpr uint32_t sum = 0xfffff;      // in place of an expert: the weighted sum of all

    uint32_t devices() const { return of_.cluster.devices(); }
    uint32_t entry_server(const cluster_node &of) const {
        return of_.cluster.home_server[of.home_];
    }
    uint64_t hidden_bytes(const cluster_node &of) const {
        return of_.demand.hidden_bytes[of.model_];
    }
    uint32_t number(const cluster_node &of, uint32_t page) const {
        return of_.demand.model_first[of.model_] + page;
    }
    uint64_t compute_ns(uint32_t server, uint32_t model, uint32_t tokens) const;
    static uint64_t tag(uint64_t kind, uint64_t leg, uint32_t output) {
        return kind << 60 | leg << 20 | output;
    }
    bool serial() const { return (of_.cluster.flags & MOORAGE_CALLS_SERIAL) != 0; }
    bool returns_each() const { return (of_.cluster.flags & MOORAGE_RETURNS_EACH) != 0; }
    activation_counts &bucket(cluster_node &of) const;
    void settle(cluster_node &of);
    void launch(cluster_node &of);
    void call_next(cluster_node &of);
    void compute(uint32_t leg);
    void serve(uint32_t slot);
    void computed(uint32_t leg, uint32_t expert);
    void send_back(uint32_t leg, uint32_t output);
    void at_server(uint32_t leg, uint32_t output);
    void send_down(uint32_t leg, uint32_t output);
    void at_home(uint32_t leg, uint32_t output);
    void deliver(const delivery &arrived);
    void node_event(cluster_node &of);
    uint32_t new_leg();
    uint64_t output_bytes(const leg &of, uint32_t output) const;
    cluster_node *server_node(uint32_t server) const;  // null: its experts compute side by side

    const scene &of_;
    cluster_options how_;
    uint64_t now_ = 0;
    network links_;
    std::vector<std::unique_ptr<cluster_node>> nodes_;
    std::vector<uint32_t> node_of_device_;
    earliest due_{2};
    std::vector<std::vector<uint32_t>> holders_;  // [X] devices, ascending
    std::vector<uint32_t> version_;               // [X] counts the changes
    std::vector<leg> leg_;
    std::vector<uint32_t> free_legs_;
    std::vector<served> served_;
    std::vector<uint32_t> free_served_;
    std::vector<std::deque<uint32_t>> held_back_;  // [devices] served_ that found no transfer
    std::vector<timer> timers_;                    // a heap
    uint64_t order_ = 0, legs_made_ = 0, remote_ns_ = 0, remote_experts_ = 0;
};

}  // namespace moorage::core
