// dispatch_stage.cpp - prices the items, asks the policy, checks its answer.
#include "core/dispatch/dispatch_stage.h"

#include <algorithm>

#include "core/base/few.h"
#include "core/base/invariant.h"
#include "core/base/text.h"
#include "core/dispatch/machine_table.h"

namespace moorage::core {

dispatch_stage::dispatch_stage(instance &policy, fault_log &faults, const device_costs &costs,
                               const memories &memories, peers *peers, uint32_t items_max)
    : policy_(policy),
      faults_(faults),
      device_costs_(costs),
      costs_(costs.first),
      memories_(memories),
      peers_(peers),
      machine_devices_(table_of_devices(memories.devices(),
                                        peers ? peers->distances() : std::span<const uint8_t>())),
      cpu_(memories.devices()) {
    for (auto *array : {&experts_, &tokens_, &item_gpus_}) array->resize(items_max);
    for (auto *array : {&item_devices_, &order_}) array->resize(items_max);
    default_devices_.resize(items_max);
    if (peers_) {
        const size_t offers_max = size_t{items_max} * peers_->servers();
        offers_.reserve(peers_->servers());
        remote_first_.reserve(items_max + 1);
        remote_devices_.reserve(offers_max);
        for (auto *array : {&remote_ns_, &once_ns_}) array->reserve(offers_max);
    }
    for (auto *array : {&load_ns_, &device_ns_, &cpu_ns_}) array->resize(items_max);
    missing_.resize(items_max);
    seen_.resize(items_max);
    scores_.resize(items_max);
    if (memories.devices() > 1) {
        device_backlog_ns_.resize(memories.devices());
        device_once_ns_.resize(memories.devices());
    }
    fill_constant_table();
    update_unit_prices();
}

// Fills the parts of the table that are the same in every step. The arrays never move.
void dispatch_stage::fill_constant_table() {
    table_lent_ = table_.lent();
    scores_lent_ = lent(scores_);
    table_->size = sizeof(moorage_items);
    table_->host_experts = lent(experts_);
    table_->host_tokens = lent(tokens_);
    table_->host_missing = lent(missing_);
    table_->host_load_ns = lent(load_ns_);
    table_->host_gpu_ns = lent(device_ns_);
    table_->host_cpu_ns = lent(cpu_ns_);
    table_->devices = static_cast<uint32_t>(machine_devices_.size());
    table_->gpus = memories_.devices();
    table_->host_devices = lent(machine_devices_);
    table_->host_device = lent(item_gpus_);
    if (memories_.devices() > 1) {
        table_->host_device_backlog_ns = lent(device_backlog_ns_);
        table_->host_device_once_ns = lent(device_once_ns_);
    }
    if (!peers_) return;
    table_->flags = peers_->is_serial() ? uint32_t{MOORAGE_ITEMS_SERIAL} : 0u;
    table_->host_remote_ns = lent(remote_ns_);
    table_->host_remote_first = lent(remote_first_);
    table_->host_remote_devices = lent(remote_devices_);
    table_->host_once_ns = lent(once_ns_);
}

void dispatch_stage::update_unit_prices() {
    device_one_token_ns_ = costs_.gpu_expert_ns(1, 1);
    cpu_one_token_ns_ = costs_.cpu_expert_ns(1, 1);
}

// Writes the items as the policy sees them, with the possible times of each on each device.
void dispatch_stage::price_items(const layer_step &step, const std::vector<step_item> &items) {
    const moorage_step &view = step.view();
    item_count_ = static_cast<uint32_t>(items.size());
    MOORAGE_INVARIANT(item_count_ <= experts_.size());
    if (peers_) {
        remote_first_.clear();
        remote_devices_.clear();
        remote_ns_.clear();
        once_ns_.clear();
    }
    // The addresses of the arrays are read once, because a stored byte could alias anything.
    uint32_t *const experts = experts_.data(), *const tokens = tokens_.data();
    uint64_t *const load_ns = load_ns_.data(), *const gpu_ns = device_ns_.data();
    uint64_t *const cpu_ns = cpu_ns_.data();
    uint8_t *const missing = missing_.data();
    for (uint32_t i = 0, count = item_count_; i < count; ++i) {
        const step_item &item = items[i];
        experts[i] = item.expert;
        tokens[i] = item.tokens;
        missing[i] = item.missing;
        load_ns[i] = item.missing ? costs_.load_ns(item.load_left_bytes) + item.read_ns : 0;
        gpu_ns[i] = item.tokens == 1 ? device_one_token_ns_ : costs_.gpu_expert_ns(item.tokens, 1);
        cpu_ns[i] = item.read_ns +
                    (item.tokens == 1 ? cpu_one_token_ns_ : costs_.cpu_expert_ns(item.tokens, 1));
    }
    if (view.host_distinct_scores)
        for (uint32_t i = 0; i < item_count_; ++i)
            scores_[i] = view.host_distinct_scores[step.item_of(items[i].expert)];
    if (peers_)
        for (uint32_t i = 0; i < item_count_; ++i) {
            default_devices_[i] = 0;
            find_offers(items[i], i, view.token_count);
        }
    if (peers_) remote_first_.push_back(static_cast<uint32_t>(remote_devices_.size()));
    if (memories_.devices() > 1) price_devices(step, items);
    assign_default();
}

// On the device that each item belongs to.
void dispatch_stage::price_devices(const layer_step &step, const std::vector<step_item> &items) {
    for (uint32_t i = 0; i < item_count_; ++i) {
        const step_item &item = items[i];
        const uint32_t device = memories_.device_of(item.page);
        if (default_devices_[i] < cpu_) default_devices_[i] = device;
        item_gpus_[i] = device;
        const cost_model &costs = device_costs_.of_device(device);
        device_ns_[i] = costs.gpu_expert_ns(item.tokens, 1);
        if (item.missing) load_ns_[i] = costs.load_ns(item.load_left_bytes) + item.read_ns;
    }
    const uint32_t tokens = step.view().token_count;
    for (uint32_t device = 1; device < memories_.devices(); ++device) {
        const cost_model &costs = device_costs_.of_device(device);
        device_once_ns_[device] = costs.states_out_ns(tokens) + costs.results_back_ns(tokens);
    }
}

// Finds the servers that have an absent expert. If the home cannot even load the expert, the
// fastest server is the default.
void dispatch_stage::find_offers(const step_item &item, uint32_t index, uint32_t step_tokens) {
    remote_first_.push_back(static_cast<uint32_t>(remote_devices_.size()));
    if (item.missing == 0) return;
    offers_.clear();
    peers_->offers(item.page, item.tokens, step_tokens, offers_);
    uint64_t least_ns = MOORAGE_NEVER;
    uint32_t best_device = 0;
    for (const remote_offer &offer : offers_) {
        const uint32_t device = cpu_ + 1 + offer.server;
        remote_devices_.push_back(device);
        remote_ns_.push_back(offer.total_ns);
        once_ns_.push_back(offer.once_ns);
        if (offer.total_ns < least_ns) least_ns = offer.total_ns, best_device = device;
    }
    const bool under_way = item.transfers[0] != MOORAGE_NONE || item.transfers[1] != MOORAGE_NONE;
    if (under_way || peers_->can_load()) return;
    load_ns_[index] = MOORAGE_NEVER;
    default_devices_[index] = best_device;
}

void dispatch_stage::assign_default() {
    uint32_t *const devices = item_devices_.data(), *const order = order_.data();
    for (uint32_t i = 0, count = item_count_; i < count; ++i) {
        devices[i] = default_devices_[i];
        order[i] = i;
        prevent_vectorising();
    }
}

bool dispatch_stage::assign(const layer_step &step, std::vector<step_item> &items,
                            uint64_t load_backlog_ns, uint64_t behind_backlog_ns,
                            std::span<const uint64_t> device_backlogs_ns) {
    price_items(step, items);
    std::copy(device_backlogs_ns.begin(), device_backlogs_ns.end(), device_backlog_ns_.begin());
    const moorage_step &view = step.view();
    const uint32_t count = item_count_;
    table_->count = count;
    table_->load_backlog_ns = load_backlog_ns;
    table_->behind_backlog_ns = behind_backlog_ns;
    table_->host_scores = view.host_distinct_scores ? scores_lent_ : nullptr;
    const uint32_t assigned =
        policy_.call(entry_point::dispatch_assign, policy_.dispatch->assign, step.lent(),
                     table_lent_, item_devices_.data(), order_.data());
    if (assigned == 0) {
        faults_.note_no_advice(policy_.name());
        assign_default();
    } else if (assigned != count) {
        const std::string error = format("{} of {} items assigned", assigned, count);
        if (!replace_advice(view.layer, error)) return false;
    } else if (const uint32_t bad = first_bad_item(); bad != MOORAGE_NONE) {
        if (!replace_advice(view.layer, advice_error(bad))) return false;
    }
    const uint32_t *const devices = item_devices_.data();
    for (uint32_t i = 0; i < count; ++i) {
        step_item &item = items[i];
        const uint32_t device = devices[i] & ~MOORAGE_AND_LOAD;
        item.site = device < cpu_ ? uint32_t{site_device} : device - cpu_ + site_cpu;
        if ((devices[i] & MOORAGE_AND_LOAD) && item.missing != 0 && !item.is_cached() &&
            load_ns_[i] != MOORAGE_NEVER)
            item.residency = item_residency::loading_behind;
    }
    return true;
}

bool dispatch_stage::replace_advice(uint32_t layer, const std::string &error) {
    if (!faults_.report(policy_.name(), format("layer {}: {}", layer, error))) return false;
    assign_default();
    return true;
}

// Whether there is such a device that has the item or can have it.
bool dispatch_stage::can_run_on(uint32_t index, uint32_t device) const {
    if (device <= cpu_)
        return (device == cpu_ || device == item_gpus_[index]) &&
               (missing_[index] == 0 || load_ns_[index] != MOORAGE_NEVER);
    if (!peers_) return false;
    const auto begin = remote_devices_.begin() + remote_first_[index];
    const auto end = remote_devices_.begin() + remote_first_[index + 1];
    return std::binary_search(begin, end, device);
}

bool dispatch_stage::is_advice_valid(uint32_t index) const {
    const uint32_t device = item_devices_[index] & ~MOORAGE_AND_LOAD;
    return can_run_on(index, device) && (device >= cpu_ || device == item_devices_[index]);
}

// The first place of the advice that cannot be followed, or MOORAGE_NONE.
uint32_t dispatch_stage::first_bad_item() {
    const uint64_t mark = ++seen_mark_;
    const uint32_t *const devices = item_devices_.data(), *const order = order_.data();
    const uint8_t *const missing = missing_.data();
    const uint32_t cpu = cpu_;
    uint64_t *const seen = seen_.data();
    const uint64_t *const load_ns = load_ns_.data();
    for (uint32_t i = 0, count = item_count_; i < count; ++i) {
        const bool gpu_can_run = missing[i] == 0 || (cpu == 1 && load_ns[i] != MOORAGE_NEVER);
        const bool plain = devices[i] < cpu && gpu_can_run;
        if (!plain && !is_advice_valid(i)) return i;
        if (order[i] >= count || seen[order[i]] == mark) return i;
        seen[order[i]] = mark;
    }
    for (uint32_t i = 0; cpu > 1 && i < item_count_; ++i)
        if (!is_advice_valid(i)) return i;  // on another GPU than its own
    return MOORAGE_NONE;
}

std::string dispatch_stage::advice_error(uint32_t index) const {
    if (is_advice_valid(index))
        return format("the order of {} items names item {} twice or beyond the last", item_count_,
                      order_[index]);
    return format(
        "item {} (expert {}): it cannot be computed on device {}; {} is its GPU, {} the CPU (both "
        "need what is resident or in this host's memory), then come the {} remote servers, of "
        "which {} have the expert; to be loaded besides (MOORAGE_AND_LOAD) it cannot run on the "
        "GPU",
        index, experts_[index], item_devices_[index], item_gpus_[index], cpu_,
        peers_ ? peers_->servers() : 0,
        peers_ ? remote_first_[index + 1] - remote_first_[index] : 0);
}

void dispatch_stage::send_outcomes(uint32_t layer, const std::vector<step_item> &items) {
    for (const step_item &item : items) {
        const uint32_t device =
            item.site == site_device ? memories_.device_of(item.page) : item.site - site_cpu + cpu_;
        const moorage_dispatched outcome{sizeof(outcome), 0,           layer,        item.expert,
                                         device,          item.tokens, item.load_ns, item.run_ns};
        policy_.call(entry_point::dispatch_outcome, policy_.dispatch->outcome, &outcome);
    }
}

}  // namespace moorage::core
