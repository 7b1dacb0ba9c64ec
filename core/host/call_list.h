// call_list.h - lists the calls that a policy has, from the tables of its kinds.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.h"
#include "core/host/instance.h"

namespace moorage::core {

struct kind_calls {
    std::string_view kind;  // "cache", "observer"
    // In the order of the headers. The host handles the absent ones as the header says.
    std::vector<std::string_view> found, absent;
};
std::vector<kind_calls> list_calls(const instance &instance);

// Creates an instance with default parameters, reads its tables, and destroys it.
result<std::vector<kind_calls>> list_calls(const policy &policy);

// "cache: victims, on_load (not admit); observer: observe"
std::string text_of(const std::vector<kind_calls> &calls);

}  // namespace moorage::core
