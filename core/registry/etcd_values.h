// etcd_values.h - what etcd's JSON gateway says and wants to hear (v3 of etcd 3.4).
//
// Whole numbers of 64 bits are texts, keys and values are base64, and fields that have their
// default (0, false, "", PUT) are left out. Nothing is taken on trust: each function gives the
// default for what is not of its type, and parse_etcd() refuses what is nested deeper than any
// answer is.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/json_fwd.h"

namespace moorage::core {

std::string base64(std::string_view bytes);
// Nothing where it is no base64.
std::optional<std::string> from_base64(std::string_view text);

// An object, or discarded.
json parse_etcd(std::string_view text);
uint64_t etcd_number(const json &of, const char *key);
bool etcd_flag(const json &of, const char *key);
// The object or array at the key; null where it is neither.
const json &etcd_part(const json &of, const char *key);

struct etcd_pair {
    std::string key, value;
    uint64_t create_revision = 0, mod_revision = 0, lease = 0;
};
// Nothing where key or value are not to be read.
std::optional<etcd_pair> etcd_pair_of(const json &of);
// What an answer of either error form says; empty: it is no error.
std::string etcd_error(const json &of);
// The key just behind all that begin with `prefix`.
std::string behind_prefix(std::string prefix);

}  // namespace moorage::core
