// remote_calls.cpp - gathers the items of a server, counts their tokens, calls.
#include "core/pipeline/remote_calls.h"

namespace moorage::core {

remote_calls::remote_calls(peers *others, uint32_t items_max) : others_(others) {
    if (!others_) return;
    waiting_.reserve(items_max);
    call_.reserve(items_max);
    site_of_.resize(items_max);
    tokens_.resize(others_->servers());
}

uint32_t remote_calls::start(const layer_step &step, std::vector<step_item> &items) {
    const auto begun = static_cast<uint32_t>(waiting_.size());
    count_tokens(step, items);
    while (!waiting_.empty()) {
        const uint32_t site = items[waiting_.front()].site, server = site - site_remote;
        call_.clear();
        size_t left = 0;
        for (const uint32_t index : waiting_) {
            step_item &item = items[index];
            if (item.site != site) {
                waiting_[left++] = index;
                continue;
            }
            call_.push_back({item.page, item.tokens, 1, MOORAGE_NONE, index});
            ++item.open;
        }
        waiting_.resize(left);
        others_->call({server, step.view().layer, tokens_[server].count, tokens_all_, call_});
    }
    return begun;
}

void remote_calls::count(const step_item &item, expert_counts &counts) const {
    if (others_->distances()[item.site - site_remote] != MOORAGE_DISTANCE_OWN) {
        ++counts.remote;
    } else if (item.missing == MOORAGE_WHOLE && item.transfers[0] == MOORAGE_NONE) {
        --counts.misses;
        ++counts.hits;
    }
}

// For each server the distinct tokens of the step that choose any of its experts.
void remote_calls::count_tokens(const layer_step &step, const std::vector<step_item> &items) {
    for (const step_item &item : items) site_of_[item.expert] = item.site;
    for (const uint32_t index : waiting_) tokens_[items[index].site - site_remote] = {};
    tokens_all_ = 0;
    const moorage_step &view = step.view();
    for (uint32_t token = 0; token < view.token_count; ++token) {
        const uint32_t *chosen = step.computed().data() + size_t{token} * view.top_k;
        bool any = false;
        for (uint32_t k = 0; k < view.top_k; ++k) {
            if (chosen[k] == MOORAGE_NONE) continue;  // dropped
            const uint32_t site = site_of_[chosen[k]];
            if (site < site_remote) continue;
            any = true;
            token_count &of = tokens_[site - site_remote];
            of.count += of.seen != token + 1;
            of.seen = token + 1;
        }
        tokens_all_ += any;
    }
}

}  // namespace moorage::core
