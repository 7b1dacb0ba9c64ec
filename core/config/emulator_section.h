// emulator_section.h - [emulator]: how much of the host's time inside policies passes in virtual
// time.
#pragma once

#include "core/config/run_config.h"
#include "core/config/section.h"

namespace moorage::core {

void read_emulator(section_reader &emulator, run_config &config);

}  // namespace moorage::core
