// descriptor.h - checks what a policy says about itself: names, kinds, parameters with their
// limits.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.h"
#include "moorage/module.h"

namespace moorage::core {

// lower case letters, digits and _, beginning with a letter: what a name in TOML may be.
bool is_snake_case(std::string_view word);
// Why a policy cannot be named so: the configuration or the command line means something else by
// it, or it is longer than any file's name may be. "": it can.
std::string why_no_policy_name(std::string_view name);

// A descriptor and its parameters in this host's sizes.
struct description {
    moorage_descriptor descriptor;
    std::vector<moorage_param> params;
};

// Checks and completes a descriptor as the library gave it. The error says which field is wrong.
result<description> read_descriptor(const moorage_descriptor *given);

}  // namespace moorage::core
