// arithmetic_reader.cpp - the two words, and the executors that they apply to.
#include "core/config/arithmetic_reader.h"

#include "core/base/text.h"

namespace moorage::core {

void read_arithmetic(section_reader &run, const executor_kind &runs_on, arithmetic &out) {
    bool is_fast = false;
    run.read("arithmetic", is_fast);
    const given *const at = run.find("arithmetic");
    if (at == nullptr || run.failed()) return;
    out = is_fast ? arithmetic::fast : arithmetic::exact;
    if (out == arithmetic::fast && runs_on.memory == fast_memory::gpu)
        run.fail(*at, format("executor {} computes with activations as they are; choose exact, or "
                             "executor cpu",
                             runs_on.name));
}

}  // namespace moorage::core
