// toml_text.h - checks TOML text before the library sees it, and hides bytes from it that it
// mishandles.
//
// The library is given only ASCII. Every other byte is written as % and two hexadecimal digits. The
// reason is version 3.3: it looks up blanks beyond ASCII in a switch without a case for most
// letters, which is undefined behaviour. In strings, decoded_text() restores the bytes. Elsewhere
// TOML does not use them.
#pragma once

#include <string>
#include <string_view>

#include "core/base/result.h"

namespace moorage::core {

// Fails on text that is not UTF-8, on keys with too many dots, and on an escaped %. The library
// makes nested tables of dots, without a limit. It checks the rest of the grammar itself.
status check_text(std::string_view text, std::string_view name);

std::string encoded_text(std::string_view text);
// Requires: `text` was parsed from an encoded_text() that had passed check_text().
std::string decoded_text(std::string_view text);

// As a TOML value.
std::string quoted(const std::string &text);

}  // namespace moorage::core
