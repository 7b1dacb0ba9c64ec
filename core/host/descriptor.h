// descriptor.h - checks what a policy declares: names, kinds, parameters and their limits.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.h"
#include "moorage/module.h"

namespace moorage::core {

// Lower case letters, digits and _, beginning with a letter, as names in TOML must be.
bool is_snake_case(std::string_view word);
// Why a policy must not have this name: the configuration or the command line uses it for something
// else, or it is too long for a file name. "": the name is fine.
std::string policy_name_problem(std::string_view name);

// A descriptor and its parameters, in records of this host's sizes.
struct description {
    moorage_descriptor descriptor;
    std::vector<moorage_param> params;
};

// Checks and completes a descriptor from a library. The error names the wrong field.
result<description> read_descriptor(const moorage_descriptor *record);

}  // namespace moorage::core
