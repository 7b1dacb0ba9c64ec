// device_memory.cpp - a ledger with an arena for each device, divided alike.
#include "core/pipeline/device_memory.h"

namespace moorage::core {

namespace {

std::vector<std::unique_ptr<ledger>> ledgers(uint32_t layers, uint32_t experts, bool per_layer,
                                             const memory_plan &plan) {
    // A budget gives the layers theirs.
    const std::vector<uint32_t> none_yet(layers, 0);
    std::vector<std::unique_ptr<ledger>> made;
    for (const memory_plan::share_of_device &device : plan.devices)
        made.push_back(std::make_unique<ledger>(
            layers, experts, per_layer ? none_yet : std::vector<uint32_t>{device.slots},
            std::make_unique<arena>(layers, experts, plan.rows, device.experts, plan.beside())));
    if (made.size() > 1)
        made.push_back(std::make_unique<ledger>(layers, experts,
                                                per_layer ? none_yet : std::vector<uint32_t>{0}));
    return made;
}

std::vector<uint8_t> spread_of(uint32_t layers, uint32_t experts, bool whole_layers,
                               const memory_plan &plan) {
    if (plan.devices.size() == 1) return {};
    return spread_pages(layers, experts, plan.device_slots(), whole_layers);
}

}  // namespace

memories device_memory::together(const std::vector<std::unique_ptr<ledger>> &own,
                                 std::vector<uint8_t> spread) {
    std::vector<ledger *> each;
    for (const auto &one : own) each.push_back(one.get());
    if (each.size() == 1) return memories(each.front());
    each.pop_back();
    return memories(each, own.back().get(), std::move(spread));
}

device_memory::device_memory(uint32_t layers, uint32_t experts, bool per_layer, bool whole_layers,
                             const memory_plan &plan)
    : own_(ledgers(layers, experts, per_layer, plan)),
      all_(together(own_, spread_of(layers, experts, whole_layers, plan))) {
    for (uint32_t device = 0; device < all_.devices(); ++device) {
        ledger &book = all_.at(device);
        for (uint32_t layer = 0; layer < layers; ++layer)
            book.set_split(layer, static_cast<float>(plan.share));
        book.divide(std::vector<uint32_t>(layers, plan.top_rows));
    }
    if (plan.in_place) own_.front()->fill();
}

void device_memory::lie_above(ledger &below) {
    // The last one is all there is above; host memory is the store after those of the devices.
    for (const auto &one : own_) below.lie_below(*one, all_.devices());
}

}  // namespace moorage::core
