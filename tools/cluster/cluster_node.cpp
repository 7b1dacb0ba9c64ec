// cluster_node.cpp - passes the events of one home to its pipeline, or to the calls of others.
#include "tools/cluster/cluster_node.h"

#include "tools/cluster/cluster_emulator.h"

namespace moorage::core {

static uint32_t pages_of(const demand_arrays &demand, uint32_t model) {
    return demand.model_layers[model] * demand.model_experts[model];
}

cluster_node::cluster_node(cluster_emulator &emulator, cluster_state &state, uint32_t number,
                           const home_place &place)
    : emulator_(emulator),
      state_(state),
      place_(place),
      prices_(state, place),
      calls_(state, prices_, place.model, number),
      serving_(pages_of(state.cluster_scene.demand, place.model)) {}

void cluster_node::attach(const parts &parts) {
    parts_ = parts;
    serving_.attach(parts.line);
    if (parts.gpu) state_.gpus[place_.device] = parts.gpu;
}

void cluster_node::settle() {
    wakes_ns_ = MOORAGE_NEVER;
    parts_.executor->catch_up();
    while (!ended_) {
        const pipeline::course_state now = parts_.line->resume();
        if (now == pipeline::course_state::passed) continue;
        ended_ = now == pipeline::course_state::ended;
        if (now == pipeline::course_state::idle) wakes_ns_ = parts_.pass_source->wakes_ns();
        break;
    }
    calls_.send_calls();
}

std::optional<call_expert> cluster_node::event() {
    if (parts_.executor->due() != state_.now_ns) {  // a request has come
        settle();
        return {};
    }
    const auto done = parts_.executor->step();
    if (!done) return {};
    if (server_work::is_of(*done)) return serving_.computed(*done);
    parts_.line->handle(*done);
    if (done->kind == event_kind::piece) serving_.ask_again();
    settle();
    return {};
}

void cluster_node::serve(const call_expert &called, const expert_work &work) {
    parts_.executor->catch_up();
    serving_.serve(called, work);
}

void cluster_node::call_arrived() {
    if (computing_++ != 0) return;
    parts_.executor->catch_up();
    parts_.executor->set_remote_wait_cause(cause::away);
}

void cluster_node::call_computed(uint32_t call, uint32_t expert) {
    if (!calls_.computed(call, expert) || --computing_ != 0) return;
    parts_.executor->catch_up();
    parts_.executor->set_remote_wait_cause(cause::network);
}

void cluster_node::take_in() {
    parts_.executor->catch_up();
    for (const expert_work &expert : calls_.arrived_experts())
        parts_.line->handle(
            {event_kind::remote_expert, expert.tag, state_.now_ns - calls_.called_ns()});
    settle();
}

void cluster_node::call(const call_request &request) {
    calls_.add(request);
    if (cluster_node *server = emulator_.server_node(request.server))
        for (const expert_work &expert : request.experts) server->serving_.promise(expert.page);
    if (distances()[request.server] == MOORAGE_DISTANCE_OWN) return;
    activation_counts &counts = bucket();
    for (const expert_work &expert : request.experts) {
        counts.remote += expert.tokens;
        counts.local -= expert.tokens;
    }
}

void cluster_node::step(const moorage_step &view, const pass &, source &) {
    bucket().local += uint64_t{view.token_count} * view.top_k;
    emulator_.tell_watcher(*this, view);
}

activation_counts &cluster_node::bucket() {
    const size_t index =
        state_.options.bucket_ns == 0 ? 0 : state_.now_ns / state_.options.bucket_ns;
    if (index >= activations_.size()) activations_.resize(index + 1);
    return activations_[index];
}

}  // namespace moorage::core
