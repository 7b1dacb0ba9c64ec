// cuda_golden_check.cpp - an executor on the GPU with room for what fits, driven without policies.
#include "core/execute/cuda/cuda_golden_check.h"

#include <algorithm>

#include "core/base/text.h"
#include "core/execute/cuda/cuda_executor.h"

namespace moorage::core {

result<golden_report> check_golden_on_gpu(const model &model, const golden_data &golden,
                                          uint32_t threads) {
    gpu_executor_options options;
    options.source_model = &model;
    options.limits = golden_limits(golden);
    options.threads = threads;
    options.exact = true;
    const auto room = cuda_room_for_experts(options);
    if (!room) return room.failure();
    // Slots begin at multiples of 256 bytes.
    const uint64_t slot_bytes = (model.sizes().expert_bytes + 255) / 256 * 256;
    const uint64_t pages = model.config().moe_layers().size() * model.config().experts;
    const uint64_t slots = std::min(pages, *room / std::max<uint64_t>(slot_bytes, 1));
    if (slots == 0)
        return error{format(
            "the GPU has {} left beside weights and caches, an expert takes {}; "
            "check on the CPU, or take a larger GPU",
            human_bytes(static_cast<double>(*room)), human_bytes(static_cast<double>(slot_bytes)))};
    executor_drive drive(model, {.slots = static_cast<uint32_t>(slots)});
    options.places = &drive.places;
    options.transfers_max = drive.transfers_max();
    auto machine = make_cuda_executor(options);
    if (!machine) return machine.failure();
    drive.use(*machine->device_executor, *machine->results);
    return check_golden(golden, drive, *machine->results, model.config().rope);
}

}  // namespace moorage::core
