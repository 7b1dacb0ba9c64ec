// profile_writer.h - a hardware profile as the text of one file of kind "machine".
#pragma once

#include <map>
#include <span>
#include <string>

#include "core/config/hardware.h"

namespace moorage::core {

// By part and key: {"device", {"launch_ns", "[M] ..."}}. Other keys get `default_source`.
struct profile_sources {
    std::map<std::string, std::map<std::string, std::string>> by_part;
    std::string default_source = "[M] measured";
};

// Writes all parts and this engine into one text that load_hardware reads. `notes` become comments
// at its end. A figure of 0 is omitted where the file may omit it.
std::string to_toml(const hardware_profile &profile, const profile_sources &sources,
                    std::span<const std::string> notes);

}  // namespace moorage::core
