// executor_modules.cpp - the list of executors. The one place that knows all of them.
#include "core/execute/executor_module.h"

#include <algorithm>
#include <iterator>

namespace moorage::core {

extern const executor_module emulator_module, cpu_module, cuda_module;

namespace {

const executor_module *const modules[] = {&emulator_module, &cpu_module, &cuda_module};
static_assert(std::size(modules) == std::size(executors));

}  // namespace

std::span<const executor_module *const> executor_modules() { return modules; }

const node_arithmetic &node_arithmetic_of() {
    return *(*std::ranges::find_if(modules, [](const auto *module) { return module->node; }))->node;
}

const executor_module &module_of(const executor_kind &kind) { return *modules[&kind - executors]; }

}  // namespace moorage::core
