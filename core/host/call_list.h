// call_list.h - which calls a policy has: what stands in the tables of its kinds.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.h"
#include "core/host/instance.h"

namespace moorage::core {

struct kind_calls {
    std::string_view kind;  // "cache", "observer"
    // In the order of the headers. Absent ones are left to the host, which the header says how.
    std::vector<std::string_view> found, absent;
};
std::vector<kind_calls> list_calls(const instance &of);

// Makes an instance with default parameters to look into its tables, and ends it.
result<std::vector<kind_calls>> list_calls(const policy &of);

// "cache: victims, on_load (not admit); observer: observe"
std::string text_of(const std::vector<kind_calls> &calls);

}  // namespace moorage::core
