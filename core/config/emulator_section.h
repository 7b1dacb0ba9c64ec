// emulator_section.h - [emulator]: what passes in virtual time beside the machine's own work.
#pragma once

#include "core/config/run_config.h"
#include "core/config/section.h"

namespace moorage::core {

void read_emulator(section_reader &emulator, run_config &config);

}  // namespace moorage::core
