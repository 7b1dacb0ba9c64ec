// tokenizer_reader.cpp - checks every value on access.
#include "core/model/tokenizer_reader.h"

#include <algorithm>

#include "core/base/json.h"
#include "core/base/text.h"
#include "core/model/unicode.h"

namespace moorage::core {

namespace {

const tokenizer_json &empty_object() {
    static const tokenizer_json empty = tokenizer_json::object();
    return empty;
}

}  // namespace

component_reader::component_reader(const tokenizer_json &node, std::string place,
                                   std::optional<error> &problem)
    : node_(node.is_object() ? node : empty_object()), place_(std::move(place)), problem_(problem) {
    if (!node.is_object()) refuse(format("{} where an object is needed", node.type_name()));
}

void component_reader::refuse(const std::string &problem) const {
    if (!problem_) problem_ = error{format("{}: {}", place_, problem)};
}

const tokenizer_json *component_reader::find(const char *key) const {
    const auto found = node_.find(key);
    return found == node_.end() || found->is_null() ? nullptr : &*found;
}

bool component_reader::flag(const char *key, bool fallback) const {
    const tokenizer_json *value = find(key);
    if (!value) return fallback;
    if (value->is_boolean()) return value->get<bool>();
    refuse(format("{} is a {}, not true or false", key, value->type_name()));
    return fallback;
}

uint32_t component_reader::number(const char *key, uint32_t fallback) const {
    const tokenizer_json *value = find(key);
    if (!value) return fallback;
    if (value->is_number_unsigned() && value->get<uint64_t>() < UINT32_MAX)
        return value->get<uint32_t>();
    refuse(format("{} has to be a whole number from 0 to {}", key, UINT32_MAX - 1));
    return fallback;
}

std::string component_reader::text(const char *key, const char *fallback) const {
    const tokenizer_json *value = find(key);
    if (value && value->is_string()) return value->get<std::string>();
    if (value)
        refuse(format("{} is a {}, not a text", key, value->type_name()));
    else if (!fallback)
        refuse(format("{} is missing", key));
    return fallback ? fallback : "";
}

char32_t component_reader::character(const char *key) const {
    const std::string held = text(key);
    if (failed()) return 0;
    size_t position = 0;
    const char32_t first = held.empty() ? 0 : next_character(held, position);
    if (held.empty() || position != held.size())
        refuse(format("{} has to be one character, not \"{}\"", key, held));
    return first;
}

uint32_t component_reader::choice(const char *key, const std::vector<std::string> &names) const {
    if (!find(key)) return 0;
    const std::string held = text(key);
    const auto found = std::find(names.begin(), names.end(), held);
    if (found != names.end()) return static_cast<uint32_t>(found - names.begin());
    refuse(format("{} \"{}\" is unknown; known: {}", key, held, fmt::join(names, ", ")));
    return 0;
}

std::string component_reader::type(const std::vector<std::string> &known) const {
    std::string held = text("type");
    if (failed()) return "";
    if (std::find(known.begin(), known.end(), held) != known.end()) return held;
    refuse(format("type \"{}\" is not supported; supported: {}{}", held, fmt::join(known, ", "),
                  did_you_mean(held, known)));
    return "";
}

component_reader component_reader::object(const char *key) const {
    const tokenizer_json *value = find(key);
    if (!value) refuse(format("{} is missing", key));
    return {value ? *value : empty_object(), format("{}.{}", place_, key), problem_};
}

std::vector<component_reader> component_reader::list(const char *key) const {
    std::vector<component_reader> elements;
    const tokenizer_json *value = find(key);
    if (!value || !value->is_array()) {
        refuse(format("{} has to be a list", key));
        return elements;
    }
    for (size_t i = 0; i < value->size(); ++i)
        elements.emplace_back((*value)[i], format("{}.{}[{}]", place_, key, i), problem_);
    return elements;
}

}  // namespace moorage::core
