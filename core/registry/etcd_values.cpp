// etcd_values.cpp - parses texts into values without trusting them.
#include "core/registry/etcd_values.h"

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
        const char one = text[i];
        if (in_text && one == '\\')
            ++i;
        else if (one == '"')
            in_text = !in_text;
        else if (!in_text && (one == '{' || one == '['))
            ++depth;
        else if (!in_text && (one == '}' || one == ']'))
            --depth;
        if (depth > depth_max) return true;
    }
    return false;
}

int value_of(char digit) {
    const size_t at = digits.find(digit);
    return at == std::string_view::npos ? -1 : static_cast<int>(at);
}

}  // namespace

std::string base64(std::string_view bytes) {
    std::string made;
    made.reserve((bytes.size() + 2) / 3 * 4);
    for (size_t i = 0; i < bytes.size(); i += 3) {
        uint32_t three = 0;
        for (size_t j = 0; j < 3; ++j)
            three =
                three << 8 | (i + j < bytes.size() ? static_cast<unsigned char>(bytes[i + j]) : 0u);
        for (size_t j = 0; j < 4; ++j)
            made += i + j <= bytes.size() ? digits[three >> (18 - 6 * j) & 63] : '=';
    }
    return made;
}

std::optional<std::string> from_base64(std::string_view text) {
    if (text.size() % 4 != 0) return std::nullopt;
    size_t padding = 0;
    while (padding < 2 && padding < text.size() && text[text.size() - 1 - padding] == '=')
        ++padding;
    std::string made;
    made.reserve(text.size() / 4 * 3);
    for (size_t i = 0; i < text.size(); i += 4) {
        uint32_t three = 0;
        for (size_t j = 0; j < 4; ++j) {
            const int value = i + j + padding >= text.size() ? 0 : value_of(text[i + j]);
            if (value < 0) return std::nullopt;
            three = three << 6 | static_cast<uint32_t>(value);
        }
        for (const int shift : {16, 8, 0}) made += static_cast<char>(three >> shift & 255);
    }
    made.resize(made.size() - padding);
    return made;
}

json parse_etcd(std::string_view text) {
    if (too_deep(text)) return json(json::value_t::discarded);
    json read = json_or_discarded(text);
    return read.is_object() ? read : json(json::value_t::discarded);
}

uint64_t etcd_number(const json &of, const char *key) {
    if (!of.is_object()) return 0;
    const auto at = of.find(key);
    if (at == of.end()) return 0;
    if (at->is_number_unsigned()) return at->get<uint64_t>();
    if (!at->is_string()) return 0;
    const auto &text = at->get_ref<const std::string &>();
    uint64_t value = 0;
    const auto [end, wrong] = std::from_chars(text.data(), text.data() + text.size(), value);
    return wrong == std::errc() && end == text.data() + text.size() ? value : 0;
}

bool etcd_flag(const json &of, const char *key) {
    if (!of.is_object()) return false;
    const auto at = of.find(key);
    return at != of.end() && at->is_boolean() && at->get<bool>();
}

const json &etcd_part(const json &of, const char *key) {
    static const json none;
    if (!of.is_object()) return none;
    const auto at = of.find(key);
    return at != of.end() && (at->is_object() || at->is_array()) ? *at : none;
}

std::optional<etcd_pair> etcd_pair_of(const json &of) {
    if (!of.is_object()) return std::nullopt;
    etcd_pair made;
    for (const auto &[key, out] : {std::pair{"key", &made.key}, std::pair{"value", &made.value}}) {
        const auto at = of.find(key);
        if (at == of.end()) continue;
        if (!at->is_string()) return std::nullopt;
        auto bytes = from_base64(at->get_ref<const std::string &>());
        if (!bytes) return std::nullopt;
        *out = std::move(*bytes);
    }
    made.create_revision = etcd_number(of, "create_revision");
    made.mod_revision = etcd_number(of, "mod_revision");
    made.lease = etcd_number(of, "lease");
    return made;
}

std::string etcd_error(const json &of) {
    if (!of.is_object()) return "";
    const auto at = of.find("error");
    if (at == of.end()) return "";
    const auto text_in = [](const json &from, const char *key) {
        const auto text = from.find(key);
        return text != from.end() && text->is_string()
                   ? visible(text->get_ref<const std::string &>().substr(0, 200))
                   : std::string("an error without a text");
    };
    if (at->is_object()) return text_in(*at, "message");
    return text_in(of, "error");
}

std::string behind_prefix(std::string prefix) {
    while (!prefix.empty() && static_cast<unsigned char>(prefix.back()) == 255) prefix.pop_back();
    if (prefix.empty()) return std::string(1, '\0');
    ++prefix.back();
    return prefix;
}

}  // namespace moorage::core
