// cluster_node.cpp - passes the events of one home to its pipeline, or to the calls of others.
#include "core/cluster/cluster_node.h"

#include "core/cluster/cluster_emulator.h"

namespace moorage::core {

static uint32_t pages_of(const demand_arrays &demand, uint32_t model) {
    return demand.model_layers[model] * demand.model_experts[model];
}

cluster_node::cluster_node(cluster_emulator &others, cluster_state &all, uint32_t number,
                           const home_place &place)
    : others_(others),
      all_(all),
      place_(place),
      prices_(all, place),
      calls_(all, prices_, place.model, number),
      serving_(pages_of(all.of.demand, place.model)) {}

void cluster_node::attach(const parts &of) {
    parts_ = of;
    serving_.attach(of.line);
    if (of.gpu) all_.gpus[place_.device] = of.gpu;
}

void cluster_node::settle() {
    wakes_ns_ = MOORAGE_NEVER;
    parts_.where->catch_up();
    while (!ended_) {
        const pipeline::stand now = parts_.line->go_on();
        if (now == pipeline::stand::passed) continue;
        ended_ = now == pipeline::stand::ended;
        if (now == pipeline::stand::idle) wakes_ns_ = parts_.from->wakes_ns();
        break;
    }
    calls_.set_out();
}

std::optional<called_expert> cluster_node::event() {
    if (parts_.where->due() != all_.now_ns) {  // a request has come
        settle();
        return {};
    }
    const auto done = parts_.where->step();
    if (!done) return {};
    if (server_work::is_of(*done)) return serving_.computed(*done);
    parts_.line->handle(*done);
    if (done->kind == event_kind::piece) serving_.ask_again();
    settle();
    return {};
}

void cluster_node::serve(const called_expert &of, const expert_work &work) {
    parts_.where->catch_up();
    serving_.serve(of, work);
}

void cluster_node::call_arrived() {
    if (computing_++ != 0) return;
    parts_.where->catch_up();
    parts_.where->wait_for_others(cause::away);
}

void cluster_node::call_computed(uint32_t call, uint32_t expert) {
    if (!calls_.computed(call, expert) || --computing_ != 0) return;
    parts_.where->catch_up();
    parts_.where->wait_for_others(cause::network);
}

void cluster_node::take_in() {
    parts_.where->catch_up();
    for (const expert_work &one : calls_.came_home())
        parts_.line->handle({event_kind::remote_expert, one.tag, all_.now_ns - calls_.called_ns()});
    settle();
}

void cluster_node::call(const remote_call &work) {
    calls_.add(work);
    if (cluster_node *at = others_.server_node(work.server))
        for (const expert_work &one : work.experts) at->serving_.promise(one.page);
    if (distances()[work.server] == MOORAGE_DISTANCE_OWN) return;
    activation_counts &counts = bucket();
    for (const expert_work &one : work.experts) {
        counts.remote += one.tokens;
        counts.local -= one.tokens;
    }
}

void cluster_node::step(const moorage_step &view, const pass &, source &) {
    bucket().local += uint64_t{view.token_count} * view.top_k;
    others_.tell_watcher(*this, view);
}

activation_counts &cluster_node::bucket() {
    const size_t at = all_.how.bucket_ns == 0 ? 0 : all_.now_ns / all_.how.bucket_ns;
    if (at >= activations_.size()) activations_.resize(at + 1);
    return activations_[at];
}

}  // namespace moorage::core
