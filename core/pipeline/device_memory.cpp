// device_memory.cpp - a ledger with an arena for each device, divided alike.
#include "core/pipeline/device_memory.h"

namespace moorage::core {

namespace {

std::vector<std::unique_ptr<ledger>> make_ledgers(uint32_t layers, uint32_t experts, bool per_layer,
                                                  const memory_plan &plan) {
    // A budget gives the layers theirs.
    const std::vector<uint32_t> none_yet(layers, 0);
    std::vector<std::unique_ptr<ledger>> ledgers;
    for (const memory_plan::share_of_device &device : plan.devices)
        ledgers.push_back(std::make_unique<ledger>(
            layers, experts, per_layer ? none_yet : std::vector<uint32_t>{device.slots},
            std::make_unique<arena>(layers, experts, plan.rows, device.experts,
                                    plan.slots_beside_cache())));
    if (ledgers.size() > 1)
        ledgers.push_back(std::make_unique<ledger>(
            layers, experts, per_layer ? none_yet : std::vector<uint32_t>{0}));
    return ledgers;
}

std::vector<uint8_t> spread_of(uint32_t layers, uint32_t experts, bool whole_layers,
                               const memory_plan &plan) {
    if (plan.devices.size() == 1) return {};
    return spread_pages(layers, experts, plan.device_slots(), whole_layers);
}

}  // namespace

memories device_memory::combine(const std::vector<std::unique_ptr<ledger>> &ledgers,
                                std::vector<uint8_t> spread) {
    std::vector<ledger *> device_ledgers;
    for (const auto &ledger : ledgers) device_ledgers.push_back(ledger.get());
    if (device_ledgers.size() == 1) return memories(device_ledgers.front());
    device_ledgers.pop_back();
    return memories(device_ledgers, ledgers.back().get(), std::move(spread));
}

device_memory::device_memory(uint32_t layers, uint32_t experts, bool per_layer, bool whole_layers,
                             const memory_plan &plan)
    : ledgers_(make_ledgers(layers, experts, per_layer, plan)),
      memories_(combine(ledgers_, spread_of(layers, experts, whole_layers, plan))) {
    for (uint32_t device = 0; device < memories_.devices(); ++device) {
        ledger &ledger = memories_.ledger_of_device(device);
        for (uint32_t layer = 0; layer < layers; ++layer)
            ledger.set_split(layer, static_cast<float>(plan.share));
        ledger.divide(std::vector<uint32_t>(layers, plan.top_rows));
    }
    if (plan.in_place) ledgers_.front()->fill();
}

void device_memory::lie_above(ledger &below) {
    // The last one is all there is above; host memory is the store after those of the devices.
    for (const auto &ledger : ledgers_) below.lie_below(*ledger, memories_.devices());
}

}  // namespace moorage::core
