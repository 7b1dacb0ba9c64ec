// dispatch_stage.h - the dispatch stage: makes items of the step's experts and asks the policy
// where each runs.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/execute/cost_model.h"
#include "core/execute/peers.h"
#include "core/host/faults.h"
#include "core/host/fenced_memory.h"
#include "core/host/instance.h"
#include "core/source/layer_step.h"
#include "core/store/memories.h"

namespace moorage::core {

// The place where an item is computed: the GPU that owns it, the CPU, or, from site_remote on,
// a server. Policies name devices, and there may be several GPUs.
enum site : uint32_t { site_device = 0, site_cpu = 1, site_remote = 2 };

// Where the content of an item is when its step is over.
enum class item_residency : uint8_t {
    passing,         // gone, unless the cache finds a slot for it
    bypassing,       // gone: it asks for no slot
    loading_behind,  // computed elsewhere, and loaded into a slot for later steps
    cached           // in a slot that it holds or gets
};

// One distinct expert of the step, resident ones first.
struct step_item {
    uint32_t expert = 0, page = 0, tokens = 0;
    uint8_t missing = 0;  // segments that are not resident
    uint8_t version = 0;  // the version in which the device computes it; set if there are several
    uint32_t site = site_device;
    // The transfers of the top segment (or the whole) and of the bottom segment.
    uint32_t transfers[2] = {MOORAGE_NONE, MOORAGE_NONE};
    uint64_t load_left_bytes = 0;      // bytes still to load
    uint64_t read_ns = 0;              // time before the load: from disk to host memory
    uint64_t load_ns = 0, run_ns = 0;  // measured
    uint32_t computing_count = 0;      // computations under way
    item_residency residency = item_residency::passing;

    bool is_cached() const { return residency == item_residency::cached; }
    bool loads_behind() const { return residency == item_residency::loading_behind; }
    // Whether a transfer brought it to its device. Requires: it is missing.
    bool is_loaded() const {
        return site == site_device &&
               (transfers[0] != MOORAGE_NONE || transfers[1] != MOORAGE_NONE);
    }

    // Resets the item, except the missing segments and its residency. Writes member by member: an
    // item made elsewhere and copied in wider pieces would wait for the stores of its members.
    void reset(uint32_t its_expert, uint32_t its_page, uint32_t its_tokens) {
        expert = its_expert;
        page = its_page;
        tokens = its_tokens;
        site = site_device;
        transfers[0] = transfers[1] = MOORAGE_NONE;
        load_left_bytes = read_ns = load_ns = run_ns = 0;
        computing_count = 0;
    }
};

class dispatch_stage {
public:
    // `peers` may be null: there are no servers to call. All borrowed, with the costs of each
    // device.
    dispatch_stage(instance &policy, fault_log &faults, const device_costs &costs,
                   const memories &memories, peers *peers, uint32_t items_max);

    // Asks for a device and an order of `items`. Writes their sites into them and the order into
    // order(). Wrong advice is reported and replaced by the default: everything on the GPU, in the
    // given order. An item that cannot run there goes to the fastest server. [step]
    bool assign(const layer_step &step, std::vector<step_item> &items, uint64_t load_backlog_ns,
                uint64_t behind_backlog_ns, std::span<const uint64_t> device_backlogs_ns = {});
    std::span<const uint32_t> order() const { return {order_.data(), item_count_}; }
    // The cost model has changed.
    void update_unit_prices();
    // Tells the policy what each item took, if it wants to know. [step]
    void report_outcomes(uint32_t layer, const std::vector<step_item> &items) {
        if (policy_.dispatch->outcome) send_outcomes(layer, items);
    }

private:
    void fill_constant_table();
    void price_items(const layer_step &step, const std::vector<step_item> &items);
    void price_devices(const layer_step &step, const std::vector<step_item> &items);
    void find_offers(const step_item &item, uint32_t index, uint32_t step_tokens);
    void assign_default();
    void send_outcomes(uint32_t layer, const std::vector<step_item> &items);
    bool replace_advice(uint32_t layer, const std::string &error);
    uint32_t first_bad_item();
    bool is_advice_valid(uint32_t index) const;
    bool can_run_on(uint32_t index, uint32_t device) const;
    std::string advice_error(uint32_t index) const;

    instance &policy_;
    fault_log &faults_;
    const device_costs device_costs_;
    const cost_model &costs_;  // of the first device
    const memories &memories_;
    peers *peers_;
    std::vector<remote_offer> offers_;
    // As long as the largest step. The first `item_count_` belong to this step.
    uint32_t item_count_ = 0;
    const lent_vector<moorage_device> machine_devices_;
    const uint32_t cpu_;  // the device after the GPUs, before the servers
    std::vector<uint32_t> default_devices_;
    fenced_vector<uint32_t> item_devices_, order_;
    lent_record<moorage_items> table_;  // of the step; most of it never changes
    // The table as policies see it, and the parts that it does not show in every step.
    const moorage_items *table_lent_ = nullptr;
    const float *scores_lent_ = nullptr;
    lent_vector<uint32_t> remote_first_, remote_devices_, experts_, tokens_;
    lent_vector<uint64_t> remote_ns_, once_ns_, load_ns_, device_ns_, cpu_ns_;
    lent_vector<uint32_t> item_gpus_;  // of each item
    // For each device, if there are several.
    lent_vector<uint64_t> device_backlog_ns_, device_once_ns_;
    lent_vector<uint8_t> missing_;
    std::vector<uint64_t> seen_;  // seen in this step if equal to seen_mark_
    uint64_t seen_mark_ = 0;
    lent_vector<float> scores_;
    uint64_t device_one_token_ns_ = 0, cpu_one_token_ns_ = 0;
};

}  // namespace moorage::core
