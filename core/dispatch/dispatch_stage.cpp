// dispatch_stage.cpp - prices the items, asks the policy, checks its answer.
#include "core/dispatch/dispatch_stage.h"

#include <algorithm>
#include <cassert>

#include "core/base/few.h"
#include "core/base/text.h"
#include "core/dispatch/machine_table.h"

namespace moorage::core {

dispatch_stage::dispatch_stage(instance &policy, fault_log &faults, const device_costs &costs,
                               const memories &truth, peers *others, uint32_t items_max)
    : policy_(policy),
      faults_(faults),
      each_(costs),
      costs_(costs.first),
      truth_(truth),
      others_(others),
      machine_(table_of_devices(truth.devices(),
                                others ? others->distances() : std::span<const uint8_t>())),
      cpu_(truth.devices()) {
    for (auto *array : {&experts_, &tokens_, &device_}) array->resize(items_max);
    for (auto *array : {&devices_, &order_}) array->resize(items_max);
    default_devices_.resize(items_max);
    if (others_) {
        const size_t offers_max = size_t{items_max} * others_->servers();
        offers_.reserve(others_->servers());
        remote_first_.reserve(items_max + 1);
        remote_devices_.reserve(offers_max);
        for (auto *array : {&remote_ns_, &once_ns_}) array->reserve(offers_max);
    }
    for (auto *array : {&load_ns_, &gpu_ns_, &cpu_ns_}) array->resize(items_max);
    missing_.resize(items_max);
    seen_.resize(items_max);
    scores_.resize(items_max);
    if (truth.devices() > 1) {
        device_backlog_ns_.resize(truth.devices());
        device_once_ns_.resize(truth.devices());
    }
    describe();
    price();
}

// Fills the parts of the table that are the same in every step. The arrays never move.
void dispatch_stage::describe() {
    table_lent_ = table_.lent();
    scores_lent_ = lent(scores_);
    table_->size = sizeof(moorage_items);
    table_->host_experts = lent(experts_);
    table_->host_tokens = lent(tokens_);
    table_->host_missing = lent(missing_);
    table_->host_load_ns = lent(load_ns_);
    table_->host_gpu_ns = lent(gpu_ns_);
    table_->host_cpu_ns = lent(cpu_ns_);
    table_->devices = static_cast<uint32_t>(machine_.size());
    table_->gpus = truth_.devices();
    table_->host_devices = lent(machine_);
    table_->host_device = lent(device_);
    if (truth_.devices() > 1) {
        table_->host_device_backlog_ns = lent(device_backlog_ns_);
        table_->host_device_once_ns = lent(device_once_ns_);
    }
    if (!others_) return;
    table_->flags = others_->serial() ? uint32_t{MOORAGE_ITEMS_SERIAL} : 0u;
    table_->host_remote_ns = lent(remote_ns_);
    table_->host_remote_first = lent(remote_first_);
    table_->host_remote_devices = lent(remote_devices_);
    table_->host_once_ns = lent(once_ns_);
}

void dispatch_stage::price() {
    gpu_one_ns_ = costs_.gpu_expert_ns(1, 1);
    cpu_one_ns_ = costs_.cpu_expert_ns(1, 1);
}

// Writes the items as the policy sees them, with the possible times of each on each device.
void dispatch_stage::price(const layer_step &step, const std::vector<step_item> &items) {
    const moorage_step &view = step.view();
    count_ = static_cast<uint32_t>(items.size());
    assert(count_ <= experts_.size());
    if (others_) {
        remote_first_.clear();
        remote_devices_.clear();
        remote_ns_.clear();
        once_ns_.clear();
    }
    // The addresses of the arrays are read once, because a stored byte could alias anything.
    uint32_t *const experts = experts_.data(), *const tokens = tokens_.data();
    uint64_t *const load_ns = load_ns_.data(), *const gpu_ns = gpu_ns_.data();
    uint64_t *const cpu_ns = cpu_ns_.data();
    uint8_t *const missing = missing_.data();
    for (uint32_t i = 0, count = count_; i < count; ++i) {
        const step_item &item = items[i];
        experts[i] = item.expert;
        tokens[i] = item.tokens;
        missing[i] = item.missing;
        load_ns[i] = item.missing ? costs_.load_ns(item.load_left_bytes) + item.read_ns : 0;
        gpu_ns[i] = item.tokens == 1 ? gpu_one_ns_ : costs_.gpu_expert_ns(item.tokens, 1);
        cpu_ns[i] =
            item.read_ns + (item.tokens == 1 ? cpu_one_ns_ : costs_.cpu_expert_ns(item.tokens, 1));
    }
    if (view.host_distinct_scores)
        for (uint32_t i = 0; i < count_; ++i)
            scores_[i] = view.host_distinct_scores[step.item_of(items[i].expert)];
    if (others_)
        for (uint32_t i = 0; i < count_; ++i) {
            default_devices_[i] = 0;
            find_offers(items[i], i, view.token_count);
        }
    if (others_) remote_first_.push_back(static_cast<uint32_t>(remote_devices_.size()));
    if (truth_.devices() > 1) price_devices(step, items);
    assign_default();
}

// On the device that each item belongs to.
void dispatch_stage::price_devices(const layer_step &step, const std::vector<step_item> &items) {
    for (uint32_t i = 0; i < count_; ++i) {
        const step_item &item = items[i];
        const uint32_t device = truth_.device_of(item.page);
        if (default_devices_[i] < cpu_) default_devices_[i] = device;
        device_[i] = device;
        const cost_model &costs = each_.of(device);
        gpu_ns_[i] = costs.gpu_expert_ns(item.tokens, 1);
        if (item.missing) load_ns_[i] = costs.load_ns(item.load_left_bytes) + item.read_ns;
    }
    const uint32_t tokens = step.view().token_count;
    for (uint32_t device = 1; device < truth_.devices(); ++device) {
        const cost_model &costs = each_.of(device);
        device_once_ns_[device] = costs.there_ns(tokens) + costs.back_ns(tokens);
    }
}

// Finds the servers that have an absent expert. If the home cannot even load the expert, the
// fastest server is the default.
void dispatch_stage::find_offers(const step_item &item, uint32_t index, uint32_t step_tokens) {
    remote_first_.push_back(static_cast<uint32_t>(remote_devices_.size()));
    if (item.missing == 0) return;
    offers_.clear();
    others_->offers(item.page, item.tokens, step_tokens, offers_);
    uint64_t least_ns = MOORAGE_NEVER;
    uint32_t best = 0;
    for (const remote_offer &offer : offers_) {
        const uint32_t device = cpu_ + 1 + offer.server;
        remote_devices_.push_back(device);
        remote_ns_.push_back(offer.all_ns);
        once_ns_.push_back(offer.once_ns);
        if (offer.all_ns < least_ns) least_ns = offer.all_ns, best = device;
    }
    const bool under_way = item.transfers[0] != MOORAGE_NONE || item.transfers[1] != MOORAGE_NONE;
    if (under_way || others_->loads()) return;
    load_ns_[index] = MOORAGE_NEVER;
    default_devices_[index] = best;
}

void dispatch_stage::assign_default() {
    uint32_t *const devices = devices_.data(), *const order = order_.data();
    for (uint32_t i = 0, count = count_; i < count; ++i) {
        devices[i] = default_devices_[i];
        order[i] = i;
        as_written();
    }
}

bool dispatch_stage::assign(const layer_step &step, std::vector<step_item> &items,
                            uint64_t load_backlog_ns, uint64_t behind_backlog_ns,
                            std::span<const uint64_t> device_backlogs_ns) {
    price(step, items);
    std::copy(device_backlogs_ns.begin(), device_backlogs_ns.end(), device_backlog_ns_.begin());
    const moorage_step &view = step.view();
    const uint32_t count = count_;
    table_->count = count;
    table_->load_backlog_ns = load_backlog_ns;
    table_->behind_backlog_ns = behind_backlog_ns;
    table_->host_scores = view.host_distinct_scores ? scores_lent_ : nullptr;
    const uint32_t assigned =
        policy_.call(entry_point::assign, policy_.dispatch->assign, step.lent(), table_lent_,
                     devices_.data(), order_.data());
    if (assigned == 0) {
        faults_.no_advice(policy_.name());
        assign_default();
    } else if (assigned != count) {
        const std::string why = format("{} of {} items assigned", assigned, count);
        if (!replace_advice(view.layer, why)) return false;
    } else if (const uint32_t bad = first_wrong(); bad != MOORAGE_NONE) {
        if (!replace_advice(view.layer, objection(bad))) return false;
    }
    const uint32_t *const devices = devices_.data();
    for (uint32_t i = 0; i < count; ++i) {
        step_item &item = items[i];
        const uint32_t device = devices[i] & ~MOORAGE_AND_LOAD;
        item.site = device < cpu_ ? uint32_t{site_gpu} : device - cpu_ + site_cpu;
        item.behind =
            (devices[i] & MOORAGE_AND_LOAD) && item.missing != 0 && load_ns_[i] != MOORAGE_NEVER;
    }
    return true;
}

bool dispatch_stage::replace_advice(uint32_t layer, const std::string &why) {
    if (!faults_.report(policy_.name(), format("layer {}: {}", layer, why))) return false;
    assign_default();
    return true;
}

// Whether there is such a device that has the item or can have it.
bool dispatch_stage::runs_on(uint32_t item, uint32_t device) const {
    if (device <= cpu_)
        return (device == cpu_ || device == device_[item]) &&
               (missing_[item] == 0 || load_ns_[item] != MOORAGE_NEVER);
    if (!others_) return false;
    const auto begin = remote_devices_.begin() + remote_first_[item];
    const auto end = remote_devices_.begin() + remote_first_[item + 1];
    return std::binary_search(begin, end, device);
}

bool dispatch_stage::advice_stands(uint32_t item) const {
    const uint32_t device = devices_[item] & ~MOORAGE_AND_LOAD;
    return runs_on(item, device) && (device >= cpu_ || device == devices_[item]);
}

// The first place of the advice that cannot be followed, or MOORAGE_NONE.
uint32_t dispatch_stage::first_wrong() {
    const uint64_t now = ++seen_now_;
    const uint32_t *const devices = devices_.data(), *const order = order_.data();
    const uint8_t *const missing = missing_.data();
    const uint32_t cpu = cpu_;
    uint64_t *const seen = seen_.data();
    const uint64_t *const load_ns = load_ns_.data();
    for (uint32_t i = 0, count = count_; i < count; ++i) {
        const bool comes = missing[i] == 0 || (cpu == 1 && load_ns[i] != MOORAGE_NEVER);
        const bool plain = devices[i] < cpu && comes;
        if (!plain && !advice_stands(i)) return i;
        if (order[i] >= count || seen[order[i]] == now) return i;
        seen[order[i]] = now;
    }
    for (uint32_t i = 0; cpu > 1 && i < count_; ++i)
        if (!advice_stands(i)) return i;  // on another GPU than its own
    return MOORAGE_NONE;
}

std::string dispatch_stage::objection(uint32_t at) const {
    if (advice_stands(at))
        return format("the order of {} items names item {} twice or beyond the last", count_,
                      order_[at]);
    return format(
        "item {} (expert {}): it cannot be computed on device {}; {} is its GPU, {} the CPU (both "
        "need what is resident or in this host's memory), then come the {} remote servers, of "
        "which {} have the expert; to be loaded besides (MOORAGE_AND_LOAD) it cannot run on the "
        "GPU",
        at, experts_[at], devices_[at], device_[at], cpu_, others_ ? others_->servers() : 0,
        others_ ? remote_first_[at + 1] - remote_first_[at] : 0);
}

void dispatch_stage::tell(uint32_t layer, const std::vector<step_item> &items) {
    for (const step_item &item : items) {
        const uint32_t device =
            item.site == site_gpu ? truth_.device_of(item.page) : item.site - site_cpu + cpu_;
        const moorage_dispatched done{sizeof(done), 0,           layer,        item.expert,
                                      device,       item.tokens, item.load_ns, item.run_ns};
        policy_.call(entry_point::dispatch_outcome, policy_.dispatch->outcome, &done);
    }
}

}  // namespace moorage::core
