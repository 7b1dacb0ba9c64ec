// network.cpp - busy lines, messages that wait or are in flight, and one heap of events.
#include "tools/cluster/network.h"

#include <algorithm>
#include <cassert>
#include <cmath>

namespace moorage::core {

namespace {

// An end that falls between two nanoseconds is rounded up. A product that is whole except for the
// last bits of a double is not.
uint64_t rounded_up_ns(double ns) { return static_cast<uint64_t>(std::ceil(ns - 1e-6)); }

constexpr size_t index_of(traffic kind) { return static_cast<size_t>(kind); }
constexpr size_t of_activations = index_of(traffic::activation);
constexpr size_t of_migrations = index_of(traffic::migration);

uint64_t duration_ns(uint64_t bytes, double bytes_per_s) {
    return rounded_up_ns(static_cast<double>(bytes) * 1e9 / bytes_per_s);
}

// An element of a series that grows as time goes on.
template <class Value>
Value &element_at(std::vector<Value> &series, uint64_t index) {
    if (series.size() <= index) series.resize(index + 1);
    return series[index];
}

}  // namespace

network::network(const cluster_arrays &cluster, const network_options &options)
    : options_(options),
      servers_(cluster.servers),
      shared_((cluster.flags & MOORAGE_LINKS_SHARED) != 0),
      cluster_(cluster),
      index_((size_t{servers_} + 1) * (servers_ + 1) + 2 * size_t{cluster.homes}, none),
      device_next_ns_(cluster.devices(), 0),
      out_free_ns_(cluster.servers, 0),
      in_free_ns_(cluster.servers, 0),
      out_waiting_bytes_(cluster.servers, 0),
      in_waiting_bytes_(cluster.servers, 0) {
    assert(options.piece_bytes > 0 && options.migration_delay_max > 0);
    assert(options.local_bytes_per_s >= 0 && options.migration_bytes_per_s >= 0);
    home_endpoint_.resize(cluster.homes);
    for (uint32_t home = 0; home < cluster.homes; ++home) {
        const bool is_server = std::isinf(cluster.home_up_bytes_per_s[home]) &&
                               std::isinf(cluster.home_down_bytes_per_s[home]);
        home_endpoint_[home] = is_server ? cluster.home_server[home] : servers_ + 1 + home;
    }
}

// Where the number of a channel is kept; null where no channel can be.
uint32_t *network::entry(uint32_t source, uint32_t target) {
    const size_t row = servers_ + 1;
    if (source < row && target < row) return &index_[source * row + target];
    const uint32_t home = std::max(source, target) - servers_ - 1;
    assert(home < cluster_.homes);
    if (std::min(source, target) != cluster_.home_server[home]) return nullptr;
    return &index_[row * row + size_t{home} * 2 + (source > target ? 0 : 1)];
}

uint32_t network::channel(uint32_t source, uint32_t target) {
    uint32_t *known = entry(source, target);
    if (known == nullptr) return MOORAGE_NONE;
    if (*known != none) return *known;
    double bytes_per_s = 0, latency_s = 0;
    if (source > cloud()) {
        bytes_per_s = cluster_.home_up_bytes_per_s[source - servers_ - 1];
    } else if (target > cloud()) {
        bytes_per_s = cluster_.home_down_bytes_per_s[target - servers_ - 1];
    } else if (source == cloud() || target == cloud()) {
        if (source == target || !cluster_.has_cloud()) return MOORAGE_NONE;
        bytes_per_s = target == cloud() ? cluster_.cloud_up_bytes_per_s[source]
                                        : cluster_.cloud_down_bytes_per_s[target];
        latency_s = cluster_.cloud_s[std::min(source, target)];
    } else if (source == target) {
        bytes_per_s = options_.local_bytes_per_s > 0 ? options_.local_bytes_per_s : INFINITY;
        latency_s = options_.local_s;
    } else {
        bytes_per_s = cluster_.link_bytes_per_s[size_t{source} * servers_ + target];
        latency_s = cluster_.link_s[size_t{source} * servers_ + target];
    }
    if (!(bytes_per_s > 0)) return MOORAGE_NONE;
    return *known = make_channel(source, target, bytes_per_s, latency_s);
}

uint32_t network::make_channel(uint32_t source, uint32_t target, double bytes_per_s,
                               double latency_s) {
    channel_state state;
    state.bytes_per_s = bytes_per_s;
    state.latency_ns = rounded_up_ns(std::max(latency_s, 0.0) * 1e9);
    state.local = source == target;
    channels_.push_back(state);
    ends_.emplace_back(source, target);
    return channels() - 1;
}

uint64_t network::alone_ns(uint32_t channel, uint64_t bytes) const {
    const channel_state &state = channels_[channel];
    return duration_ns(bytes, state.bytes_per_s) + state.latency_ns;
}

uint64_t network::activation_backlog_ns(uint32_t channel, uint64_t now_ns) const {
    const channel_state &state = channels_[channel];
    const uint64_t free_ns = line_free_ns(channel);
    const uint64_t line_ns = free_ns > now_ns ? free_ns - now_ns : 0;
    uint64_t bytes = state.waiting_activation_bytes;
    if (const auto &[source, target] = ends_[channel]; shared(channel))
        bytes = std::max(out_waiting_bytes_[source], in_waiting_bytes_[target]);
    return bytes == 0 ? line_ns : line_ns + duration_ns(bytes, state.bytes_per_s);
}

// Time when the channel's line, and the interfaces that it shares, are free.
uint64_t network::line_free_ns(uint32_t channel) const {
    const uint64_t free_ns = channels_[channel].free_ns;
    if (!shared(channel)) return free_ns;
    const auto &[source, target] = ends_[channel];
    return std::max({free_ns, out_free_ns_[source], in_free_ns_[target]});
}

void network::count_waiting(uint32_t channel, int64_t bytes) {
    channels_[channel].waiting_activation_bytes += static_cast<uint64_t>(bytes);
    if (!shared(channel)) return;
    const auto &[source, target] = ends_[channel];
    out_waiting_bytes_[source] += static_cast<uint64_t>(bytes);
    in_waiting_bytes_[target] += static_cast<uint64_t>(bytes);
}

void network::send(uint32_t channel, const message &message, uint64_t now_ns) {
    assert(now_ns >= last_ns_ && now_ns <= due());
    assert(message.device == MOORAGE_NONE || message.device < device_next_ns_.size());
    last_ns_ = now_ns;
    uint32_t index = free_node_;
    if (index == none) {
        index = static_cast<uint32_t>(nodes_.size());
        nodes_.emplace_back();
    } else {
        free_node_ = nodes_[index].next;
    }
    nodes_[index] = {message, message.bytes, now_ns, channel, none};
    channel_state &state = channels_[channel];
    append(state.waiting[index_of(message.kind)], index);
    ++state.queued;
    if (message.kind == traffic::activation)
        count_waiting(channel, static_cast<int64_t>(message.bytes));

    if (const uint64_t free_ns = line_free_ns(channel); free_ns > now_ns) {
        if (state.look_ns == MOORAGE_NEVER) look_at(channel, free_ns);
    } else if (state.look_ns == MOORAGE_NEVER ||
               (message.kind == traffic::activation && state.look_ns > now_ns)) {
        start(channel, now_ns);  // the line is free, or kept free by a budget of migration
    }
    state.queue_peak = std::max(state.queue_peak, state.queued);
}

std::optional<delivery> network::take() {
    assert(!heap_.empty());
    const event next = heap_.front();
    pop();
    last_ns_ = next.at_ns;
    ++events_;
    if (next.look) {
        if (channels_[next.index].look_ns == next.at_ns) start(next.index, next.at_ns);
        return std::nullopt;
    }
    node &landed = nodes_[next.index];
    landed.next = free_node_;
    free_node_ = next.index;
    return delivery{landed.channel, landed.content, landed.sent_ns, next.at_ns};
}

// Sends the next message on a free line, and arranges a later check for the rest.
void network::start(uint32_t channel, uint64_t now_ns) {
    channel_state &state = channels_[channel];
    state.look_ns = MOORAGE_NEVER;
    // Another channel of a shared interface may have been first.
    if (const uint64_t free_ns = line_free_ns(channel); free_ns > now_ns)
        return look_at(channel, free_ns);
    if (state.waiting[of_activations].head != none) {
        start_activation(channel, now_ns);
    } else if (state.waiting[of_migrations].head != none) {
        const uint64_t from_ns = migration_from_ns(state);
        if (from_ns > now_ns) return look_at(channel, from_ns);
        start_piece(channel, now_ns);
    }
    // On a shared interface after all channels that check now: otherwise the channel with most
    // messages would send all of them.
    if (state.waiting[of_activations].head != none || state.waiting[of_migrations].head != none)
        look_at(channel, shared(channel) ? now_ns : state.free_ns);
}

void network::start_activation(uint32_t channel, uint64_t now_ns) {
    channel_state &state = channels_[channel];
    const uint32_t index = remove_first(state.waiting[of_activations]);
    const node &node = nodes_[index];
    --state.queued;
    count_waiting(channel, -static_cast<int64_t>(node.content.bytes));
    // The first that stood behind a piece tells how long the line kept activations waiting for it.
    if (state.piece_last) state.delayed_ns += now_ns - node.sent_ns;
    state.piece_last = false;
    occupy(channel, traffic::activation, node.content.bytes, now_ns);
    state.activation_end_ns = state.free_ns;
    ++state.messages[of_activations];
    land_at(index, state.free_ns + state.latency_ns);
}

// When the first message of migration may send its next piece, activations apart. A line that has
// delayed too much waits until activations have been sent for long enough, or, where none come, for
// as long as they would have taken to allow for it.
uint64_t network::migration_from_ns(const channel_state &state) const {
    uint64_t from_ns = 0;
    const uint32_t device = nodes_[state.waiting[of_migrations].head].content.device;
    if (device != MOORAGE_NONE && options_.migration_bytes_per_s > 0)
        from_ns = device_next_ns_[device];
    const double share = options_.migration_delay_max;
    if (state.delayed_ns == 0 || std::isinf(share)) return from_ns;
    const double above_ns = static_cast<double>(state.delayed_ns) -
                            share * static_cast<double>(state.busy_ns[of_activations]);
    if (above_ns <= 0) return from_ns;
    // A bound far above any run keeps the sum in range.
    const double wait_ns = std::min(above_ns / share, 1e18);
    return std::max(from_ns, state.activation_end_ns + rounded_up_ns(wait_ns));
}

void network::start_piece(uint32_t channel, uint64_t now_ns) {
    channel_state &state = channels_[channel];
    const uint32_t index = state.waiting[of_migrations].head;
    node &node = nodes_[index];
    const uint64_t bytes = std::min(node.left_bytes, options_.piece_bytes);
    node.left_bytes -= bytes;
    occupy(channel, traffic::migration, bytes, now_ns);
    state.piece_last = true;
    if (node.content.device != MOORAGE_NONE && options_.migration_bytes_per_s > 0)
        device_next_ns_[node.content.device] =
            now_ns + duration_ns(bytes, options_.migration_bytes_per_s);
    if (node.left_bytes != 0) return;
    remove_first(state.waiting[of_migrations]);
    --state.queued;
    ++state.messages[of_migrations];
    land_at(index, state.free_ns + state.latency_ns);
}

void network::occupy(uint32_t channel, traffic kind, uint64_t bytes, uint64_t now_ns) {
    channel_state &state = channels_[channel];
    const size_t which = index_of(kind);
    const uint64_t ns = duration_ns(bytes, state.bytes_per_s), width_ns = options_.bucket_ns;
    state.free_ns = now_ns + ns;
    if (const auto &[source, target] = ends_[channel]; shared(channel))
        out_free_ns_[source] = in_free_ns_[target] = state.free_ns;
    state.bytes[which] += bytes;
    state.busy_ns[which] += ns;
    if (!state.local) bytes_[which] += bytes;
    if (on_sent) on_sent(channel, kind, bytes, now_ns, state.free_ns);
    if (width_ns != 0 && !state.local)
        element_at(bytes_over_time_[which], now_ns / width_ns) += bytes;
}

channel_figures network::figures(uint32_t channel) const {
    const channel_state &state = channels_[channel];
    return {ends_[channel].first,
            ends_[channel].second,
            {state.messages[0], state.messages[1]},
            {state.bytes[0], state.bytes[1]},
            {state.busy_ns[0], state.busy_ns[1]},
            state.queue_peak,
            state.delayed_ns};
}

void network::append(list &queue, uint32_t index) {
    (queue.tail == none ? queue.head : nodes_[queue.tail].next) = index;
    queue.tail = index;
}

uint32_t network::remove_first(list &queue) {
    const uint32_t index = queue.head;
    queue.head = nodes_[index].next;
    if (queue.head == none) queue.tail = none;
    return index;
}

void network::land_at(uint32_t index, uint64_t at_ns) { push({at_ns, ++order_, index, false}); }

void network::look_at(uint32_t channel, uint64_t at_ns) {
    channels_[channel].look_ns = at_ns;
    push({at_ns, ++order_, channel, true});
}

void network::push(const event &event) {
    size_t place = heap_.size();
    heap_.push_back(event);
    for (; place > 0 && event.precedes(heap_[(place - 1) / 2]); place = (place - 1) / 2)
        heap_[place] = heap_[(place - 1) / 2];
    heap_[place] = event;
}

void network::pop() {
    const event last = heap_.back();
    heap_.pop_back();
    if (heap_.empty()) return;
    size_t place = 0;
    for (size_t child = 1; child < heap_.size(); child = 2 * place + 1) {
        child += child + 1 < heap_.size() && heap_[child + 1].precedes(heap_[child]);
        if (!heap_[child].precedes(last)) break;
        heap_[place] = heap_[child];
        place = child;
    }
    heap_[place] = last;
}

}  // namespace moorage::core
