// emulator_section.cpp - reads [emulator].
#include "core/config/emulator_section.h"

#include "core/config/run_keys.h"

namespace moorage::core {

void read_emulator(section_reader &emulator, run_config &config) {
    emulator.read_rows(emulator_rows, config);
    if (emulator.find("policy_call_ns") && config.policy_time != policy_charge::declared)
        emulator.fail(*emulator.find("policy_call_ns"),
                      "it has no effect without policy_time = \"declared\"");
}

}  // namespace moorage::core
