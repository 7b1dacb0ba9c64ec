// json_fwd.h - the name of the JSON type, and a box for a JSON value in structs whose header leaves
// the type incomplete. Keys keep their order.
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

// The library's reader and writer are compiled in json.cpp only. A unit that includes json.h takes
// a second longer to compile, so use these functions where they are enough.
json parse_json(std::string_view text);         // throws json::exception, which names the place
json json_or_discarded(std::string_view text);  // is_discarded() if the text is not JSON
// Reads a file of another program. Infinity, -Infinity and NaN, which Python writes, become strings
// of these names. A reader that needs a number refuses a string. Errors give place and reason.
result<json> read_json(std::string_view text);
// The text with Infinity, -Infinity and NaN in quotes wherever they are values.
std::string quote_non_finite_numbers(std::string_view text);
// The reverse, for JSON as this program writes it.
std::string unquote_non_finite_numbers(std::string text);
// The library's message without its error id. A long last token loses its beginning.
std::string json_problem(std::string_view message);
// On one line. Bytes that are not UTF-8 are replaced.
std::string json_line(const json &value);
std::string json_quoted(std::string_view text);
std::string repaired_utf8(std::string_view text);

// Owns its value: copying the struct copies the value. A moved-from box may only be assigned to or
// destroyed.
class json_box {
public:
    json_box();  // null
    json_box(json value);
    json_box(const json_box &source);
    json_box(json_box &&source) noexcept;
    json_box &operator=(const json_box &source);
    json_box &operator=(json_box &&source) noexcept;
    ~json_box();

    json &operator*() { return *held_; }
    const json &operator*() const { return *held_; }
    json *operator->() { return held_.get(); }
    const json *operator->() const { return held_.get(); }
    json &operator[](const std::string &key);
    const json &operator[](const std::string &key) const;  // Requires: the key exists

    // As CBOR bytes, and back. Returns false and holds null if the bytes are not JSON.
    std::vector<uint8_t> cbor() const;
    bool read_cbor(const std::vector<uint8_t> &bytes);

private:
    std::unique_ptr<json> held_;
};

}  // namespace moorage::core
