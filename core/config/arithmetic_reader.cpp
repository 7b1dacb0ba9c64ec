// arithmetic_reader.cpp - the two words, and the executors that they apply to.
#include "core/config/arithmetic_reader.h"

#include "core/base/text.h"

namespace moorage::core {

void read_arithmetic(section_reader &run, const executor_kind &runs_on, arithmetic &mode) {
    bool is_fast = false;
    run.read("arithmetic", is_fast);
    const config_value *const found = run.find("arithmetic");
    if (found == nullptr || run.failed()) return;
    mode = is_fast ? arithmetic::fast : arithmetic::exact;
    if (mode == arithmetic::fast && runs_on.memory == fast_memory::gpu)
        run.fail(*found,
                 format("executor {} computes with activations as they are; choose exact, or "
                        "executor cpu",
                        runs_on.name));
}

}  // namespace moorage::core
