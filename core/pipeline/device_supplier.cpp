// device_supplier.cpp - counts by device; hidden states there and back.
#include "core/pipeline/device_supplier.h"

#include "core/pipeline/step_work.h"

namespace moorage::core {

void device_supplier::looked_up(std::span<const uint32_t>, std::span<step_item> items) {
    for (const step_item &item : items) {
        device_report &device = account_.devices[memories_.device_of(item.page)];
        ++device.requested;
        device.hits += item.missing == 0;
    }
}

uint32_t device_supplier::begin(std::span<const step_item> items) {
    sent_devices_ = 0;
    for (const step_item &item : items)
        if (item.site == site_device) sent_devices_ |= 1u << memories_.device_of(item.page);
    uint32_t started = 0;
    for (uint32_t device = 1; device < memories_.devices(); ++device) {
        if ((sent_devices_ >> device & 1) == 0) continue;
        executor_.hidden_states(device, step_.view().token_count, /*back=*/false);
        ++started;
    }
    return started;
}

uint32_t device_supplier::go_past_waiting(step_work &work) {
    const uint32_t full_devices = work.start_on_free_devices();
    uint32_t started = 0;
    for (uint32_t device = 1; device < memories_.devices(); ++device) {
        if ((sent_devices_ >> device & 1) == 0 || (full_devices >> device & 1) != 0) continue;
        sent_devices_ &= ~(1u << device);
        executor_.hidden_states(device, step_.view().token_count, /*back=*/true);
        ++started;
    }
    return started;
}

void device_supplier::count(const step_item &item, layer_report &) {
    account_.devices[memories_.device_of(item.page)].loaded += item.is_loaded();
}

}  // namespace moorage::core
