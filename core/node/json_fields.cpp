// json_fields.cpp - looks for a field and at its kind.
#include "core/node/json_fields.h"

#include "core/base/json.h"

namespace moorage::core {

uint64_t number_at(const json &of, const char *key) {
    const auto at = of.find(key);
    return at != of.end() && at->is_number_unsigned() ? at->get<uint64_t>() : 0;
}

std::string text_at(const json &of, const char *key) {
    const auto at = of.find(key);
    return at != of.end() && at->is_string() ? at->get<std::string>() : std::string();
}

const json &list_at(const json &of, const char *key) {
    static const json none = json::array();
    const auto at = of.find(key);
    return at != of.end() && at->is_array() ? *at : none;
}

}  // namespace moorage::core
