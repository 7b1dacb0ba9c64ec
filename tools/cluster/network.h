// network.h - the links of a cluster in virtual time: queued messages, deterministic to the
// nanosecond.
//
//   network links(cluster, {});
//   links.send(links.channel(links.server(0), links.server(1)), {traffic::activation, 4096, 7},
//   now); while (links.due() <= until) if (auto arrived = links.take()) ...
//
// A channel is one direction between two endpoints. It sends one message at a time. This takes
// bytes over its rate, rounded up to whole nanoseconds. The message arrives one latency later; the
// latency occupies nothing. Activations go before migration, each class in order. Migration is cut
// into pieces, so an activation waits for one piece at most. Two budgets hold migration back
// (decision 0018). Events at the same time are taken in the order in which they were arranged.
//
// With shared links (MOORAGE_LINKS_SHARED), a message between servers also needs the sender's way
// out and the receiver's way in. Each of these takes one message at a time. The message that has
// waited longest for both goes first, whatever its channel.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "tools/placement/scene.h"

namespace moorage::core {

enum class traffic : uint8_t { activation = 0, migration = 1 };

struct message {
    traffic kind = traffic::activation;
    uint64_t bytes = 0;
    uint64_t tag = 0;                // the sender's tag; comes back with the delivery
    uint32_t device = MOORAGE_NONE;  // the device that gets a migration; MOORAGE_NONE: no budget of
                                     // a device
};

struct delivery {
    uint32_t channel;
    message content;
    uint64_t sent_ns;     // when send() was called
    uint64_t arrived_ns;  // now
};

struct network_options {
    double local_bytes_per_s = 0;  // between the devices of a server; 0: takes no time
    double local_s = 0;            // latency of that way
    uint64_t piece_bytes = 1 << 17;
    double migration_bytes_per_s = 0;  // limit for each receiving device; 0: what the links leave
    // Time that migration may make activations wait, per time of sending activations, on each
    // channel. Above 0. Infinite: no limit.
    double migration_delay_max = 0.1;
    uint64_t bucket_ns = 0;  // bucket of figures over time; 0: none are kept
};

// By traffic, counted when sent.
struct channel_figures {
    uint32_t source = 0, target = 0;  // endpoints
    uint64_t messages[2] = {}, bytes[2] = {}, busy_ns[2] = {};
    uint64_t queue_peak = 0;  // messages that waited at one time
    uint64_t delayed_ns = 0;  // time that activations waited behind a piece of migration
};

class network {
public:
    // `cluster` is borrowed for the call. Requires: options in range.
    network(const cluster_arrays &cluster, const network_options &options);

    // Endpoints. A home that is a server has the endpoint of that server.
    uint32_t server(uint32_t index) const { return index; }
    uint32_t cloud() const { return servers_; }
    uint32_t home(uint32_t index) const { return home_endpoint_[index]; }

    // The channel from a server to a server (itself included), to the cloud and back, from a home
    // to its server and back. MOORAGE_NONE: there is no link. May allocate at its first use.
    uint32_t channel(uint32_t source, uint32_t target);
    // Time that a message of these bytes takes alone, its latency included.
    uint64_t alone_ns(uint32_t channel, uint64_t bytes) const;
    // Whether the channel stays inside a server. Then it does not count as network.
    bool local(uint32_t channel) const { return channels_[channel].local; }
    // Time until an activation that is sent now would start.
    uint64_t activation_backlog_ns(uint32_t channel, uint64_t now_ns) const;

    // Requires: now_ns <= due(), and not below the times given or taken before.
    void send(uint32_t channel, const message &message, uint64_t now_ns);
    // Time of the next event. MOORAGE_NEVER: nothing is under way.
    uint64_t due() const { return heap_.empty() ? MOORAGE_NEVER : heap_.front().at_ns; }
    // Handles the next event. Returns nothing if it concerns nobody outside; due() is then the time
    // of the event after it. Requires: something is under way.
    std::optional<delivery> take();

    uint32_t channels() const { return static_cast<uint32_t>(channels_.size()); }
    channel_figures figures(uint32_t channel) const;
    // Bytes of all channels that count as network, by traffic.
    uint64_t network_bytes(traffic kind) const { return bytes_[static_cast<size_t>(kind)]; }
    // The same per bucket, by the start of each piece.
    std::span<const uint64_t> network_bytes_over_time(traffic kind) const {
        return bytes_over_time_[static_cast<size_t>(kind)];
    }
    // Called for every use of a channel: its bytes, begin and end. May be empty.
    std::function<void(uint32_t, traffic, uint64_t, uint64_t, uint64_t)> on_sent;
    uint64_t events() const { return events_; }

private:
    static constexpr uint32_t none = UINT32_MAX;
    struct node {  // a message that waits or is in flight; waiting ones are linked by index
        message content;
        uint64_t left_bytes, sent_ns;
        uint32_t channel, next;
    };
    struct list {
        uint32_t head = none, tail = none;
    };
    // Two cache lines: 256 servers have 65 000 channels, used in any order.
    struct alignas(128) channel_state {
        double bytes_per_s = 0;  // infinite: takes no time
        uint64_t latency_ns = 0;
        uint64_t free_ns = 0;              // the line is busy until then
        uint64_t look_ns = MOORAGE_NEVER;  // when the line is checked again
        list waiting[2];
        uint64_t bytes[2] = {}, busy_ns[2] = {};
        uint32_t messages[2] = {};
        uint32_t queued = 0, queue_peak = 0;
        uint64_t waiting_activation_bytes = 0, delayed_ns = 0;
        uint64_t activation_end_ns = 0;  // end of the last activation that was sent
        bool piece_last = false;         // the last piece sent was migration
        bool local = false;
    };
    static_assert(sizeof(channel_state) == 128);
    struct event {
        uint64_t at_ns, order;
        uint32_t index;  // a message that arrives, or a channel whose line is checked
        bool look;       // stale if the channel is checked at another time
        bool precedes(const event &right) const {
            return at_ns != right.at_ns ? at_ns < right.at_ns : order < right.order;
        }
    };

    uint32_t make_channel(uint32_t source, uint32_t target, double bytes_per_s, double latency_s);
    void append(list &queue, uint32_t index);
    uint32_t remove_first(list &queue);
    void start(uint32_t channel, uint64_t now_ns);
    void start_activation(uint32_t channel, uint64_t now_ns);
    uint64_t migration_from_ns(const channel_state &state) const;
    void start_piece(uint32_t channel, uint64_t now_ns);
    void land_at(uint32_t index, uint64_t at_ns);
    void look_at(uint32_t channel, uint64_t at_ns);
    void occupy(uint32_t channel, traffic kind, uint64_t bytes, uint64_t now_ns);
    void push(const event &event);
    void pop();
    uint32_t *entry(uint32_t source, uint32_t target);
    bool shared(uint32_t channel) const {
        const auto &[source, target] = ends_[channel];
        return shared_ && source != target && source < servers_ && target < servers_;
    }
    uint64_t line_free_ns(uint32_t channel) const;
    void count_waiting(uint32_t channel, int64_t bytes);

    network_options options_;
    uint32_t servers_;
    bool shared_;
    cluster_arrays cluster_;
    std::vector<uint32_t> home_endpoint_;
    std::vector<uint32_t> index_;  // [servers + 1, servers + 1], then [homes, 2]; channel or none
    std::vector<channel_state> channels_;
    std::vector<std::pair<uint32_t, uint32_t>> ends_;  // [channels] from, to
    std::vector<node> nodes_;
    uint32_t free_node_ = none;
    std::vector<event> heap_;
    std::vector<uint64_t> device_next_ns_;  // for each device's budget
    // [servers] for shared interfaces: end of the busy time, and bytes of waiting activations.
    std::vector<uint64_t> out_free_ns_, in_free_ns_, out_waiting_bytes_, in_waiting_bytes_;
    uint64_t order_ = 0, events_ = 0, last_ns_ = 0;
    uint64_t bytes_[2] = {};
    std::vector<uint64_t> bytes_over_time_[2];
};

}  // namespace moorage::core
