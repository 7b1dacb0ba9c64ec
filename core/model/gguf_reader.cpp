// gguf_reader.cpp - checks types and limits of metadata, with errors that name them.
#include "core/model/gguf_reader.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "core/base/text.h"

namespace moorage::core {

namespace {

constexpr const char *type_names[] = {"u8",   "i8",   "u16",   "i16", "u32", "i32", "f32",
                                      "bool", "text", "array", "u64", "i64", "f64"};

bool is_whole(const gguf_value &value) {
    const auto *list = std::get_if<gguf_numbers>(&value);
    if (list == nullptr)
        return std::holds_alternative<int64_t>(value) || std::holds_alternative<uint64_t>(value);
    const auto type = static_cast<gguf_type>(list->type);
    return type != gguf_type::f32 && type != gguf_type::f64 && type != gguf_type::boolean;
}

}  // namespace

const gguf_value *gguf_reader::read_key(std::string_view key) {
    read_keys_.insert(full_key(key));
    const auto found = files_.metadata().find(full_key(key));
    return found == files_.metadata().end() ? nullptr : &found->second;
}

std::optional<double> gguf_reader::number(std::string_view key) {
    const gguf_value *found = read_key(key);
    if (found == nullptr) return std::nullopt;
    std::optional<double> value = gguf_number(files_.metadata(), full_key(key));
    if (const auto *list = std::get_if<gguf_numbers>(found)) {
        if (list->count == 0) return std::nullopt;
        value = list->at(0);
        for (uint64_t i = 1; i < list->count; ++i)
            if (list->at(i) != *value)
                fail(key, "holds different numbers; one number for all is supported");
    }
    if (!value)
        fail_type(key, "a number");
    else if (!std::isfinite(*value))
        fail(key, format("is {}; a finite number is needed", *value));
    return failed() ? std::nullopt : value;
}

std::optional<uint64_t> gguf_reader::count(std::string_view key) {
    const std::optional<double> value = number(key);
    if (!value) return std::nullopt;
    if (!is_whole(*read_key(key)))
        fail_type(key, "a whole number");
    else if (*value < 0 || *value > 0x1p53)
        fail(key, format("is {:g}; a whole number from 0 is needed", *value));
    return failed() ? std::nullopt : std::optional(static_cast<uint64_t>(*value));
}

std::optional<bool> gguf_reader::flag(std::string_view key) {
    const gguf_value *found = read_key(key);
    if (found == nullptr) return std::nullopt;
    if (const auto *value = std::get_if<bool>(found)) return *value;
    fail_type(key, "a truth value");
    return std::nullopt;
}

std::optional<std::string_view> gguf_reader::text(std::string_view key) {
    const gguf_value *found = read_key(key);
    if (found == nullptr) return std::nullopt;
    if (const auto *value = std::get_if<std::string_view>(found)) return *value;
    fail_type(key, "a text");
    return std::nullopt;
}

std::optional<int32_t> gguf_reader::id(std::string_view key, uint64_t ids) {
    const std::optional<double> value = number(key);
    if (value == -1 || value == UINT32_MAX) return std::nullopt;
    const std::optional<uint64_t> whole = count(key);
    if (whole && *whole >= ids) fail(key, format("is {}; the model has {} tokens", *whole, ids));
    return whole && !failed() ? std::optional(static_cast<int32_t>(*whole)) : std::nullopt;
}

std::vector<std::string_view> gguf_reader::prefixed_keys() const {
    std::vector<std::string_view> keys;
    for (const gguf_key &key : files_.keys())
        if (key.name.starts_with(prefix_))
            keys.push_back(std::string_view(key.name).substr(prefix_.size()));
    return keys;
}

void gguf_reader::fail(std::string_view key, const std::string &problem) {
    fail(format("{} {}", full_key(key), problem));
}

void gguf_reader::fail(const std::string &problem) {
    if (!failure_) failure_ = error{format("{}: {}", files_.first_path(), problem)};
}

void gguf_reader::fail_type(std::string_view key, const char *wanted_type) {
    const auto found = std::ranges::find(files_.keys(), full_key(key), &gguf_key::name);
    uint32_t type = 0;
    std::memcpy(&type, found->bytes.data(), sizeof type);
    fail(key, format("is of type {}; {} is needed", type_names[type], wanted_type));
}

}  // namespace moorage::core
