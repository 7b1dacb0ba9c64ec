// dispatch_stage.cpp - prices the items, asks the policy, checks its answer.
#include "core/dispatch/dispatch_stage.h"

#include <algorithm>
#include <cassert>

#include "core/base/text.h"

namespace moorage::core {

dispatch_stage::dispatch_stage(instance &policy, fault_log &faults, const device_costs &costs,
                               const memories &truth, peers *others, uint32_t items_max)
    : policy_(policy),
      faults_(faults),
      each_(costs),
      costs_(costs.first),
      truth_(truth),
      others_(others) {
    for (auto *array : {&experts_, &tokens_}) array->resize(items_max);
    for (auto *array : {&sites_, &order_}) array->resize(items_max);
    default_sites_.resize(items_max);
    if (others_) {
        const size_t offers_max = size_t{items_max} * others_->servers();
        offers_.reserve(others_->servers());
        remote_first_.reserve(items_max + 1);
        remote_servers_.reserve(offers_max);
        for (auto *array : {&remote_ns_, &once_ns_}) array->reserve(offers_max);
    }
    for (auto *array : {&load_ns_, &gpu_ns_, &cpu_ns_}) array->resize(items_max);
    missing_.resize(items_max);
    seen_.resize(items_max);
    scores_.resize(items_max);
    if (truth.devices() > 1) {
        device_.resize(items_max);
        device_backlog_ns_.resize(truth.devices());
        device_once_ns_.resize(truth.devices());
    }
    describe();
    price();
}

// What of the table is the same in every step: the arrays never move.
void dispatch_stage::describe() {
    table_->size = sizeof(moorage_items);
    table_->host_experts = lent(experts_);
    table_->host_tokens = lent(tokens_);
    table_->host_missing = lent(missing_);
    table_->host_load_ns = lent(load_ns_);
    table_->host_gpu_ns = lent(gpu_ns_);
    table_->host_cpu_ns = lent(cpu_ns_);
    table_->devices = truth_.devices();
    if (truth_.devices() > 1) {
        table_->host_device = lent(device_);
        table_->host_device_backlog_ns = lent(device_backlog_ns_);
        table_->host_device_once_ns = lent(device_once_ns_);
    }
    if (!others_) return;
    table_->flags = others_->serial() ? uint32_t{MOORAGE_ITEMS_SERIAL} : 0u;
    table_->servers = others_->servers();
    table_->host_remote_ns = lent(remote_ns_);
    table_->host_remote_first = lent(remote_first_);
    table_->host_remote_servers = lent(remote_servers_);
    table_->host_once_ns = lent(once_ns_);
    table_->host_distance = lent(others_->distances().data());
}

void dispatch_stage::price() {
    gpu_one_ns_ = costs_.gpu_expert_ns(1, 1);
    cpu_one_ns_ = costs_.cpu_expert_ns(1, 1);
}

// Lays the items out as the policy sees them, with what each could take where.
void dispatch_stage::price(const layer_step &step, const std::vector<step_item> &items) {
    const moorage_step &view = step.view();
    count_ = static_cast<uint32_t>(items.size());
    assert(count_ <= experts_.size());
    if (others_) {
        remote_first_.clear();
        remote_servers_.clear();
        remote_ns_.clear();
        once_ns_.clear();
    }
    for (uint32_t i = 0; i < count_; ++i) {
        const step_item &item = items[i];
        experts_[i] = item.expert;
        tokens_[i] = item.tokens;
        missing_[i] = item.missing;
        load_ns_[i] = item.missing ? costs_.load_ns(item.load_left_bytes) + item.read_ns : 0;
        gpu_ns_[i] = item.tokens == 1 ? gpu_one_ns_ : costs_.gpu_expert_ns(item.tokens, 1);
        cpu_ns_[i] =
            item.read_ns + (item.tokens == 1 ? cpu_one_ns_ : costs_.cpu_expert_ns(item.tokens, 1));
        if (view.host_distinct_scores)
            scores_[i] = view.host_distinct_scores[step.item_of(item.expert)];
        default_sites_[i] = MOORAGE_SITE_GPU;
        if (others_) find_offers(item, i, view.token_count);
    }
    if (others_) remote_first_.push_back(static_cast<uint32_t>(remote_servers_.size()));
    if (!device_.empty()) price_devices(step, items);
    assign_default();
}

// On the device that each item belongs to.
void dispatch_stage::price_devices(const layer_step &step, const std::vector<step_item> &items) {
    for (uint32_t i = 0; i < count_; ++i) {
        const step_item &item = items[i];
        device_[i] = truth_.device_of(item.page);
        const cost_model &costs = each_.of(device_[i]);
        gpu_ns_[i] = costs.gpu_expert_ns(item.tokens, 1);
        if (item.missing) load_ns_[i] = costs.load_ns(item.load_left_bytes) + item.read_ns;
    }
    const uint32_t tokens = step.view().token_count;
    for (uint32_t device = 1; device < truth_.devices(); ++device) {
        const cost_model &costs = each_.of(device);
        device_once_ns_[device] = costs.there_ns(tokens) + costs.back_ns(tokens);
    }
}

// Who else has an absent expert. What the home cannot even load goes to the fastest by default.
void dispatch_stage::find_offers(const step_item &item, uint32_t index, uint32_t step_tokens) {
    remote_first_.push_back(static_cast<uint32_t>(remote_servers_.size()));
    if (item.missing == 0) return;
    offers_.clear();
    others_->offers(item.page, item.tokens, step_tokens, offers_);
    uint64_t least_ns = MOORAGE_NEVER;
    uint32_t best = MOORAGE_SITE_GPU;
    for (const remote_offer &offer : offers_) {
        remote_servers_.push_back(offer.server);
        remote_ns_.push_back(offer.all_ns);
        once_ns_.push_back(offer.once_ns);
        if (offer.all_ns < least_ns)
            least_ns = offer.all_ns, best = MOORAGE_SITE_REMOTE + offer.server;
    }
    const bool under_way = item.transfers[0] != MOORAGE_NONE || item.transfers[1] != MOORAGE_NONE;
    if (under_way || others_->can_load(item.page)) return;
    load_ns_[index] = MOORAGE_NEVER;
    default_sites_[index] = best;
}

void dispatch_stage::assign_default() {
    for (uint32_t i = 0; i < count_; ++i) {
        sites_[i] = default_sites_[i];
        order_[i] = i;
    }
}

bool dispatch_stage::assign(const layer_step &step, std::vector<step_item> &items,
                            uint64_t load_backlog_ns, uint64_t cpu_backlog_ns,
                            uint64_t behind_backlog_ns,
                            std::span<const uint64_t> device_backlogs_ns) {
    price(step, items);
    std::copy(device_backlogs_ns.begin(), device_backlogs_ns.end(), device_backlog_ns_.begin());
    const moorage_step &view = step.view();
    const uint32_t count = count_;
    table_->count = count;
    table_->load_backlog_ns = load_backlog_ns;
    table_->cpu_backlog_ns = cpu_backlog_ns;
    table_->behind_backlog_ns = behind_backlog_ns;
    table_->host_scores = view.host_distinct_scores ? lent(scores_) : nullptr;
    const uint32_t assigned =
        policy_.call(entry_point::assign, policy_.dispatch->assign, step.lent(), table_.lent(),
                     sites_.data(), order_.data());
    if (assigned == 0) {
        faults_.no_advice(policy_.name());
        assign_default();
    } else if (assigned != count) {
        const std::string why = format("{} of {} items assigned", assigned, count);
        if (!replace_advice(view.layer, why)) return false;
    } else if (const uint32_t bad = first_wrong(); bad != MOORAGE_NONE) {
        if (!replace_advice(view.layer, objection(bad))) return false;
    }
    for (size_t i = 0; i < count; ++i) {
        items[i].site = sites_[i] & ~MOORAGE_SITE_AND_LOAD;
        items[i].behind = (sites_[i] & MOORAGE_SITE_AND_LOAD) && items[i].missing != 0 &&
                          load_ns_[i] != MOORAGE_NEVER;
    }
    return true;
}

bool dispatch_stage::replace_advice(uint32_t layer, const std::string &why) {
    if (!faults_.report(policy_.name(), format("layer {}: {}", layer, why))) return false;
    assign_default();
    return true;
}

// Whether there is such a site that has the item or can have it.
bool dispatch_stage::runs_at(uint32_t item, uint32_t site) const {
    if (site < MOORAGE_SITE_REMOTE) return missing_[item] == 0 || load_ns_[item] != MOORAGE_NEVER;
    if (!others_) return false;
    const auto begin = remote_servers_.begin() + remote_first_[item];
    const auto end = remote_servers_.begin() + remote_first_[item + 1];
    return std::binary_search(begin, end, site - MOORAGE_SITE_REMOTE);
}

bool dispatch_stage::site_stands(uint32_t item) const {
    const uint32_t site = sites_[item] & ~MOORAGE_SITE_AND_LOAD;
    return runs_at(item, site) && (site != MOORAGE_SITE_GPU || site == sites_[item]);
}

// The first place of the advice that cannot be followed, or MOORAGE_NONE.
uint32_t dispatch_stage::first_wrong() {
    const uint64_t now = ++seen_now_;
    const uint32_t *const sites = sites_.data(), *const order = order_.data();
    const uint8_t *const missing = missing_.data();
    uint64_t *const seen = seen_.data();
    for (uint32_t i = 0, count = count_; i < count; ++i) {
        const bool plain = sites[i] == MOORAGE_SITE_GPU && missing[i] == 0;
        if (!plain && !site_stands(i)) return i;
        if (order[i] >= count || seen[order[i]] == now) return i;
        seen[order[i]] = now;
    }
    return MOORAGE_NONE;
}

std::string dispatch_stage::objection(uint32_t at) const {
    if (site_stands(at))
        return format("the order of {} items names item {} twice or beyond the last", count_,
                      order_[at]);
    return format(
        "item {} (expert {}): it cannot be computed at site {}; 0 is the GPU, 1 the CPU "
        "(both need what is resident or in this host's memory), from 2 on are the {} "
        "remote servers, of which {} have the expert; to be loaded besides "
        "(MOORAGE_SITE_AND_LOAD) it cannot run on the GPU",
        at, experts_[at], sites_[at], others_ ? others_->servers() : 0,
        others_ ? remote_first_[at + 1] - remote_first_[at] : 0);
}

void dispatch_stage::outcome(uint32_t layer, const std::vector<step_item> &items) {
    if (!policy_.dispatch->outcome) return;
    for (const step_item &item : items) {
        const moorage_dispatched done{sizeof(done), 0,           layer,        item.expert,
                                      item.site,    item.tokens, item.load_ns, item.run_ns};
        policy_.call(entry_point::dispatch_outcome, policy_.dispatch->outcome, &done);
    }
}

}  // namespace moorage::core
