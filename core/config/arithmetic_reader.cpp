// arithmetic_reader.cpp - two words, and where they hold.
#include "core/config/arithmetic_reader.h"

#include <string>

#include "core/base/text.h"

namespace moorage::core {

void read_arithmetic(section_reader &run, const executor_kind &runs_on, arithmetic &out) {
    std::string name;
    run.read("arithmetic", name);
    const given *const at = run.find("arithmetic");
    if (at == nullptr || run.failed()) return;
    if (name != "exact" && name != "fast")
        return run.fail(*at,
                        "choose exact (activations in float32) or fast (rounded as the format of "
                        "the weights was made for); leave it out for the usual of each format");
    out = name == "fast" ? arithmetic::fast : arithmetic::exact;
    if (out == arithmetic::fast && runs_on.memory == fast_memory::gpu)
        run.fail(*at, format("executor {} computes with activations as they are; choose exact, or "
                             "executor cpu",
                             runs_on.name));
}

}  // namespace moorage::core
