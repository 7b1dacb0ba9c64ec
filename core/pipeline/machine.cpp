// machine.cpp - makes the executor that a configuration names.
#include "core/pipeline/machine.h"

#include <iterator>
#include <utility>

#include "core/execute/cpu/cpu_executor.h"
#include "core/execute/cuda/cuda_executor.h"
#include "core/execute/emulated_model.h"
#include "core/execute/emulator.h"
#include "core/execute/devices_emulator.h"
#include "core/execute/host_emulator.h"

namespace moorage::core {

namespace {

status add_compute(const machine_request &request, machine &machine) {
    machine.pool = std::make_unique<thread_pool>(request.threads, request.config->arithmetic_mode);
    auto compute = cpu_model::create(*request.computed_model, *machine.pool, request.limits);
    if (!compute) return compute.failure();
    machine.compute = std::move(compute).value();
    machine.results = machine.compute.get();
    return success();
}

status make_emulator(const machine_request &request, machine &machine) {
    if (request.costs->hardware().device.is_host)
        machine.emulator = std::make_unique<host_emulator>(*request.costs, request.transfers_max,
                                                           request.in_place, request.sink);
    else if (!request.more_costs.empty())
        machine.emulator = std::make_unique<devices_emulator>(
            device_costs{*request.costs, request.more_costs}, request.transfers_max, request.sink);
    else
        machine.emulator =
            std::make_unique<emulator>(*request.costs, request.transfers_max, request.sink);
    if (!request.computed_model) return success();
    if (const status done = add_compute(request, machine); !done) return done.failure();
    machine.run_executor = std::make_unique<emulated_model>(
        *machine.emulator, *machine.compute, request.computed_model->config(), request.small);
    return success();
}

status make_cpu(const machine_request &request, machine &machine) {
    if (const status done = add_compute(request, machine); !done) return done.failure();
    auto executor = cpu_executor::create({.source_model = request.computed_model,
                                          .compute = machine.compute.get(),
                                          .places = request.places.arenas.front(),
                                          .transfers_max = request.transfers_max,
                                          .in_place = request.in_place,
                                          .from_disk = request.from_disk,
                                          .small_model = request.small});
    if (!executor) return executor.failure();
    machine.run_executor = std::move(executor).value();
    return success();
}

status make_cuda(const machine_request &request, machine &machine) {
    gpu_executor_options options;
    options.source_model = request.computed_model;
    options.places = request.places;
    options.host_places = request.host_places;
    options.limits = request.limits;
    options.transfers_max = request.transfers_max;
    options.threads = request.threads;
    options.device = static_cast<int32_t>(request.config->device);
    auto gpu = make_cuda_executor(options);
    if (!gpu) return gpu.failure();
    machine.run_executor = std::move(gpu->device_executor);
    machine.results = gpu->results;
    machine.device = gpu->device;
    return success();
}

// In the order of `executors`.
constexpr status (*makers[])(const machine_request &, machine &) = {make_emulator, make_cpu,
                                                                    make_cuda};
static_assert(std::size(makers) == std::size(executors));

}  // namespace

result<machine> make_machine(const machine_request &request) {
    machine machine;
    const auto make = makers[&request.config->runs_on() - executors];
    if (const status done = make(request, machine); !done) return done.failure();
    if (!machine.run_executor) machine.run_executor = std::move(machine.emulator);
    return machine;
}

}  // namespace moorage::core
