// step_prefetch.cpp - predictions of later layers, and the loads that a step orders because of
// them.
#include "core/pipeline/step_work.h"

#include <algorithm>
#include <cassert>

namespace moorage::core {

// Predicts from what the first GPU has by then: shared experts, and whole resident experts.
void step_work::predict() {
    next_layer_.predict_from.clear();
    for (const step_item &item : items_)
        if (item.site == site_device && item.missing == 0 && memories_.device_of(item.page) == 0)
            next_layer_.predict_from.push_back(item.expert);
    executor_.predict(layer(), pass_, next_layer_.predict_from);
    next_layer_.predicting = true;
    ++queue_.open_operations;
}

void step_work::plan_prefetch() {
    next_layer_.predicted = true;
    account_.timed([&] {
        const uint64_t backlog_ns = load_backlog_ns();
        prefetch_.plan(step_, pass_, window_ns(backlog_ns), backlog_ns, held_frames());
        return order_outside_buffer();
    });
}

// A fault that ends the run shows in the log of faults.
bool step_work::order_outside_buffer() {
    bool goes_on = true;
    prefetch_.for_each_elsewhere([&](uint32_t page, uint8_t place) {
        if (place == MOORAGE_PLACE_HOST)
            for (const auto &supplier : suppliers_) supplier->bring(page);
        if (place == MOORAGE_PLACE_SLOT && goes_on) goes_on = prefetch_into_slot(page);
    });
    return goes_on;
}

// Passes may fill the frames of free slots. Then there is no place for the page.
bool step_work::prefetch_into_slot(uint32_t page) {
    const ledger &ledger = memories_.ledger_of_page(page);
    const uint32_t layer = ledger.rows().layer_of(page);
    const bool needs_frame = ledger.free_slots(ledger.pool_of_layer(layer)) != 0;
    if (!guard_.is_on(guard::cache) || ledger.state(page) != 0) return true;
    if (needs_frame && !ledger.has_room(page, ledger.rows().cached_segments(layer), true))
        return true;
    return behind_.start(owner::slot_prefetch, {&page, 1}, slots_.started);
}

// The backlog of the link that has most of it.
uint64_t step_work::load_backlog_ns() {
    const uint64_t bytes = transport_.demand_backlog_bytes(link_h2d);
    uint64_t longest_ns = next_layer_.backlogs_ns[0] = bytes == 0 ? 0 : costs().load_ns(bytes);
    for (uint32_t device = 1; device < run_.devices; ++device) {
        const uint64_t device_bytes = transport_.demand_backlog_bytes(h2d_of(device));
        next_layer_.backlogs_ns[device] =
            device_bytes == 0 ? 0 : device_costs_.of_device(device).load_ns(device_bytes);
        longest_ns = std::max(longest_ns, next_layer_.backlogs_ns[device]);
    }
    return longest_ns;
}

// The time until the next layer is routed, as far as it can be foreseen: the longer of the
// remaining work of the link and of the GPU for this layer, then attention and the hand-over of the
// gate's result.
uint64_t step_work::window_ns(uint64_t backlog_ns) const {
    uint64_t gpu_ns = 0;
    for (uint32_t device = 0; device < run_.devices; ++device) {
        uint64_t device_ns = 0;
        for (const step_item &item : items_) {
            const bool done = item.computing_count == 0 && item.run_ns != 0;
            if (item.site == site_device && !done && memories_.device_of(item.page) == device)
                device_ns +=
                    device_costs_.of_device(device).gpu_expert_ns(item.tokens, 1, item.version);
        }
        gpu_ns = std::max(gpu_ns, device_ns);
    }
    const bool last = layer() + 1 == run_.layers;
    const uint64_t head_ns = last ? costs().head_ns(pass_.tokens.size()) : 0;
    return std::max(gpu_ns, backlog_ns) + head_ns + next_layer_.attention_ns + costs().sync_ns();
}

}  // namespace moorage::core
