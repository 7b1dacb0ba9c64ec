// profile_writer.h - a hardware profile as the text of one file of kind "machine".
#pragma once

#include <map>
#include <span>
#include <string>

#include "core/config/hardware.h"

namespace moorage::core {

// By part and key: {"device", {"launch_ns", "[M] ..."}}. A key without an entry gets `otherwise`.
struct profile_sources {
    std::map<std::string, std::map<std::string, std::string>> of;
    std::string otherwise = "[M] measured";
};

// What load_hardware reads back, all parts in one, this engine too. `notes` become comments at its
// end. A figure of 0 that a file may leave out is left out.
std::string to_toml(const hardware_profile &profile, const profile_sources &sources,
                    std::span<const std::string> notes);

}  // namespace moorage::core
