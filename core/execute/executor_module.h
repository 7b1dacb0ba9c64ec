// executor_module.h - what an executor offers the rest of the program: one table of functions.
//
//   const executor_module &chosen = module_of(config.runs_on());
//   auto machine = chosen.create(request);
//   pipeline drives machine->run_executor(); the model source reads *machine->results()
//
// This interface is internal C++ and changes with any version. Only executor_modules.cpp names the
// executors; all other files go through these tables.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.h"
#include "core/config/arithmetic.h"
#include "core/config/executors.h"
#include "core/execute/cost_model.h"
#include "core/execute/executor.h"
#include "core/execute/golden_report.h"
#include "core/execute/measure.h"
#include "core/execute/model_compute.h"
#include "core/execute/node_compute.h"
#include "core/execute/operations.h"
#include "core/model/golden.h"
#include "core/model/model.h"
#include "core/source/pass_results.h"
#include "core/store/device_arenas.h"

namespace moorage::core {

// The parts and limits of an executor. Everything is borrowed and outlives it.
struct executor_request {
    const model *computed_model = nullptr;  // null: a trace on the emulator, nothing is computed
    // The experts' second version; null: there is none, or nothing is computed.
    const model *small_model = nullptr;
    const cost_model *costs = nullptr;
    std::span<const cost_model> more_costs;  // for devices beyond the first
    device_arenas places;                    // one arena for each device
    // Rows of host memory, if it does not hold all experts. Otherwise null.
    const arena *host_places = nullptr;
    compute_limits limits;
    uint32_t transfers_max = 0, threads = 0;
    uint32_t device = 0;  // number of the first real device
    arithmetic arithmetic_mode = arithmetic::exact;
    bool in_place = false;   // experts are computed where the model has them
    bool from_disk = false;  // loads are reads past the page cache
    span_sink *sink = nullptr;
};

// An executor, with the parts on which it computes.
class executor_machine {
public:
    virtual ~executor_machine() = default;
    virtual executor &run_executor() = 0;
    // Results of what it computes. Null: nothing is computed.
    virtual const pass_results *results() const = 0;
};

// Which devices of this machine an executor can use.
struct executor_probe {
    std::vector<std::string> devices;
    std::string problem;  // why there are none
};

// A null function: this executor has no such thing.
struct executor_module {
    std::string_view name;  // of [run] executor
    executor_probe (*probe)();
    // An error if GPU or host memory does not suffice: with sizes and a remedy.
    result<std::unique_ptr<executor_machine>> (*create)(const executor_request &request);
    // The memory that such a run leaves for expert slots, in bytes, if the device decides that.
    // Reads `computed_model`, `limits` and `device`. Errors as above.
    result<uint64_t> (*room_for_experts)(const executor_request &request) = nullptr;
    // Everything of measured_machine but the date and the figures of whole models.
    result<measured_machine> (*measure)(const measure_options &options) = nullptr;
    // threads: of host work; 0: as many as the executor takes by default.
    result<golden_results> (*check_golden)(const model &model, const golden_data &golden,
                                           uint32_t threads) = nullptr;
    // A model's arithmetic without an executor. The model is borrowed.
    result<std::shared_ptr<model_compute>> (*compute)(const model &model, uint32_t threads,
                                                      arithmetic mode,
                                                      const compute_limits &limits) = nullptr;
    // For nodes. Null: no node computes with this executor.
    const node_arithmetic *node = nullptr;
};

// All of them, in the order of `executors`.
std::span<const executor_module *const> executor_modules();
const executor_module &module_of(const executor_kind &kind);
// The arithmetic of nodes: that of the first executor that has one.
const node_arithmetic &node_arithmetic_of();

}  // namespace moorage::core
