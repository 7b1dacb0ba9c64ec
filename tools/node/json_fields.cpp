// json_fields.cpp - looks for a field and at its kind.
#include "tools/node/json_fields.h"

#include "core/base/json.h"

namespace moorage::core {

uint64_t number_at(const json &object, const char *key) {
    const auto field = object.find(key);
    return field != object.end() && field->is_number_unsigned() ? field->get<uint64_t>() : 0;
}

std::string text_at(const json &object, const char *key) {
    const auto field = object.find(key);
    return field != object.end() && field->is_string() ? field->get<std::string>() : std::string();
}

const json &list_at(const json &object, const char *key) {
    static const json none = json::array();
    const auto field = object.find(key);
    return field != object.end() && field->is_array() ? *field : none;
}

}  // namespace moorage::core
