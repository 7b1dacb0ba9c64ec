// device_supplier.h - the devices of a run beside the first: hidden states go there and come back.
#pragma once

#include <cstdint>

#include "core/pipeline/run_account.h"
#include "core/pipeline/step_supplier.h"
#include "core/source/layer_step.h"
#include "core/store/memories.h"

namespace moorage::core {

class device_supplier final : public step_supplier {
public:
    // All borrowed.
    device_supplier(const memories &memories, executor &executor, const layer_step &step,
                    run_account &account)
        : memories_(memories), executor_(executor), step_(step), account_(account) {}

    void looked_up(std::span<const uint32_t> places, std::span<step_item> items) override;
    // Sends hidden states to each device that computes something of the step.
    uint32_t begin(std::span<const step_item> items) override;
    // Work behind a segment that finds no room on its device may go to another device. If nothing
    // waits for a device any more, hidden states go back behind its last expert.
    uint32_t go_past_waiting(step_work &work) override;
    void count(const step_item &item, layer_report &report) override;

private:
    const memories &memories_;
    executor &executor_;
    const layer_step &step_;
    run_account &account_;
    uint32_t sent_devices_ = 0;  // devices that have hidden states to send back, as a mask
};

}  // namespace moorage::core
