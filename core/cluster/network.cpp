// network.cpp - busy lines, messages that wait or are in flight, and one heap of events.
#include "core/cluster/network.h"

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
Value &at(std::vector<Value> &series, uint64_t index) {
    if (series.size() <= index) series.resize(index + 1);
    return series[index];
}

}  // namespace

network::network(const cluster_arrays &of, const network_options &options)
    : options_(options),
      servers_(of.servers),
      shared_((of.flags & MOORAGE_LINKS_SHARED) != 0),
      cluster_(of),
      index_((size_t{servers_} + 1) * (servers_ + 1) + 2 * size_t{of.homes}, none),
      device_next_ns_(of.devices(), 0),
      out_free_ns_(of.servers, 0),
      in_free_ns_(of.servers, 0),
      out_waiting_bytes_(of.servers, 0),
      in_waiting_bytes_(of.servers, 0) {
    assert(options.piece_bytes > 0 && options.migration_delay_max > 0);
    assert(options.local_bytes_per_s >= 0 && options.migration_bytes_per_s >= 0);
    home_endpoint_.resize(of.homes);
    for (uint32_t home = 0; home < of.homes; ++home) {
        const bool is_server =
            std::isinf(of.home_up_bytes_per_s[home]) && std::isinf(of.home_down_bytes_per_s[home]);
        home_endpoint_[home] = is_server ? of.home_server[home] : servers_ + 1 + home;
    }
}

// Where the number of a channel is kept; null where no channel can be.
uint32_t *network::entry(uint32_t from, uint32_t to) {
    const size_t row = servers_ + 1;
    if (from < row && to < row) return &index_[from * row + to];
    const uint32_t home = std::max(from, to) - servers_ - 1;
    assert(home < cluster_.homes);
    if (std::min(from, to) != cluster_.home_server[home]) return nullptr;
    return &index_[row * row + size_t{home} * 2 + (from > to ? 0 : 1)];
}

uint32_t network::channel(uint32_t from, uint32_t to) {
    uint32_t *known = entry(from, to);
    if (known == nullptr) return MOORAGE_NONE;
    if (*known != none) return *known;
    double bytes_per_s = 0, latency_s = 0;
    if (from > cloud()) {
        bytes_per_s = cluster_.home_up_bytes_per_s[from - servers_ - 1];
    } else if (to > cloud()) {
        bytes_per_s = cluster_.home_down_bytes_per_s[to - servers_ - 1];
    } else if (from == cloud() || to == cloud()) {
        if (from == to || !cluster_.has_cloud()) return MOORAGE_NONE;
        bytes_per_s = to == cloud() ? cluster_.cloud_up_bytes_per_s[from]
                                    : cluster_.cloud_down_bytes_per_s[to];
        latency_s = cluster_.cloud_s[std::min(from, to)];
    } else if (from == to) {
        bytes_per_s = options_.local_bytes_per_s > 0 ? options_.local_bytes_per_s : INFINITY;
        latency_s = options_.local_s;
    } else {
        bytes_per_s = cluster_.link_bytes_per_s[size_t{from} * servers_ + to];
        latency_s = cluster_.link_s[size_t{from} * servers_ + to];
    }
    if (!(bytes_per_s > 0)) return MOORAGE_NONE;
    return *known = make_channel(from, to, bytes_per_s, latency_s);
}

uint32_t network::make_channel(uint32_t from, uint32_t to, double bytes_per_s, double latency_s) {
    one_channel made;
    made.bytes_per_s = bytes_per_s;
    made.latency_ns = rounded_up_ns(std::max(latency_s, 0.0) * 1e9);
    made.local = from == to;
    channels_.push_back(made);
    ends_.emplace_back(from, to);
    return channels() - 1;
}

uint64_t network::alone_ns(uint32_t channel, uint64_t bytes) const {
    const one_channel &on = channels_[channel];
    return duration_ns(bytes, on.bytes_per_s) + on.latency_ns;
}

uint64_t network::activation_backlog_ns(uint32_t channel, uint64_t now_ns) const {
    const one_channel &on = channels_[channel];
    const uint64_t free_ns = line_free_ns(channel);
    const uint64_t line_ns = free_ns > now_ns ? free_ns - now_ns : 0;
    uint64_t bytes = on.waiting_activation_bytes;
    if (const auto &[from, to] = ends_[channel]; shared(channel))
        bytes = std::max(out_waiting_bytes_[from], in_waiting_bytes_[to]);
    return bytes == 0 ? line_ns : line_ns + duration_ns(bytes, on.bytes_per_s);
}

// Time when the channel's line, and the interfaces that it shares, are free.
uint64_t network::line_free_ns(uint32_t channel) const {
    const uint64_t free_ns = channels_[channel].free_ns;
    if (!shared(channel)) return free_ns;
    const auto &[from, to] = ends_[channel];
    return std::max({free_ns, out_free_ns_[from], in_free_ns_[to]});
}

void network::count_waiting(uint32_t channel, int64_t bytes) {
    channels_[channel].waiting_activation_bytes += static_cast<uint64_t>(bytes);
    if (!shared(channel)) return;
    const auto &[from, to] = ends_[channel];
    out_waiting_bytes_[from] += static_cast<uint64_t>(bytes);
    in_waiting_bytes_[to] += static_cast<uint64_t>(bytes);
}

void network::send(uint32_t channel, const message &what, uint64_t now_ns) {
    assert(now_ns >= last_ns_ && now_ns <= due());
    assert(what.device == MOORAGE_NONE || what.device < device_next_ns_.size());
    last_ns_ = now_ns;
    uint32_t index = free_node_;
    if (index == none) {
        index = static_cast<uint32_t>(nodes_.size());
        nodes_.emplace_back();
    } else {
        free_node_ = nodes_[index].next;
    }
    nodes_[index] = {what, what.bytes, now_ns, channel, none};
    one_channel &on = channels_[channel];
    append(on.waiting[index_of(what.kind)], index);
    ++on.queued;
    if (what.kind == traffic::activation) count_waiting(channel, static_cast<int64_t>(what.bytes));

    if (const uint64_t free_ns = line_free_ns(channel); free_ns > now_ns) {
        if (on.look_ns == MOORAGE_NEVER) look_at(channel, free_ns);
    } else if (on.look_ns == MOORAGE_NEVER ||
               (what.kind == traffic::activation && on.look_ns > now_ns)) {
        start(channel, now_ns);  // the line is free, or kept free by a budget of migration
    }
    on.queue_peak = std::max(on.queue_peak, on.queued);
}

std::optional<delivery> network::take() {
    assert(!heap_.empty());
    const event next = heap_.front();
    pop();
    last_ns_ = next.at_ns;
    ++events_;
    if (next.look) {
        if (channels_[next.what].look_ns == next.at_ns) start(next.what, next.at_ns);
        return std::nullopt;
    }
    node &landed = nodes_[next.what];
    landed.next = free_node_;
    free_node_ = next.what;
    return delivery{landed.channel, landed.what, landed.sent_ns, next.at_ns};
}

// Sends the next message on a free line, and arranges a later check for the rest.
void network::start(uint32_t channel, uint64_t now_ns) {
    one_channel &on = channels_[channel];
    on.look_ns = MOORAGE_NEVER;
    // Another channel of a shared interface may have been first.
    if (const uint64_t free_ns = line_free_ns(channel); free_ns > now_ns)
        return look_at(channel, free_ns);
    if (on.waiting[of_activations].head != none) {
        start_activation(channel, now_ns);
    } else if (on.waiting[of_migrations].head != none) {
        const uint64_t from_ns = migration_from_ns(on);
        if (from_ns > now_ns) return look_at(channel, from_ns);
        start_piece(channel, now_ns);
    }
    // On a shared interface after all channels that check now: otherwise the channel with most
    // messages would send all of them.
    if (on.waiting[of_activations].head != none || on.waiting[of_migrations].head != none)
        look_at(channel, shared(channel) ? now_ns : on.free_ns);
}

void network::start_activation(uint32_t channel, uint64_t now_ns) {
    one_channel &on = channels_[channel];
    const uint32_t index = remove_first(on.waiting[of_activations]);
    const node &one = nodes_[index];
    --on.queued;
    count_waiting(channel, -static_cast<int64_t>(one.what.bytes));
    // The first that stood behind a piece tells how long the line kept activations waiting for it.
    if (on.piece_last) on.delayed_ns += now_ns - one.sent_ns;
    on.piece_last = false;
    occupy(channel, traffic::activation, one.what.bytes, now_ns);
    on.activation_end_ns = on.free_ns;
    ++on.messages[of_activations];
    land_at(index, on.free_ns + on.latency_ns);
}

// When the first message of migration may send its next piece, activations apart. A line that has
// delayed too much waits until activations have been sent for long enough, or, where none come, for
// as long as they would have taken to allow for it.
uint64_t network::migration_from_ns(const one_channel &on) const {
    uint64_t from_ns = 0;
    const uint32_t device = nodes_[on.waiting[of_migrations].head].what.device;
    if (device != MOORAGE_NONE && options_.migration_bytes_per_s > 0)
        from_ns = device_next_ns_[device];
    const double share = options_.migration_delay_max;
    if (on.delayed_ns == 0 || std::isinf(share)) return from_ns;
    const double above_ns = static_cast<double>(on.delayed_ns) -
                            share * static_cast<double>(on.busy_ns[of_activations]);
    if (above_ns <= 0) return from_ns;
    // A bound far above any run keeps the sum in range.
    const double wait_ns = std::min(above_ns / share, 1e18);
    return std::max(from_ns, on.activation_end_ns + rounded_up_ns(wait_ns));
}

void network::start_piece(uint32_t channel, uint64_t now_ns) {
    one_channel &on = channels_[channel];
    const uint32_t index = on.waiting[of_migrations].head;
    node &one = nodes_[index];
    const uint64_t bytes = std::min(one.left_bytes, options_.piece_bytes);
    one.left_bytes -= bytes;
    occupy(channel, traffic::migration, bytes, now_ns);
    on.piece_last = true;
    if (one.what.device != MOORAGE_NONE && options_.migration_bytes_per_s > 0)
        device_next_ns_[one.what.device] =
            now_ns + duration_ns(bytes, options_.migration_bytes_per_s);
    if (one.left_bytes != 0) return;
    remove_first(on.waiting[of_migrations]);
    --on.queued;
    ++on.messages[of_migrations];
    land_at(index, on.free_ns + on.latency_ns);
}

void network::occupy(uint32_t channel, traffic kind, uint64_t bytes, uint64_t now_ns) {
    one_channel &on = channels_[channel];
    const size_t which = index_of(kind);
    const uint64_t ns = duration_ns(bytes, on.bytes_per_s), width_ns = options_.bucket_ns;
    on.free_ns = now_ns + ns;
    if (const auto &[from, to] = ends_[channel]; shared(channel))
        out_free_ns_[from] = in_free_ns_[to] = on.free_ns;
    on.bytes[which] += bytes;
    on.busy_ns[which] += ns;
    if (!on.local) bytes_[which] += bytes;
    if (on_sent) on_sent(channel, kind, bytes, now_ns, on.free_ns);
    if (width_ns != 0 && !on.local) at(bytes_over_time_[which], now_ns / width_ns) += bytes;
}

channel_figures network::figures(uint32_t channel) const {
    const one_channel &on = channels_[channel];
    return {ends_[channel].first,
            ends_[channel].second,
            {on.messages[0], on.messages[1]},
            {on.bytes[0], on.bytes[1]},
            {on.busy_ns[0], on.busy_ns[1]},
            on.queue_peak,
            on.delayed_ns};
}

void network::append(list &to, uint32_t index) {
    (to.tail == none ? to.head : nodes_[to.tail].next) = index;
    to.tail = index;
}

uint32_t network::remove_first(list &from) {
    const uint32_t index = from.head;
    from.head = nodes_[index].next;
    if (from.head == none) from.tail = none;
    return index;
}

void network::land_at(uint32_t index, uint64_t at_ns) { push({at_ns, ++order_, index, false}); }

void network::look_at(uint32_t channel, uint64_t at_ns) {
    channels_[channel].look_ns = at_ns;
    push({at_ns, ++order_, channel, true});
}

void network::push(const event &one) {
    size_t place = heap_.size();
    heap_.push_back(one);
    for (; place > 0 && one.before(heap_[(place - 1) / 2]); place = (place - 1) / 2)
        heap_[place] = heap_[(place - 1) / 2];
    heap_[place] = one;
}

void network::pop() {
    const event last = heap_.back();
    heap_.pop_back();
    if (heap_.empty()) return;
    size_t place = 0;
    for (size_t child = 1; child < heap_.size(); child = 2 * place + 1) {
        child += child + 1 < heap_.size() && heap_[child + 1].before(heap_[child]);
        if (!heap_[child].before(last)) break;
        heap_[place] = heap_[child];
        place = child;
    }
    heap_[place] = last;
}

}  // namespace moorage::core
