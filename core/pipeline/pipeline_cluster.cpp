// pipeline_cluster.cpp - one home among others: what it calls them for, what it computes for them.
#include <algorithm>

#include "core/pipeline/pipeline.h"

namespace moorage::core {

// One call to each server, in the order in which the policy first named it.
void pipeline::call_others() {
    count_remote_tokens();
    while (!remote_.empty()) {
        const uint32_t site = items_[remote_.front()].site, server = site - MOORAGE_SITE_REMOTE;
        call_.clear();
        size_t left = 0;
        for (const uint32_t index : remote_) {
            step_item &item = items_[index];
            if (item.site != site) {
                remote_[left++] = index;
                continue;
            }
            call_.push_back({item.page, item.tokens, 1, MOORAGE_NONE, index});
            ++item.open;
            ++open_;
        }
        remote_.resize(left);
        others_->call({server, layer(), remote_tokens_[server].count, remote_tokens_all_, call_});
    }
}

// For each server the distinct tokens of the step that choose any of its experts.
void pipeline::count_remote_tokens() {
    for (const step_item &item : items_) site_of_[item.expert] = item.site;
    for (const uint32_t index : remote_)
        remote_tokens_[items_[index].site - MOORAGE_SITE_REMOTE] = {};
    remote_tokens_all_ = 0;
    const moorage_step &view = step_.view();
    for (uint32_t token = 0; token < view.token_count; ++token) {
        const uint32_t *chosen = view.host_chosen + size_t{token} * view.top_k;
        bool any = false;
        for (uint32_t k = 0; k < view.top_k; ++k) {
            const uint32_t site = site_of_[chosen[k]];
            if (site < MOORAGE_SITE_REMOTE) continue;
            any = true;
            token_count &of = remote_tokens_[site - MOORAGE_SITE_REMOTE];
            of.count += of.seen != token + 1;
            of.seen = token + 1;
        }
        remote_tokens_all_ += any;
    }
}

bool pipeline::serve(expert_work work) {
    const instance::stepping mark;
    if (!truth_.whole(work.page)) {
        work.transfer = transport_.submit(owner::serve, link_h2d, work.page, MOORAGE_WHOLE,
                                          costs_.expert_bytes(1), now_ns());
        if (work.transfer == MOORAGE_NONE) return false;
    }
    executor_.expert_on_gpu(work);
    return true;
}

void pipeline::keep(uint32_t page) {
    // A step that has it computed elsewhere leaves it when it ends.
    if (truth_.pinned(page))
        if (const auto item = std::ranges::find(items_, page, &step_item::page);
            item != items_.end())
            item->cached = true;
    cache_.put(page);
    truth_.take_rows(page, MOORAGE_WHOLE, true);
}

bool pipeline::forget(uint32_t page) {
    if (truth_.state(page) != MOORAGE_WHOLE) return false;  // pinned, or something of it is coming
    cache_.take(page);
    return true;
}

}  // namespace moorage::core
