// json_fields.h - reads fields that other nodes, or a registry, wrote. They may contain anything.
#pragma once

#include <cstdint>
#include <string>

#include "core/base/json_fwd.h"

namespace moorage::core {

uint64_t number_at(const json &object, const char *key);   // 0: no whole number there
std::string text_at(const json &object, const char *key);  // empty: no text there
const json &list_at(const json &object, const char *key);  // borrowed; empty: no list there

}  // namespace moorage::core
