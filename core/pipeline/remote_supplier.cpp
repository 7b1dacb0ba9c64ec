// remote_supplier.cpp - gathers the items of a server, counts their tokens, calls.
#include "core/pipeline/remote_supplier.h"

namespace moorage::core {

remote_supplier::remote_supplier(peers &peers, const layer_step &step, uint32_t items_max)
    : peers_(peers), step_(step) {
    waiting_.reserve(items_max);
    call_.reserve(items_max);
    site_of_.resize(items_max);
    tokens_.resize(peers_.servers());
}

uint32_t remote_supplier::start_taken(std::span<step_item> items) {
    if (waiting_.empty()) return 0;
    const auto begun = static_cast<uint32_t>(waiting_.size());
    count_tokens(items);
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
            ++item.computing_count;
        }
        waiting_.resize(left);
        peers_.call({server, step_.view().layer, tokens_[server].count, tokens_all_, call_});
    }
    return begun;
}

void remote_supplier::count(const step_item &item, layer_report &report) {
    if (item.site < site_remote) return;
    expert_counts &counts = report.experts;
    if (peers_.distances()[item.site - site_remote] != MOORAGE_DISTANCE_OWN) {
        ++counts.remote;
    } else if (item.missing == MOORAGE_WHOLE && item.transfers[0] == MOORAGE_NONE) {
        --counts.misses;
        ++counts.hits;
    }
}

// For each server the distinct tokens of the step that choose any of its experts.
void remote_supplier::count_tokens(std::span<const step_item> items) {
    for (const step_item &item : items) site_of_[item.expert] = item.site;
    for (const uint32_t index : waiting_) tokens_[items[index].site - site_remote] = {};
    tokens_all_ = 0;
    const moorage_step &view = step_.view();
    for (uint32_t token = 0; token < view.token_count; ++token) {
        const uint32_t *chosen = step_.computed().data() + size_t{token} * view.top_k;
        bool is_remote = false;
        for (uint32_t k = 0; k < view.top_k; ++k) {
            if (chosen[k] == MOORAGE_NONE) continue;  // dropped
            const uint32_t site = site_of_[chosen[k]];
            if (site < site_remote) continue;
            is_remote = true;
            token_count &server = tokens_[site - site_remote];
            server.count += server.seen != token + 1;
            server.seen = token + 1;
        }
        tokens_all_ += is_remote;
    }
}

}  // namespace moorage::core
