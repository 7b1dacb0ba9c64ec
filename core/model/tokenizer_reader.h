// tokenizer_reader.h - typed access to a tokenizer.json that keeps the first problem and its place.
//
//   component_reader reader(root, "pre_tokenizer", problem);
//   const bool invert = reader.flag("invert", false);
//   if (problem) return *problem;
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/json_fwd.h"
#include "core/base/result.h"

namespace moorage::core {

// The JSON type with keys in a tree. Inserting into core::json compares all earlier keys, and a
// vocabulary has a hundred thousand.
using tokenizer_json = nlohmann::json;

// An object of the file. The first problem is kept; later reads return fallbacks.
class component_reader {
public:
    // Everything but the place is borrowed.
    component_reader(const tokenizer_json &node, std::string place, std::optional<error> &problem);

    void refuse(const std::string &problem) const;  // "PLACE: problem"
    const std::string &place() const { return place_; }
    bool failed() const { return problem_.has_value(); }

    // Null: the key is missing or its value is null.
    const tokenizer_json *find(const char *key) const;
    bool flag(const char *key, bool fallback) const;
    uint32_t number(const char *key, uint32_t fallback) const;
    // Without `fallback` the key is required.
    std::string text(const char *key, const char *fallback = nullptr) const;
    char32_t character(const char *key) const;  // a text of one character
    // The index of the text in `names`. A missing key gives index 0.
    uint32_t choice(const char *key, const std::vector<std::string> &names) const;
    std::string type(const std::vector<std::string> &known) const;  // "": refused
    component_reader object(const char *key) const;
    // The array's elements, each as a component. A missing key is refused.
    std::vector<component_reader> list(const char *key) const;

private:
    const tokenizer_json &node_;
    std::string place_;
    std::optional<error> &problem_;
};

}  // namespace moorage::core
