// json.cpp - what needs the whole of the JSON type but belongs to its name.
#include "core/base/json.h"

#include <algorithm>
#include <utility>

namespace moorage::core {

json parse_json(std::string_view text) { return json::parse(text.begin(), text.end()); }

json json_or_discarded(std::string_view text) {
    return json::parse(text.begin(), text.end(), nullptr, /*allow_exceptions=*/false);
}

std::string json_line(const json &value) {
    return value.dump(-1, ' ', false, json::error_handler_t::replace);
}

std::string json_quoted(std::string_view text) { return json_line(json(text)); }

std::string repaired_utf8(std::string_view text) {
    const bool plain = std::all_of(text.begin(), text.end(),
                                   [](char c) { return static_cast<unsigned char>(c) < 0x80; });
    return plain ? std::string(text) : parse_json(json_quoted(text)).get<std::string>();
}

json_box::json_box() : held_(std::make_unique<json>()) {}
json_box::json_box(json value) : held_(std::make_unique<json>(std::move(value))) {}
json_box::json_box(const json_box &other) : held_(std::make_unique<json>(*other.held_)) {}
json_box::json_box(json_box &&other) noexcept = default;
json_box &json_box::operator=(json_box &&other) noexcept = default;
json_box::~json_box() = default;

json_box &json_box::operator=(const json_box &other) {
    held_ = std::make_unique<json>(*other.held_);
    return *this;
}

json &json_box::operator[](const std::string &key) { return (*held_)[key]; }
const json &json_box::operator[](const std::string &key) const {
    return std::as_const(*held_)[key];
}

std::vector<uint8_t> json_box::cbor() const { return json::to_cbor(*held_); }

bool json_box::read_cbor(const std::vector<uint8_t> &bytes) {
    json read = json::from_cbor(bytes, /*strict=*/true, /*allow_exceptions=*/false);
    const bool sound = !read.is_discarded();
    *this = json_box(sound ? std::move(read) : json());
    return sound;
}

}  // namespace moorage::core
