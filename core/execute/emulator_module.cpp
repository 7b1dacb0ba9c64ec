// emulator_module.cpp - the emulator as an executor: of a GPU beside its host, of several, of a
// CPU.
#include <memory>
#include <utility>

#include "core/execute/devices_emulator.h"
#include "core/execute/emulated_model.h"
#include "core/execute/emulator.h"
#include "core/execute/executor_module.h"
#include "core/execute/host_emulator.h"

namespace moorage::core {

namespace {

class emulator_machine final : public executor_machine {
public:
    static result<std::unique_ptr<executor_machine>> create(const executor_request &request) {
        auto machine = std::make_unique<emulator_machine>();
        machine->emulator_ = emulator_of(request);
        if (!request.computed_model) return {std::move(machine)};
        // Real tokens in virtual time: the CPU's arithmetic.
        auto compute = module_of(*find_executor("cpu"))
                           .compute(*request.computed_model, request.threads,
                                    request.arithmetic_mode, request.limits);
        if (!compute) return compute.failure();
        machine->compute_ = std::move(compute).value();
        machine->computing_ =
            std::make_unique<emulated_model>(*machine->emulator_, *machine->compute_,
                                             request.computed_model->config(), request.small_model);
        return {std::move(machine)};
    }
    static executor_probe probe() { return {{"the hardware of a profile, in virtual time"}, {}}; }
    executor &run_executor() override { return computing_ ? *computing_ : *emulator_; }
    const pass_results *results() const override { return compute_.get(); }

private:
    static std::unique_ptr<executor> emulator_of(const executor_request &request) {
        if (request.costs->hardware().device.is_host)
            return std::make_unique<host_emulator>(*request.costs, request.transfers_max,
                                                   request.in_place, request.sink);
        if (!request.more_costs.empty())
            return std::make_unique<devices_emulator>(
                device_costs{*request.costs, request.more_costs}, request.transfers_max,
                request.sink);
        return std::make_unique<emulator>(*request.costs, request.transfers_max, request.sink);
    }

    // In the order of construction: later ones borrow earlier ones.
    std::shared_ptr<model_compute> compute_;
    std::unique_ptr<executor> emulator_, computing_;
};

}  // namespace

extern const executor_module emulator_module;
const executor_module emulator_module = {
    .name = "emulator", .probe = emulator_machine::probe, .create = emulator_machine::create};

}  // namespace moorage::core
