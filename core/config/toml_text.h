// toml_text.h - checks TOML text before the library sees it, and hides from it what it stumbles
// over.
//
// The library is given ASCII only, with every other byte as % and two hexadecimal digits.
// Version 3.3 looks up blanks beyond ASCII in a switch without a case for most letters, which is
// undefined behaviour. In strings the bytes come back by decoded_text(); elsewhere TOML has no use
// for them.
#pragma once

#include <string>
#include <string_view>

#include "core/base/result.h"

namespace moorage::core {

// Fails on what is not UTF-8, on keys with too many dots (of which the library makes nested tables
// without a bound) and on an escaped %. The rest of the grammar is the library's.
status check_text(std::string_view text, std::string_view name);

std::string encoded_text(std::string_view text);
// Requires: `text` was parsed from an encoded_text() that passed check_text() before.
std::string decoded_text(std::string_view text);

// As a TOML value.
std::string quoted(const std::string &text);

}  // namespace moorage::core
