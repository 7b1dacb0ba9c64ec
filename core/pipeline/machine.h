// machine.h - the executor of a run, with the parts on which it computes. The one place that knows
// all executors.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "core/config/run_config.h"
#include "core/execute/cost_model.h"
#include "core/execute/cpu/cpu_model.h"
#include "core/execute/executor.h"
#include "core/execute/gpu/gpu_executor.h"
#include "core/execute/operations.h"
#include "core/model/model.h"
#include "core/store/arena.h"

namespace moorage::core {

struct machine_request {
    const run_config *config;
    const model *computed_model;  // null: a trace on the emulator, nothing is computed
    const model *small;  // the experts' second version; null: there is none, or nothing is computed
    const cost_model *costs;
    std::span<const cost_model> more_costs;  // for devices beyond the first
    device_arenas places;
    const arena *host_places;  // for host memory that does not hold everything; otherwise null
    cpu_model_limits limits;
    uint32_t transfers_max, threads;
    bool in_place;   // experts are computed where the model has them
    bool from_disk;  // the processor's loads are reads past the page cache
    span_sink *sink;
};

// Members are in the order of construction: later ones borrow from earlier ones.
struct machine {
    std::unique_ptr<thread_pool> pool;
    std::unique_ptr<cpu_model> compute;
    std::unique_ptr<executor> emulator;  // the emulator's
    std::unique_ptr<executor> run_executor;
    std::string device;                     // the device that a real executor found; empty: nothing
                                            // to report
    const pass_results *results = nullptr;  // null: nothing is computed
};

// Everything in the request is borrowed and outlives the machine.
result<machine> make_machine(const machine_request &request);

}  // namespace moorage::core
