// unicode.h - UTF-8 and the character properties that tokenizers ask for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "core/base/result.h"
#include "core/base/utf8.h"

namespace moorage::core {

// What stands for bytes that are not UTF-8: U+FFFD.
inline constexpr std::string_view replacement_character = "\xef\xbf\xbd";

bool valid_utf8(std::string_view text);
// Fails with `place`, the number of the first byte that is not UTF-8 (from 0), and its value.
status check_utf8(std::string_view text, std::string_view place);
// Each maximal invalid stretch becomes one U+FFFD.
std::string to_valid_utf8(std::string_view text);

// Requires for the rest: valid UTF-8.
// The character at `at`, which moves behind it. Requires: at < text.size().
char32_t next_character(std::string_view text, size_t &at);
void append_character(std::string &text, char32_t character);

enum class normal_form : uint8_t { nfc, nfd, nfkc, nfkd };
std::string normalized(std::string_view text, normal_form form);
// The full lower-case mapping of each character by itself.
std::string lower_case(std::string_view text);
std::string without_marks(std::string_view text);  // characters of category M removed

bool white_space(char32_t character);  // the property White_Space
// \w of the reference's matcher: Alphabetic, M, Nd, Pc, Join_Control.
bool word_character(char32_t character);
size_t leading_space_bytes(std::string_view text);
size_t trailing_space_bytes(std::string_view text);

// The byte-level alphabet: every byte as a printable character of its own, two bytes at most
// (GPT-2; U+0021..U+0143).
inline constexpr char32_t byte_characters = 0x144;  // they are below it
char32_t character_of_byte(uint8_t byte);
// -1: stands for no byte.
int byte_of_character(char32_t character);
void append_byte_level(std::string &to, std::string_view bytes);

}  // namespace moorage::core
