// cluster_emulator.cpp - moves the clock of all nodes from event to event.
#include "core/cluster/cluster_emulator.h"

#include <algorithm>
#include <cassert>
#include <cmath>

namespace moorage::core {

namespace {

uint64_t ns_of(double seconds) { return static_cast<uint64_t>(std::ceil(seconds * 1e9 - 1e-6)); }

}  // namespace

cluster_emulator::cluster_emulator(const scene &of, const network_options &network,
                                   const cluster_options &how)
    : of_(of),
      how_(how),
      links_(of.cluster, network),
      node_of_device_(of.cluster.devices(), MOORAGE_NONE),
      holders_(of.demand.experts()),
      version_(of.demand.experts(), 1),
      held_back_(of.cluster.devices()) {}

cluster_node &cluster_emulator::add(uint32_t device, uint32_t home, uint32_t model) {
    nodes_.push_back(std::unique_ptr<cluster_node>(new cluster_node(*this, device, home, model)));
    if (device != MOORAGE_NONE) node_of_device_[device] = nodes_.back()->index_;
    return *nodes_.back();
}

cluster_node *cluster_emulator::server_node(uint32_t server) const {
    if (server >= devices() || node_of_device_[server] == MOORAGE_NONE) return nullptr;
    cluster_node &of = *nodes_[node_of_device_[server]];
    return of.parts_.gpu ? &of : nullptr;
}

// What a call of the model takes there, by the plan's linear model.
uint64_t cluster_emulator::compute_ns(uint32_t server, uint32_t model, uint32_t tokens) const {
    const cluster_arrays &all = of_.cluster;
    if (server == devices()) return ns_of(all.cloud_call_s[model] * tokens);
    const size_t at = size_t{server} * all.models + model;
    return ns_of(all.device_call_s[at] + all.device_token_s[at] * (tokens - 1));
}

void cluster_emulator::put(const moorage_copy &copy) {
    std::vector<uint32_t> &all = holders_[copy.expert];
    const auto at = std::ranges::lower_bound(all, copy.device);
    if (at != all.end() && *at == copy.device) return;
    all.insert(at, copy.device);
    ++version_[copy.expert];
    if (node_of_device_[copy.device] == MOORAGE_NONE) return;
    cluster_node &of = *nodes_[node_of_device_[copy.device]];
    of.parts_.line->keep(copy.expert - of_.demand.model_first[of.model_]);
}

bool cluster_emulator::take(const moorage_copy &copy) {
    if (node_of_device_[copy.device] != MOORAGE_NONE) {
        cluster_node &of = *nodes_[node_of_device_[copy.device]];
        const uint32_t page = copy.expert - of_.demand.model_first[of.model_];
        if (of.serving_[page] != 0 || !of.parts_.line->forget(page)) return false;
    }
    std::erase(holders_[copy.expert], copy.device);
    ++version_[copy.expert];
    return true;
}

void cluster_emulator::begin() {
    due_ = earliest(static_cast<uint32_t>(nodes_.size()));
    for (const auto &one : nodes_) settle(*one);
}

uint64_t cluster_emulator::next_ns() const {
    const uint64_t timer_ns = timers_.empty() ? MOORAGE_NEVER : timers_.front().at_ns;
    return std::min({links_.due(), due_.time(), timer_ns});
}

static bool later(const auto &one, const auto &other) {
    return one.at_ns != other.at_ns ? one.at_ns > other.at_ns : one.order > other.order;
}

void cluster_emulator::step() {
    now_ = next_ns();
    if (links_.due() == now_) {
        if (const auto arrived = links_.take()) deliver(*arrived);
    } else if (due_.time() == now_) {
        node_event(*nodes_[due_.first()]);
    } else {
        std::pop_heap(timers_.begin(), timers_.end(), later<timer, timer>);
        const uint32_t leg = timers_.back().leg;
        timers_.pop_back();
        for (uint32_t i = 0; i < leg_[leg].experts.size(); ++i) computed(leg, i);
    }
}

void cluster_emulator::node_event(cluster_node &of) {
    if (of.parts_.where->due() != now_) return settle(of);  // a request has come
    const auto done = of.parts_.where->step();
    if (!done) {
        due_.set(of.index_, std::min(of.parts_.where->due(), of.wakes_ns_));
        return;
    }
    if (done->kind == event_kind::gpu_expert && (done->tag & serves)) {
        const served one = served_[done->tag & ~serves];
        free_served_.push_back(done->tag & ~serves);
        ++of.served_;
        --of.serving_[leg_[one.leg].experts[one.expert].page];
        due_.set(of.index_, std::min(of.parts_.where->due(), of.wakes_ns_));
        return computed(one.leg, one.expert);
    }
    of.parts_.line->handle(*done);
    if (done->kind == event_kind::piece && of.device_ != MOORAGE_NONE &&
        !held_back_[of.device_].empty()) {
        const uint32_t slot = held_back_[of.device_].front();
        held_back_[of.device_].pop_front();
        serve(slot);
    }
    settle(of);
}

// Lets the course go on, and starts what it called others for.
void cluster_emulator::settle(cluster_node &of) {
    of.wakes_ns_ = MOORAGE_NEVER;
    of.parts_.where->catch_up();
    while (!of.ended_) {
        const pipeline::stand now = of.parts_.line->go_on();
        if (now == pipeline::stand::passed) continue;
        of.ended_ = now == pipeline::stand::ended;
        if (now == pipeline::stand::idle) of.wakes_ns_ = of.parts_.from->wakes_ns();
        break;
    }
    if (of.stage_ == cluster_node::stage::calling) launch(of);
    due_.set(of.index_, std::min(of.parts_.where->due(), of.wakes_ns_));
}

uint32_t cluster_emulator::new_leg() {
    ++legs_made_;
    if (free_legs_.empty()) {
        leg_.emplace_back();
        return static_cast<uint32_t>(leg_.size() - 1);
    }
    const uint32_t index = free_legs_.back();
    free_legs_.pop_back();
    return index;
}

// All calls of the step are known. A user sends its hidden states to its server once.
void cluster_emulator::launch(cluster_node &of) {
    of.stage_ = cluster_node::stage::called;
    of.launched_ = of.back_ = 0;
    if (serial())
        std::ranges::stable_sort(of.legs_, {},
                                 [&](uint32_t index) { return of.distances_[leg_[index].server]; });
    if (of.user_)
        links_.send(of.up_,
                    {traffic::activation, of.all_tokens_ * hidden_bytes(of), tag(up, of.index_, 0)},
                    now_);
    else
        call_next(of);
}

// The next server, or all of them where they are called at once.
void cluster_emulator::call_next(cluster_node &of) {
    while (of.launched_ < of.legs_.size()) {
        const uint32_t index = of.legs_[of.launched_++];
        const leg &one = leg_[index];
        links_.send(of.ways_[one.server].there,
                    {traffic::activation, one.tokens * hidden_bytes(of), tag(to_server, index, 0)},
                    now_);
        if (serial()) return;
    }
}

// The hidden states are there.
void cluster_emulator::compute(uint32_t index) {
    const leg &one = leg_[index];
    if (server_node(one.server)) {
        for (uint32_t i = 0; i < leg_[index].experts.size(); ++i) {
            uint32_t slot = static_cast<uint32_t>(served_.size());
            if (free_served_.empty()) {
                served_.emplace_back();
            } else {
                slot = free_served_.back();
                free_served_.pop_back();
            }
            served_[slot] = {index, i};
            serve(slot);
        }
        return;
    }
    uint32_t tokens = 1;
    for (const expert_work &work : one.experts) tokens = std::max(tokens, work.tokens);
    const uint64_t ns = compute_ns(one.server, nodes_[one.node]->model_, tokens);
    timers_.push_back({now_ + ns, order_++, index});
    std::push_heap(timers_.begin(), timers_.end(), later<timer, timer>);
}

void cluster_emulator::serve(uint32_t slot) {
    const leg &of = leg_[served_[slot].leg];
    cluster_node &at = *server_node(of.server);
    expert_work work = of.experts[served_[slot].expert];
    work.tag = serves | slot;
    at.parts_.where->catch_up();
    if (!at.parts_.line->serve(work)) held_back_[of.server].push_back(slot);
    due_.set(at.index_, std::min(at.parts_.where->due(), at.wakes_ns_));
}

uint64_t cluster_emulator::output_bytes(const leg &of, uint32_t output) const {
    const uint32_t tokens = output == sum ? of.tokens : of.experts[output].tokens;
    return tokens * hidden_bytes(*nodes_[of.node]);
}

void cluster_emulator::computed(uint32_t index, uint32_t expert) {
    leg &one = leg_[index];
    --one.open;
    if (!returns_each() && one.open != 0) return;
    const uint32_t output = returns_each() ? expert : sum;
    if (serial() && one.returning)
        one.ready.push_back(output);
    else
        send_back(index, output);
}

void cluster_emulator::send_back(uint32_t index, uint32_t output) {
    leg &one = leg_[index];
    one.returning = true;
    links_.send(nodes_[one.node]->ways_[one.server].back,
                {traffic::activation, output_bytes(one, output), tag(to_home, index, output)},
                now_);
}

// An output is at the home's server. Where servers are called one after another, so are their
// outputs, latency included, and a user gets all of them at the end (SlimCaching, Eq. 7 and 11).
void cluster_emulator::at_server(uint32_t index, uint32_t output) {
    leg &one = leg_[index];
    cluster_node &of = *nodes_[one.node];
    one.returning = false;
    if (!one.ready.empty()) {
        const uint32_t next = one.ready.front();
        one.ready.erase(one.ready.begin());
        send_back(index, next);
    }
    const bool whole = --one.away == 0;
    if (of.user_ && !serial()) send_down(index, output);
    if (serial() && whole) {
        if (of.launched_ < of.legs_.size()) {
            call_next(of);
        } else if (of.user_) {
            for (const uint32_t each : of.legs_)
                for (uint32_t i = 0; i < leg_[each].absent; ++i)
                    send_down(each, returns_each() ? i : sum);
        }
    }
    if (!of.user_) at_home(index, output);
}

void cluster_emulator::send_down(uint32_t index, uint32_t output) {
    const leg &one = leg_[index];
    links_.send(nodes_[one.node]->down_,
                {traffic::activation, output_bytes(one, output), tag(down, index, output)}, now_);
}

void cluster_emulator::at_home(uint32_t index, uint32_t output) {
    leg &one = leg_[index];
    cluster_node &of = *nodes_[one.node];
    of.parts_.where->catch_up();
    const auto complete = [&](const expert_work &work) {
        of.parts_.line->handle({event_kind::remote_expert, work.tag, now_ - of.called_ns_});
    };
    if (output == sum)
        std::ranges::for_each(one.experts, complete);
    else
        complete(one.experts[output]);
    if (--one.absent == 0) {
        remote_ns_ += now_ - of.called_ns_;
        remote_experts_ += one.experts.size();
        free_legs_.push_back(index);
        if (++of.back_ == of.legs_.size()) {
            of.legs_.clear();
            of.stage_ = cluster_node::stage::none;
        }
    }
    settle(of);
}

void cluster_emulator::deliver(const delivery &arrived) {
    if (arrived.what.kind == traffic::migration) {
        if (on_migration) on_migration(arrived);
        return;
    }
    const auto index = static_cast<uint32_t>(arrived.what.tag >> 20);
    const auto output = static_cast<uint32_t>(arrived.what.tag & sum);
    switch (arrived.what.tag >> 60) {
        case up:
            return call_next(*nodes_[index]);
        case to_server:
            return compute(index);
        case to_home:
            return at_server(index, output);
        default:
            return at_home(index, output);
    }
}

activation_counts &cluster_emulator::bucket(cluster_node &of) const {
    const size_t at = how_.bucket_ns == 0 ? 0 : now_ / how_.bucket_ns;
    if (at >= of.activations_.size()) of.activations_.resize(at + 1);
    return of.activations_[at];
}

}  // namespace moorage::core
