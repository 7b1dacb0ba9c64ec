// pipeline_learn.cpp - the facts that a run learns about itself: true costs, and policies that it
// can do without.
#include <algorithm>

#include "core/pipeline/pipeline.h"

namespace moorage::core {

// On a real executor: measured times correct the costs that policies are told.
void pipeline::learn(const completion &completion) {
    switch (completion.kind) {
        case event_kind::gate:
            return costs_.observe(
                cost_model::attention,
                costs_.attention_ns(pass_.tokens.size(), pass_.context(), pass_.sequences()),
                completion.duration_ns);
        case event_kind::device_expert: {
            const uint32_t tokens = work_.tokens_of(completion.tag);
            return costs_.observe(
                cost_model::device_expert,
                costs_.gpu_expert_ns(tokens, work_.share_of(completion.tag, completion.segments),
                                     work_.version_of(completion.tag)),
                completion.duration_ns);
        }
        case event_kind::cpu_expert:
            return costs_.observe(cost_model::cpu_expert,
                                  costs_.cpu_expert_ns(work_.tokens_of(completion.tag), 1),
                                  completion.duration_ns);
        case event_kind::piece: {
            const uint64_t bytes = transport_.piece_bytes(completion.tag);
            if (completion.tag == link_disk)
                return costs_.observe(cost_model::read, costs_.read_ns(bytes),
                                      completion.duration_ns);
            return costs_.observe(cost_model::load, costs_.load_ns(bytes), completion.duration_ns);
        }
        case event_kind::remote_expert:
        case event_kind::moved:
        case event_kind::prediction:
        case event_kind::hidden_states:
            return;
        case event_kind::head:
            // Once a pass is often enough for the readers.
            costs_.refresh(policy_costs_);
            dispatch_.update_unit_prices();
            return;
    }
}

void pipeline::begin_pass() {
    guard_.begin(pass_.phase);
    charge_to(0);
    begin_.pass_ns = now_ns();
    work_.begin_pass();
    account_.pass_begins(pass_, now_ns());
    executor_.begin(pass_);
    step_.begin_pass(pass_);
    if (listeners_.events)
        listeners_.events->pass_begins(pass_, account_.tokens, transport_.loaded_bytes(), now_ns());
}

// Shows a completion, before it is handled.
void pipeline::show(const completion &completion) {
    if (completion.kind == event_kind::piece)
        return listeners_.events->copied(transport_.next_to_end(completion.tag),
                                         transport_.piece_bytes(completion.tag),
                                         completion.duration_ns, now_ns());
    if (account_.virtual_time) return;  // the executor shows it to the nanosecond
    const bool expert = completion.kind == event_kind::device_expert ||
                        completion.kind == event_kind::cpu_expert ||
                        completion.kind == event_kind::moved;
    listeners_.events->computed(completion.kind, layer(),
                                expert ? work_.page_of(completion.tag) : MOORAGE_NONE,
                                completion.duration_ns, now_ns());
}

void pipeline::show_pass() {
    charge_to(source_.layers());
    expert_counts sum;
    for (const layer_report &layer : account_.layers) sum += layer.experts;
    uint64_t waiting_bytes = 0;
    for (uint32_t device = 0; device < memories_.devices(); ++device)
        waiting_bytes += transport_.demand_backlog_bytes(h2d_of(device));
    listeners_.events->pass_ended(
        pass_,
        {sum.requested, sum.hits, transport_.loaded_bytes(), waiting_bytes, account_.spent()},
        now_ns());
}

void pipeline::update_guard() {
    uint64_t substituted = 0;
    for (const layer_report &layer : account_.layers) substituted += layer.experts.substituted;
    if (substituted != begin_.substituted) guard_.note_effect(guard::substitution);
    if (account_.bytes.prefetched != begin_.prefetched_bytes) guard_.note_effect(guard::prefetch);
    begin_.substituted = substituted;
    begin_.prefetched_bytes = account_.bytes.prefetched;
    guard_.end(pass_.tokens.size(), now_ns() - begin_.pass_ns);
}

}  // namespace moorage::core
