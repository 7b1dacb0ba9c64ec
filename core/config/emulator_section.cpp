// emulator_section.cpp - reads [emulator].
#include "core/config/emulator_section.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <string_view>

namespace moorage::core {

void read_emulator(section_reader &emulator, run_config &config) {
    constexpr std::string_view names[] = {"none", "measured", "declared"};
    std::string name(names[0]);
    emulator.read("policy_time", name);
    const auto at = std::ranges::find(names, name);
    if (!emulator.failed() && at == std::end(names))
        emulator.fail(*emulator.find("policy_time"), "there are none, measured and declared");
    else
        config.policy_time = static_cast<policy_charge>(at - names);
    emulator.read("policy_call_ns", config.policy_call_ns, 1, uint64_t{1'000'000'000});
    if (emulator.find("policy_call_ns") && config.policy_time != policy_charge::declared)
        emulator.fail(*emulator.find("policy_call_ns"),
                      "it has no effect without policy_time = \"declared\"");
}

}  // namespace moorage::core
