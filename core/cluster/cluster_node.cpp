// cluster_node.cpp - what a home sees of the others, and how it calls them.
#include <algorithm>

#include "core/cluster/cluster_emulator.h"

namespace moorage::core {

cluster_node::cluster_node(cluster_emulator &all, uint32_t device, uint32_t home, uint32_t model)
    : all_(all),
      index_(static_cast<uint32_t>(all.nodes_.size())),
      device_(device),
      home_(home),
      model_(model),
      user_(home != MOORAGE_NONE && all.links_.home(home) != all.entry_server(*this)) {
    const cluster_arrays &of = all.of_.cluster;
    const demand_arrays &demand = all.of_.demand;
    const uint32_t pages = demand.model_layers[model] * demand.model_experts[model];
    serving_.resize(pages);
    const uint32_t devices = of.devices();
    distances_.assign(devices + of.has_cloud(), MOORAGE_DISTANCE_OTHER);
    if (of.has_cloud()) distances_[devices] = MOORAGE_DISTANCE_CLOUD;
    if (home == MOORAGE_NONE) return;
    nearest_.resize(pages);
    nearest_devices_.resize(size_t{pages} * all.how_.offers_max);
    network &links = all.links_;
    const uint32_t entry = all.entry_server(*this);
    const uint64_t bytes = all.hidden_bytes(*this);
    ways_.resize(distances_.size());
    for (uint32_t server = 0; server < ways_.size(); ++server) {
        const bool cloud = server == devices;
        const uint32_t there = cloud ? links.cloud() : links.server(of.device_server[server]);
        if (!cloud && there == entry) distances_[server] = MOORAGE_DISTANCE_OWN;
        way &one = ways_[server];
        one.there = links.channel(links.server(entry), there);
        one.back = links.channel(there, links.server(entry));
        const bool linked = one.there != MOORAGE_NONE && one.back != MOORAGE_NONE;
        one.there_ns = linked ? links.alone_ns(one.there, bytes) : MOORAGE_NEVER;
        one.back_ns = linked ? links.alone_ns(one.back, bytes) : MOORAGE_NEVER;
        if (linked) {
            one.there_more_ns = double(links.alone_ns(one.there, 2 * bytes) - one.there_ns);
            one.back_more_ns = double(links.alone_ns(one.back, 2 * bytes) - one.back_ns);
        }
        one.compute_ns = all.compute_ns(server, model, 1);
    }
    if (!user_) return;
    up_ = links.channel(links.home(home), links.server(entry));
    down_ = links.channel(links.server(entry), links.home(home));
    up_ns_ = links.alone_ns(up_, bytes);
    down_ns_ = links.alone_ns(down_, bytes);
    up_more_ns_ = double(links.alone_ns(up_, 2 * bytes) - up_ns_);
    down_more_ns_ = double(links.alone_ns(down_, 2 * bytes) - down_ns_);
}

bool cluster_node::serial() const { return (all_.of_.cluster.flags & MOORAGE_CALLS_SERIAL) != 0; }

// The devices that are considered for a page. Of equally near ones those after the own device, in
// turn, so that homes spread over the copies.
std::span<const uint32_t> cluster_node::near(uint32_t page) {
    const uint32_t number = all_.number(*this, page), most = all_.how_.offers_max;
    nearest &known = nearest_[page];
    uint32_t *devices = nearest_devices_.data() + size_t{page} * most;
    if (known.version != all_.version_[number]) {
        known = {all_.version_[number], 0};
        const uint32_t all = all_.devices(), own = device_ == MOORAGE_NONE ? home_ % all : device_;
        const auto rank = [&](uint32_t one) {
            const way &to = ways_[one];
            return std::pair(to.there_ns + to.back_ns + to.compute_ns, (one + all - own) % all);
        };
        for (const uint32_t one : all_.holders_[number]) {
            if (one == device_ || ways_[one].there_ns == MOORAGE_NEVER) continue;
            uint32_t at = known.count;
            while (at > 0 && rank(one) < rank(devices[at - 1])) --at;
            if (at == most) continue;
            if (known.count < most) ++known.count;
            std::copy_backward(devices + at, devices + known.count - 1, devices + known.count);
            devices[at] = one;
        }
        std::sort(devices, devices + known.count);
    }
    return {devices, known.count};
}

// Estimates: what queues on links and GPUs now counts, what will come does not.
void cluster_node::offers(uint32_t page, uint32_t tokens, uint32_t,
                          std::vector<remote_offer> &out) {
    const network &links = all_.links_;
    const uint64_t now_ns = all_.now_;
    const double more = tokens - 1.0;
    // One after another: the way up and down again is the same whichever servers are called.
    uint64_t up_ns = 0, down_ns = 0;
    if (user_ && !serial()) {
        up_ns = up_ns_ + static_cast<uint64_t>(more * up_more_ns_);
        down_ns = down_ns_ + static_cast<uint64_t>(more * down_more_ns_);
    }
    const auto offer = [&](uint32_t server) {
        const way &to = ways_[server];
        const uint64_t there_ns = up_ns + links.activation_backlog_ns(to.there, now_ns) +
                                  to.there_ns + static_cast<uint64_t>(more * to.there_more_ns);
        const uint64_t back_ns =
            down_ns + to.back_ns + static_cast<uint64_t>(more * to.back_more_ns);
        const uint64_t compute_ns =
            tokens == 1 ? to.compute_ns : all_.compute_ns(server, model_, tokens);
        const cluster_node *at = all_.server_node(server);
        const uint64_t queue_ns = at ? at->parts_.gpu->gpu_backlog_ns() : 0;
        const uint64_t beside_ns = at ? 0 : compute_ns;  // side by side with its other experts
        out.push_back({server, there_ns + queue_ns + compute_ns + back_ns,
                       there_ns + queue_ns + beside_ns + (all_.returns_each() ? 0 : back_ns)});
    };
    for (const uint32_t device : near(page)) offer(device);
    if (all_.of_.cluster.has_cloud()) offer(all_.devices());
}

void cluster_node::call(const remote_call &work) {
    const uint32_t index = all_.new_leg();
    cluster_emulator::leg &one = all_.leg_[index];
    const auto experts = static_cast<uint32_t>(work.experts.size());
    one.node = index_;
    one.server = work.server;
    one.tokens = work.tokens;
    one.open = experts;
    one.away = one.absent = all_.returns_each() ? experts : 1;
    one.experts.assign(work.experts.begin(), work.experts.end());
    if (cluster_node *at = all_.server_node(work.server))
        for (const expert_work &each_one : work.experts) ++at->serving_[each_one.page];
    if (stage_ == stage::none) {
        stage_ = stage::calling;
        called_ns_ = all_.now_;
    }
    all_tokens_ = work.all_tokens;
    legs_.push_back(index);
    if (distances_[work.server] == MOORAGE_DISTANCE_OWN) return;
    activation_counts &counts = all_.bucket(*this);
    for (const expert_work &each_one : work.experts) {
        counts.remote += each_one.tokens;
        counts.local -= each_one.tokens;
    }
}

void cluster_node::step(const moorage_step &view, const pass &, source &) {
    all_.bucket(*this).local += uint64_t{view.token_count} * view.top_k;
    if (!all_.on_activation) return;
    const uint32_t first = all_.number(*this, view.layer * view.experts);
    for (uint32_t i = 0; i < view.distinct_count; ++i)
        all_.on_activation(home_, first + view.host_distinct[i], view.host_distinct_tokens[i]);
}

}  // namespace moorage::core
