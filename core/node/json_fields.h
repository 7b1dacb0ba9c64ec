// json_fields.h - fields of what other nodes, or a registry, wrote, whatever stands there.
#pragma once

#include <cstdint>
#include <string>

#include "core/base/json_fwd.h"

namespace moorage::core {

uint64_t number_at(const json &of, const char *key);   // 0 where there is no whole number
std::string text_at(const json &of, const char *key);  // empty where there is no text
const json &list_at(const json &of, const char *key);  // borrowed; empty where there is no list

}  // namespace moorage::core
