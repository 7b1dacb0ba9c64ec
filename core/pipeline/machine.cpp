// machine.cpp - makes the executor that a configuration names.
#include "core/pipeline/machine.h"

#include <utility>

#include "core/execute/cpu/cpu_executor.h"
#include "core/execute/emulated_model.h"

namespace moorage::core {

namespace {

status add_compute(const machine_request &request, machine &made) {
    made.pool = std::make_unique<thread_pool>(request.threads);
    auto compute = cpu_model::create(*request.of, *made.pool, request.limits);
    if (!compute) return compute.failure();
    made.compute = std::move(compute).value();
    made.results = made.compute.get();
    return success();
}

status make_emulator(const machine_request &request, machine &made) {
    made.time = std::make_unique<emulator>(*request.costs, request.transfers_max, request.sink);
    if (!request.of) return success();
    if (const status done = add_compute(request, made); !done) return done.failure();
    made.where =
        std::make_unique<emulated_model>(*made.time, *made.compute, request.of->config().experts);
    return success();
}

status make_cpu(const machine_request &request, machine &made) {
    if (const status done = add_compute(request, made); !done) return done.failure();
    auto where = cpu_executor::create({request.of, made.compute.get(), request.places,
                                       request.top_rows, request.transfers_max, request.all_fit});
    if (!where) return where.failure();
    made.where = std::move(where).value();
    return success();
}

}  // namespace

result<machine> make_machine(const machine_request &request) {
    machine made;
    const std::string &name = request.config->executor;
    status done = error{"executor " + name + " is not part of this build"};
    if (name == "emulator") done = make_emulator(request, made);
    if (name == "cpu") done = make_cpu(request, made);
    if (!done) return done.failure();
    if (!made.where) made.where = std::move(made.time);
    return made;
}

}  // namespace moorage::core
