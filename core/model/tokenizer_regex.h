// tokenizer_regex.h - regular expressions of a tokenizer.json, from the syntax of its reference
// (Oniguruma, Ruby flavour) to that of PCRE2.
//
// The two write most things alike and mean different things by some: \s, \w, \h and \v, property
// names (\p{Han} is the script, not its extensions), {n,m}+ (greedy twice, not possessive), {,n},
// classes within classes and &&, (?m), how far (?i) reaches, \uHHHH. What has no counterpart is an
// error that names it.
#pragma once

#include <string>
#include <string_view>

#include "core/base/result.h"

namespace moorage::core {

// `compiles`: whether PCRE2 takes the piece of a pattern (a property's name). Requires: valid
// UTF-8.
result<std::string> to_pcre2(std::string_view pattern, bool (*compiles)(const std::string &piece));

}  // namespace moorage::core
