// json_fwd.h - the name of the JSON type, and a place to keep a value of it in a struct whose
// header leaves the type incomplete. Keys keep their order.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.h"

namespace moorage::core {

using json = nlohmann::ordered_json;

// The library's reader and writer are compiled in json.cpp alone: where these are enough, a unit
// that has them by json.h is a second slower.
json parse_json(std::string_view text);         // throws json::exception, which names the place
json json_or_discarded(std::string_view text);  // is_discarded() where the text is not JSON
// A file of another program. Infinity, -Infinity and NaN, which Python writes, are read as texts of
// these names: who needs a number refuses a text. Errors say place and reason.
result<json> read_json(std::string_view text);
// The text with quotes about Infinity, -Infinity and NaN where they stand as values.
std::string quoted_odd_numbers(std::string_view text);
// And back, in JSON as it is written here.
std::string bare_odd_numbers(std::string text);
// The library's text without its own id, and with the long middle of a last token left out.
std::string json_problem(std::string_view what);
// On one line; bytes that are no UTF-8 are replaced.
std::string json_line(const json &value);
std::string json_quoted(std::string_view text);
std::string repaired_utf8(std::string_view text);

// A value of its own: copied with the struct that has it. A moved-from one may only be assigned to
// or destroyed.
class json_box {
public:
    json_box();  // null
    json_box(json value);
    json_box(const json_box &other);
    json_box(json_box &&other) noexcept;
    json_box &operator=(const json_box &other);
    json_box &operator=(json_box &&other) noexcept;
    ~json_box();

    json &operator*() { return *held_; }
    const json &operator*() const { return *held_; }
    json *operator->() { return held_.get(); }
    const json *operator->() const { return held_.get(); }
    json &operator[](const std::string &key);
    const json &operator[](const std::string &key) const;  // Requires: the key is there

    // As bytes, and back; false and null where they are not JSON.
    std::vector<uint8_t> cbor() const;
    bool read_cbor(const std::vector<uint8_t> &bytes);

private:
    std::unique_ptr<json> held_;
};

}  // namespace moorage::core
