// pipeline_learn.cpp - the facts that a run learns about itself: true costs, and policies that it
// can do without.
#include <algorithm>

#include "core/pipeline/pipeline.h"

namespace moorage::core {

// On a real executor: measured times correct the costs that policies are told.
void pipeline::learn(const completion &done) {
    switch (done.kind) {
        case event_kind::gate:
            return costs_.observe(
                cost_model::attention,
                costs_.attention_ns(pass_.tokens.size(), pass_.context(), pass_.sequences()),
                done.duration_ns);
        case event_kind::gpu_expert: {
            const uint32_t tokens = work_.tokens_of(done.tag);
            return costs_.observe(
                cost_model::gpu_expert,
                costs_.gpu_expert_ns(tokens, work_.share_of(done.tag, done.segments),
                                     work_.version_of(done.tag)),
                done.duration_ns);
        }
        case event_kind::cpu_expert:
            return costs_.observe(cost_model::cpu_expert,
                                  costs_.cpu_expert_ns(work_.tokens_of(done.tag), 1),
                                  done.duration_ns);
        case event_kind::piece: {
            const uint64_t bytes = transport_.piece_bytes(done.tag);
            if (done.tag == link_disk)
                return costs_.observe(cost_model::read, costs_.read_ns(bytes), done.duration_ns);
            return costs_.observe(cost_model::load, costs_.load_ns(bytes), done.duration_ns);
        }
        case event_kind::remote_expert:
        case event_kind::moved:
        case event_kind::prediction:
        case event_kind::hidden_states:
            return;
        case event_kind::head:
            // Once a pass is often enough for the readers.
            costs_.refresh(shown_);
            dispatch_.price();
            return;
    }
}

void pipeline::begin_pass() {
    guard_.begin(pass_.phase);
    charge_to(0);
    before_.pass_ns = now_ns();
    work_.begin_pass();
    account_.pass_begins(pass_, now_ns());
    executor_.begin(pass_);
    step_.enter(pass_);
    if (told_.events)
        told_.events->pass_begins(pass_, account_.tokens, transport_.loaded_bytes(), now_ns());
}

// Shows a completion, before it is handled.
void pipeline::show(const completion &done) {
    if (done.kind == event_kind::piece)
        return told_.events->copied(transport_.next_to_end(done.tag),
                                    transport_.piece_bytes(done.tag), done.duration_ns, now_ns());
    if (account_.virtual_time) return;  // the executor shows it to the nanosecond
    const bool expert = done.kind == event_kind::gpu_expert ||
                        done.kind == event_kind::cpu_expert || done.kind == event_kind::moved;
    told_.events->computed(done.kind, layer(), expert ? work_.page_of(done.tag) : MOORAGE_NONE,
                           done.duration_ns, now_ns());
}

void pipeline::show_pass() {
    charge_to(source_.layers());
    expert_counts sum;
    for (const layer_report &layer : account_.layers) sum += layer.experts;
    uint64_t waiting_bytes = 0;
    for (uint32_t device = 0; device < truth_.devices(); ++device)
        waiting_bytes += transport_.demand_backlog_bytes(h2d_of(device));
    told_.events->pass_ended(
        pass_,
        {sum.requested, sum.hits, transport_.loaded_bytes(), waiting_bytes, account_.spent()},
        now_ns());
}

void pipeline::compare_pass() {
    uint64_t substituted = 0;
    for (const layer_report &layer : account_.layers) substituted += layer.experts.substituted;
    if (substituted != before_.substituted) guard_.matters(guard::substitution);
    if (account_.bytes.prefetched != before_.prefetched_bytes) guard_.matters(guard::prefetch);
    before_.substituted = substituted;
    before_.prefetched_bytes = account_.bytes.prefetched;
    guard_.end(pass_.tokens.size(), now_ns() - before_.pass_ns);
}

}  // namespace moorage::core
