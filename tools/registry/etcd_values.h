// etcd_values.h - reads and writes the values of etcd's JSON gateway (v3 of etcd 3.4).
//
// 64-bit integers are texts, keys and values are base64, and fields with their default (0, false,
// "", PUT) are omitted. Nothing is trusted: each function returns the default for a value of
// another type, and parse_etcd() refuses deeper nesting than any real answer has.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/json_fwd.h"

namespace moorage::core {

std::string base64(std::string_view bytes);
// Nothing: it is not base64.
std::optional<std::string> from_base64(std::string_view text);

// An object; otherwise discarded.
json parse_etcd(std::string_view text);
uint64_t etcd_number(const json &object, const char *key);
bool etcd_flag(const json &object, const char *key);
// The object or array at the key; null: it is neither.
const json &etcd_part(const json &object, const char *key);

struct etcd_pair {
    std::string key, value;
    uint64_t create_revision = 0, mod_revision = 0, lease = 0;
};
// Nothing: key or value cannot be read.
std::optional<etcd_pair> etcd_pair_of(const json &object);
// The text of an answer in either error form; empty: no error.
std::string etcd_error(const json &object);
// The first key after all keys that begin with `prefix`.
std::string behind_prefix(std::string prefix);

}  // namespace moorage::core
