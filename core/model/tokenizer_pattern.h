// tokenizer_pattern.h - a compiled pattern of a tokenizer.json, and the search for its matches.
//
// Patterns and texts may both be hostile. The work on one match is limited in proportion to the
// text, and memory to 64 MB. Exceeding a limit is an error.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.h"

namespace moorage::core {

// Bytes [begin, end) of a text.
struct text_range {
    size_t begin, end;
    bool operator==(const text_range &) const = default;
};

class pattern {
public:
    // A plain text to search for. Requires: valid UTF-8.
    static result<pattern> literal(std::string text);
    // A regular expression in the reference's syntax (tokenizer_regex.h). Errors name the pattern
    // and the place in it.
    static result<pattern> regex(const std::string &text);
    ~pattern();
    pattern(pattern &&) noexcept;
    pattern &operator=(pattern &&) noexcept;

    // Appends all matches to `matches`, from left to right without overlap. An empty match directly
    // behind another match does not count. Requires: valid UTF-8. Thread-safe.
    status find_all(std::string_view text, std::vector<text_range> &matches) const;
    // Not empty: the pattern matches exactly this text.
    const std::string &literal_text() const { return literal_; }

private:
    struct compiled;
    pattern();
    std::string literal_, source_;
    std::unique_ptr<compiled> compiled_;  // null if literal_ is not empty
};

}  // namespace moorage::core
