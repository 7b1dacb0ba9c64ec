// machine.cpp - makes the executor that a configuration names.
#include "core/pipeline/machine.h"

#include <iterator>
#include <utility>

#include "core/execute/cpu/cpu_executor.h"
#include "core/execute/cuda/cuda_executor.h"
#include "core/execute/emulated_model.h"
#include "core/execute/emulator.h"
#include "core/execute/gpus_emulator.h"
#include "core/execute/host_emulator.h"

namespace moorage::core {

namespace {

status add_compute(const machine_request &request, machine &made) {
    made.pool = std::make_unique<thread_pool>(request.threads, request.config->numbers);
    auto compute = cpu_model::create(*request.of, *made.pool, request.limits);
    if (!compute) return compute.failure();
    made.compute = std::move(compute).value();
    made.results = made.compute.get();
    return success();
}

status make_emulator(const machine_request &request, machine &made) {
    if (request.costs->hardware().device.is_host)
        made.time = std::make_unique<host_emulator>(*request.costs, request.transfers_max,
                                                    request.in_place, request.sink);
    else if (!request.more_costs.empty())
        made.time = std::make_unique<gpus_emulator>(
            device_costs{*request.costs, request.more_costs}, request.transfers_max, request.sink);
    else
        made.time = std::make_unique<emulator>(*request.costs, request.transfers_max, request.sink);
    if (!request.of) return success();
    if (const status done = add_compute(request, made); !done) return done.failure();
    made.where = std::make_unique<emulated_model>(*made.time, *made.compute, request.of->config(),
                                                  request.small);
    return success();
}

status make_cpu(const machine_request &request, machine &made) {
    if (const status done = add_compute(request, made); !done) return done.failure();
    auto where = cpu_executor::create({.of = request.of,
                                       .compute = made.compute.get(),
                                       .places = request.places.each.front(),
                                       .transfers_max = request.transfers_max,
                                       .in_place = request.in_place,
                                       .from_disk = request.from_disk,
                                       .small = request.small});
    if (!where) return where.failure();
    made.where = std::move(where).value();
    return success();
}

status make_cuda(const machine_request &request, machine &made) {
    gpu_executor_options options;
    options.of = request.of;
    options.places = request.places;
    options.host_places = request.host_places;
    options.limits = request.limits;
    options.transfers_max = request.transfers_max;
    options.threads = request.threads;
    options.device = static_cast<int32_t>(request.config->device);
    auto where = make_cuda_executor(options);
    if (!where) return where.failure();
    made.where = std::move(where->where);
    made.results = where->results;
    made.device = where->device;
    return success();
}

// In the order of `executors`.
constexpr status (*makers[])(const machine_request &, machine &) = {make_emulator, make_cpu,
                                                                    make_cuda};
static_assert(std::size(makers) == std::size(executors));

}  // namespace

result<machine> make_machine(const machine_request &request) {
    machine made;
    const auto make = makers[&request.config->runs_on() - executors];
    if (const status done = make(request, made); !done) return done.failure();
    if (!made.where) made.where = std::move(made.time);
    return made;
}

}  // namespace moorage::core
