// cuda_module.cpp - an NVIDIA GPU as an executor.
#include <memory>
#include <utility>

#include "core/execute/cuda/cuda_executor.h"
#include "core/execute/cuda/cuda_golden_check.h"
#include "core/execute/cuda/cuda_measure.h"
#include "core/execute/executor_module.h"

namespace moorage::core {

namespace {

gpu_executor_options options_of(const executor_request &request) {
    gpu_executor_options options;
    options.source_model = request.computed_model;
    options.places = request.places;
    options.host_places = request.host_places;
    options.limits = request.limits;
    options.transfers_max = request.transfers_max;
    options.threads = request.threads;
    options.device = static_cast<int32_t>(request.device);
    return options;
}

class cuda_machine final : public executor_machine {
public:
    explicit cuda_machine(gpu_machine machine) : machine_(std::move(machine)) {}
    executor &run_executor() override { return *machine_.device_executor; }
    const pass_results *results() const override { return machine_.results; }

private:
    gpu_machine machine_;
};

result<std::unique_ptr<executor_machine>> create(const executor_request &request) {
    auto machine = make_cuda_executor(options_of(request));
    if (!machine) return machine.failure();
    return {std::make_unique<cuda_machine>(std::move(machine).value())};
}

result<uint64_t> room(const executor_request &request) {
    return cuda_room_for_experts(options_of(request));
}

result<measured_machine> measure(const measure_options &options) {
    return measure_cuda({.common = options});
}

result<golden_results> check(const model &model, const golden_data &golden, uint32_t threads) {
    auto exact = check_golden_on_gpu(model, golden, threads);
    if (!exact) return exact.failure();
    return golden_results{std::move(*exact), {}};
}

executor_probe probe() {
    const auto devices = cuda_device_names();
    if (!devices) return {{}, devices.failure().text};
    return {*devices, {}};
}

}  // namespace

extern const executor_module cuda_module;
const executor_module cuda_module = {.name = "cuda",
                                     .probe = probe,
                                     .create = create,
                                     .room_for_experts = room,
                                     .measure = measure,
                                     .check_golden = check};

}  // namespace moorage::core
