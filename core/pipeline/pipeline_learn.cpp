// pipeline_learn.cpp - what a run learns of itself: true costs, and what it can do without.
#include <algorithm>

#include "core/pipeline/pipeline.h"

namespace moorage::core {

// On a real executor: what was timed corrects what policies are told things cost.
void pipeline::learn(const completion &done) {
    switch (done.kind) {
        case event_kind::gate:
            return costs_.observe(cost_model::attention,
                                  costs_.attention_ns(pass_.tokens.size(), pass_.context()),
                                  done.duration_ns);
        case event_kind::gpu_expert: {
            const uint32_t tokens = items_[done.tag].tokens;
            return costs_.observe(cost_model::gpu_expert,
                                  costs_.gpu_expert_ns(tokens, share(done.segments)),
                                  done.duration_ns);
        }
        case event_kind::cpu_expert:
            return costs_.observe(cost_model::cpu_expert,
                                  costs_.cpu_expert_ns(items_[done.tag].tokens, 1),
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
            return;
        case event_kind::head:
            // Once a pass is often enough for those who look.
            costs_.refresh(shown_);
            dispatch_.price();
            return;
    }
}

void pipeline::begin_pass() {
    guard_.begin(pass_.phase);
    charge_to(0);
    pass_begun_ns_ = now_ns();
    attention_ns_ = costs_.attention_ns(pass_.tokens.size(), pass_.context());
    account_.pass_begins(pass_, now_ns());
    executor_.begin(pass_);
}

void pipeline::compare_pass() {
    uint64_t substituted = 0;
    for (const layer_report &layer : account_.layers) substituted += layer.experts.substituted;
    if (substituted != substituted_before_) guard_.matters(guard::substitution);
    if (account_.bytes.prefetched != prefetched_before_) guard_.matters(guard::prefetch);
    substituted_before_ = substituted;
    prefetched_before_ = account_.bytes.prefetched;
    guard_.end(pass_.tokens.size(), now_ns() - pass_begun_ns_);
}

// Without the cache, absent experts are loaded into free slots only. The others are computed on the
// CPU, or, as prefill has many tokens for each, as the dispatch policy says, passing through
// without a slot. What a prefetch has brought in time is in fast memory already: decoding may keep
// it.
void pipeline::load_no_more() {
    uint32_t spare = truth_.free(truth_.pool_of_layer(layer()));
    const bool decodes = step_.view().phase == MOORAGE_DECODE;
    for (step_item &item : items_) {
        if (item.cached || (decodes && item.missing == 0)) continue;
        const bool stays_off = item.site != MOORAGE_SITE_GPU && item.missing != 0 && !item.behind;
        if (stays_off) continue;
        if (spare != 0) {
            --spare;
            continue;
        }
        item.behind = false;
        if (decodes) item.site = MOORAGE_SITE_CPU;
    }
}

}  // namespace moorage::core
