// etcd_values.cpp - parses texts into values without trusting them.
#include "tools/registry/etcd_values.h"

#include <array>
#include <charconv>

#include "core/base/json.h"
#include "core/base/visible.h"

namespace moorage::core {

namespace {

constexpr std::string_view digits =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
constexpr int depth_max = 32;

// Counts nesting outside of strings, because a parser needs memory for each level.
bool too_deep(std::string_view text) {
    int depth = 0;
    bool in_text = false;
    for (size_t i = 0; i < text.size(); ++i) {
        const char character = text[i];
        if (in_text && character == '\\')
            ++i;
        else if (character == '"')
            in_text = !in_text;
        else if (!in_text && (character == '{' || character == '['))
            ++depth;
        else if (!in_text && (character == '}' || character == ']'))
            --depth;
        if (depth > depth_max) return true;
    }
    return false;
}

int value_of(char digit) {
    const size_t position = digits.find(digit);
    return position == std::string_view::npos ? -1 : static_cast<int>(position);
}

}  // namespace

std::string base64(std::string_view bytes) {
    std::string encoded;
    encoded.reserve((bytes.size() + 2) / 3 * 4);
    for (size_t i = 0; i < bytes.size(); i += 3) {
        uint32_t three = 0;
        for (size_t j = 0; j < 3; ++j)
            three =
                three << 8 | (i + j < bytes.size() ? static_cast<unsigned char>(bytes[i + j]) : 0u);
        for (size_t j = 0; j < 4; ++j)
            encoded += i + j <= bytes.size() ? digits[three >> (18 - 6 * j) & 63] : '=';
    }
    return encoded;
}

std::optional<std::string> from_base64(std::string_view text) {
    if (text.size() % 4 != 0) return std::nullopt;
    size_t padding = 0;
    while (padding < 2 && padding < text.size() && text[text.size() - 1 - padding] == '=')
        ++padding;
    std::string decoded;
    decoded.reserve(text.size() / 4 * 3);
    for (size_t i = 0; i < text.size(); i += 4) {
        uint32_t three = 0;
        for (size_t j = 0; j < 4; ++j) {
            const int value = i + j + padding >= text.size() ? 0 : value_of(text[i + j]);
            if (value < 0) return std::nullopt;
            three = three << 6 | static_cast<uint32_t>(value);
        }
        for (const int shift : {16, 8, 0}) decoded += static_cast<char>(three >> shift & 255);
    }
    decoded.resize(decoded.size() - padding);
    return decoded;
}

json parse_etcd(std::string_view text) {
    if (too_deep(text)) return json(json::value_t::discarded);
    json read = json_or_discarded(text);
    return read.is_object() ? read : json(json::value_t::discarded);
}

uint64_t etcd_number(const json &object, const char *key) {
    if (!object.is_object()) return 0;
    const auto field = object.find(key);
    if (field == object.end()) return 0;
    if (field->is_number_unsigned()) return field->get<uint64_t>();
    if (!field->is_string()) return 0;
    const auto &text = field->get_ref<const std::string &>();
    uint64_t value = 0;
    const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
    return code == std::errc() && end == text.data() + text.size() ? value : 0;
}

bool etcd_flag(const json &object, const char *key) {
    if (!object.is_object()) return false;
    const auto field = object.find(key);
    return field != object.end() && field->is_boolean() && field->get<bool>();
}

const json &etcd_part(const json &object, const char *key) {
    static const json none;
    if (!object.is_object()) return none;
    const auto field = object.find(key);
    return field != object.end() && (field->is_object() || field->is_array()) ? *field : none;
}

std::optional<etcd_pair> etcd_pair_of(const json &object) {
    if (!object.is_object()) return std::nullopt;
    etcd_pair pair;
    for (const auto &[key, target] :
         {std::pair{"key", &pair.key}, std::pair{"value", &pair.value}}) {
        const auto field = object.find(key);
        if (field == object.end()) continue;
        if (!field->is_string()) return std::nullopt;
        auto bytes = from_base64(field->get_ref<const std::string &>());
        if (!bytes) return std::nullopt;
        *target = std::move(*bytes);
    }
    pair.create_revision = etcd_number(object, "create_revision");
    pair.mod_revision = etcd_number(object, "mod_revision");
    pair.lease = etcd_number(object, "lease");
    return pair;
}

std::string etcd_error(const json &object) {
    if (!object.is_object()) return "";
    const auto field = object.find("error");
    if (field == object.end()) return "";
    const auto text_in = [](const json &parent, const char *key) {
        const auto text = parent.find(key);
        return text != parent.end() && text->is_string()
                   ? visible(text->get_ref<const std::string &>().substr(0, 200))
                   : std::string("an error without a text");
    };
    if (field->is_object()) return text_in(*field, "message");
    return text_in(object, "error");
}

std::string behind_prefix(std::string prefix) {
    while (!prefix.empty() && static_cast<unsigned char>(prefix.back()) == 255) prefix.pop_back();
    if (prefix.empty()) return std::string(1, '\0');
    ++prefix.back();
    return prefix;
}

}  // namespace moorage::core
