// cluster_emulator.cpp - moves the clock of all nodes from event to event.
#include "tools/cluster/cluster_emulator.h"

#include <algorithm>
#include <cmath>

namespace moorage::core {

cluster_emulator::cluster_emulator(const scene &scene, const network_options &network,
                                   const cluster_options &options)
    : state_(scene, network, options),
      device_nodes_(scene.cluster.devices()),
      side_by_side_(0, 0, clock()),
      device_free_ns_(scene.cluster.devices()) {}

cluster_node &cluster_emulator::add(const home_place &place) {
    const auto number = static_cast<uint32_t>(nodes_.size());
    nodes_.push_back(std::unique_ptr<cluster_node>(new cluster_node(*this, state_, number, place)));
    if (place.device != MOORAGE_NONE) device_nodes_[place.device] = nodes_.back().get();
    return *nodes_.back();
}

cluster_node *cluster_emulator::server_node(uint32_t server) const {
    return state_.gpu(server) ? device_nodes_[server] : nullptr;
}

call_figures cluster_emulator::calls() const {
    call_figures sum;
    for (const auto &node : nodes_) sum += node->called();
    return sum;
}

void cluster_emulator::put(const moorage_copy &copy) {
    if (!state_.holders.add(copy)) return;
    if (cluster_node *node = device_nodes_[copy.device])
        node->parts_.line->make_resident(node->page_of(copy));
}

bool cluster_emulator::take(const moorage_copy &copy) {
    if (cluster_node *node = device_nodes_[copy.device]) {
        const uint32_t page = node->page_of(copy);
        if (node->serving_.promised(page) || !node->parts_.line->evict(page)) return false;
    }
    state_.holders.remove(copy);
    return true;
}

// Over the network first.
void cluster_emulator::bring(const migration_step &step) {
    if (step.id >= migration_steps_.size()) migration_steps_.resize(step.id + 1);
    migration_steps_[step.id] = step;
    network &links = state_.links;
    const std::vector<uint32_t> &server = state_.cluster_scene.cluster.device_server;
    const uint32_t source =
        step.source == MOORAGE_NONE ? links.cloud() : links.server(server[step.source]);
    links.send(links.channel(source, links.server(server[step.target])),
               {traffic::migration, step.bytes, step.id, step.target}, now_ns());
}

// Then into the device, one copy after another, at the rate at which it is written.
void cluster_emulator::write(const migration_step &step) {
    const double rate = state_.cluster_scene.cluster.device_load_bytes_per_s[step.target];
    const double ns =
        std::isfinite(rate) ? std::ceil(static_cast<double>(step.bytes) / rate * 1e9) : 0;
    uint64_t &free_ns = device_free_ns_[step.target];
    free_ns = std::max(free_ns, now_ns()) + static_cast<uint64_t>(ns);
    writing_.push_back({free_ns, step.id, {step.expert, step.target}});
}

// All that end now, before anything that follows from the first.
void cluster_emulator::end_writing() {
    for (size_t i = 0; i < writing_.size();) {
        if (writing_[i].at_ns > now_ns()) {
            ++i;
            continue;
        }
        const writing ended = writing_[i];
        writing_.erase(writing_.begin() + static_cast<ptrdiff_t>(i));
        put(ended.copy);
        if (watcher_) watcher_->brought(ended.step);
    }
}

void cluster_emulator::tell_watcher(const cluster_node &home, const moorage_step &view) {
    if (!watcher_) return;
    const home_place &place = home.place();
    const uint32_t first =
        state_.cluster_scene.demand.model_first[place.model] + view.layer * view.experts;
    for (uint32_t i = 0; i < view.distinct_count; ++i)
        watcher_->activated(place.home, first + view.host_distinct[i],
                            view.host_distinct_tokens[i]);
}

void cluster_emulator::begin() {
    due_ = earliest(static_cast<uint32_t>(nodes_.size()));
    for (const auto &node : nodes_) {
        node->settle();
        note_due(*node);
    }
}

void cluster_emulator::step() {
    state_.now_ns = due_ns();
    if (state_.links.due() == now_ns()) {
        if (const auto arrived = state_.links.take()) deliver(*arrived);
    } else if (due_.time() == now_ns()) {
        cluster_node &node = *nodes_[due_.first()];
        const auto served = node.event();
        note_due(node);
        if (served) nodes_[served->home]->call_computed(served->call, served->expert);
    } else if (side_by_side_.due() == now_ns()) {
        side_by_side_event();
    } else {
        end_writing();
    }
}

void cluster_emulator::side_by_side_event() {
    const call_expert called = side_by_side_calls_.take(side_by_side_.step()->tag);
    cluster_node &home = *nodes_[called.home];
    for (uint32_t i = 0; i < home.calls_.call_at(called.call).experts.size(); ++i)
        home.call_computed(called.call, i);
}

void cluster_emulator::deliver(const delivery &arrived) {
    if (arrived.content.kind == traffic::migration)
        return write(migration_steps_[arrived.content.tag]);
    cluster_node &home = *nodes_[home_calls::home_of(arrived.content.tag)];
    switch (home.calls_.message_crossed(arrived.content.tag)) {
        case home_calls::call_place::server:
            return compute(home, home_calls::call_of(arrived.content.tag));
        case home_calls::call_place::home:
            home.take_in();
            return note_due(home);
        case home_calls::call_place::nothing:
            return;
    }
}

// The hidden states are there.
void cluster_emulator::compute(cluster_node &home, uint32_t call) {
    home.call_arrived();
    const home_calls::pending_call &pending = home.calls_.call_at(call);
    const uint32_t number = home.calls_.number();
    if (cluster_node *server = server_node(pending.server)) {
        for (uint32_t i = 0; i < pending.experts.size(); ++i)
            server->serve({number, call, i, pending.experts[i].page}, pending.experts[i]);
        return note_due(*server);
    }
    uint32_t tokens = 1;
    for (const expert_work &work : pending.experts) tokens = std::max(tokens, work.tokens);
    side_by_side_.compute(side_by_side_calls_.add({number, call, 0, 0}),
                          state_.compute_ns(pending.server, home.place().model, tokens));
}

}  // namespace moorage::core
