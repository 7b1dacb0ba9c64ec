// dispatch_stage.cpp - prices the items, asks the policy, checks its answer.
#include "core/dispatch/dispatch_stage.h"

#include <algorithm>
#include <numeric>

#include "core/base/text.h"

namespace moorage::core {

dispatch_stage::dispatch_stage(instance &policy, fault_log &faults, const cost_model &costs,
                               uint32_t items_max)
    : policy_(policy), faults_(faults), costs_(costs) {
    for (auto *array : {&experts_, &tokens_, &sites_, &order_}) array->reserve(items_max);
    for (auto *array : {&load_ns_, &gpu_ns_, &cpu_ns_}) array->reserve(items_max);
    missing_.reserve(items_max);
    seen_.reserve(items_max);
    scores_.reserve(items_max);
    price();
}

void dispatch_stage::price() {
    gpu_one_ns_ = costs_.gpu_expert_ns(1, 1);
    cpu_one_ns_ = costs_.cpu_expert_ns(1, 1);
}

bool dispatch_stage::assign(const layer_step &step, std::vector<step_item> &items,
                            uint64_t load_backlog_ns, uint64_t cpu_backlog_ns,
                            uint64_t behind_backlog_ns) {
    const size_t count = items.size();
    const moorage_step &view = step.view();
    for (auto *array : {&experts_, &tokens_, &sites_, &order_}) array->resize(count);
    for (auto *array : {&load_ns_, &gpu_ns_, &cpu_ns_}) array->resize(count);
    missing_.resize(count);
    scores_.resize(count);
    for (size_t i = 0; i < count; ++i) {
        const step_item &item = items[i];
        experts_[i] = item.expert;
        tokens_[i] = item.tokens;
        missing_[i] = item.missing;
        load_ns_[i] = item.missing ? costs_.load_ns(item.load_left_bytes) : 0;
        gpu_ns_[i] = item.tokens == 1 ? gpu_one_ns_ : costs_.gpu_expert_ns(item.tokens, 1);
        cpu_ns_[i] = item.tokens == 1 ? cpu_one_ns_ : costs_.cpu_expert_ns(item.tokens, 1);
        if (view.host_distinct_scores)
            scores_[i] = view.host_distinct_scores[step.item_of(item.expert)];
        sites_[i] = MOORAGE_SITE_GPU;
        order_[i] = static_cast<uint32_t>(i);
    }
    const moorage_items table{sizeof(table),
                              0,
                              static_cast<uint32_t>(count),
                              0,
                              load_backlog_ns,
                              cpu_backlog_ns,
                              experts_.data(),
                              tokens_.data(),
                              missing_.data(),
                              view.host_distinct_scores ? scores_.data() : nullptr,
                              load_ns_.data(),
                              gpu_ns_.data(),
                              cpu_ns_.data(),
                              nullptr,
                              behind_backlog_ns};
    const uint32_t assigned =
        policy_.dispatch->assign(policy_.plugin(), &view, &table, sites_.data(), order_.data());
    std::string why;
    if (assigned == 0 || (assigned == count && valid(why))) {
        if (assigned == 0) {
            std::fill(sites_.begin(), sites_.end(), uint32_t{MOORAGE_SITE_GPU});
            std::iota(order_.begin(), order_.end(), 0u);
        }
        for (size_t i = 0; i < count; ++i) {
            items[i].site = sites_[i] & ~MOORAGE_SITE_AND_LOAD;
            items[i].behind = (sites_[i] & MOORAGE_SITE_AND_LOAD) && items[i].missing != 0;
        }
        return true;
    }
    if (why.empty()) why = format("{} of {} items assigned", assigned, count);
    if (!faults_.report(policy_.name(), format("layer {}: {}", view.layer, why))) return false;
    std::iota(order_.begin(), order_.end(), 0u);
    for (step_item &item : items) item.site = MOORAGE_SITE_GPU;
    return true;
}

bool dispatch_stage::valid(std::string &why) {
    const size_t count = sites_.size();
    seen_.assign(count, 0);
    for (size_t i = 0; i < count; ++i) {
        const uint32_t site = sites_[i] & ~MOORAGE_SITE_AND_LOAD;
        if (site > MOORAGE_SITE_CPU || (site == MOORAGE_SITE_GPU && site != sites_[i])) {
            why = format(
                "item {}: site {} does not exist; 0 is the GPU, 1 the CPU, and there is no "
                "remote server; to be loaded besides (MOORAGE_SITE_AND_LOAD) it cannot run on the "
                "GPU",
                i, sites_[i]);
            return false;
        }
        if (order_[i] >= count || seen_[order_[i]]++) {
            why = format("the order of {} items names item {} twice or beyond the last", count,
                         order_[i]);
            return false;
        }
    }
    return true;
}

void dispatch_stage::outcome(uint32_t layer, const std::vector<step_item> &items) {
    if (!policy_.dispatch->outcome) return;
    for (const step_item &item : items) {
        const moorage_dispatched done{sizeof(done), 0,           layer,        item.expert,
                                      item.site,    item.tokens, item.load_ns, item.run_ns};
        policy_.dispatch->outcome(policy_.plugin(), &done);
    }
}

}  // namespace moorage::core
