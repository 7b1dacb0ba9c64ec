// unicode.h - UTF-8 and the character properties that tokenizers need.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "core/base/result.h"
#include "core/base/utf8.h"

namespace moorage::core {

// U+FFFD, which replaces bytes that are not UTF-8.
inline constexpr std::string_view replacement_character = "\xef\xbf\xbd";

bool is_valid_utf8(std::string_view text);
// Fails with `place`, the index (from 0) of the first byte that is not UTF-8, and its value.
status check_utf8(std::string_view text, std::string_view place);
// Replaces each maximal invalid part by one U+FFFD.
std::string to_valid_utf8(std::string_view text);

// The functions below require valid UTF-8. Returns the character at `position` and moves `position`
// behind it. Requires: position < text.size().
char32_t next_character(std::string_view text, size_t &position);
void append_character(std::string &text, char32_t character);

enum class normal_form : uint8_t { nfc, nfd, nfkc, nfkd };
std::string to_normal_form(std::string_view text, normal_form form);
// Maps each character by itself, with the full lower-case mapping.
std::string to_lower_case(std::string_view text);
std::string remove_marks(std::string_view text);  // characters of category M removed

bool is_white_space(char32_t character);  // the property White_Space
// \w of the reference's matcher: Alphabetic, M, Nd, Pc, Join_Control.
bool is_word_character(char32_t character);
size_t leading_space_bytes(std::string_view text);
size_t trailing_space_bytes(std::string_view text);

// The byte-level alphabet of GPT-2: a printable character for every byte, at most two bytes long
// (U+0021..U+0143).
inline constexpr char32_t byte_characters = 0x144;  // all of them are below this
char32_t character_of_byte(uint8_t byte);
// -1: the character stands for no byte.
int byte_of_character(char32_t character);
void append_byte_level(std::string &text, std::string_view bytes);

}  // namespace moorage::core
