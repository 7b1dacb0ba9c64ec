// utf8.h - where characters begin and end.
#pragma once

#include <cstddef>
#include <string_view>

namespace moorage::core {

// Bytes of the character that begins at text[0]: 1 to 4 for a whole one; 0 when `text` ends before
// the character does (or is empty); negative: the first -n bytes belong to no character, and make
// one U+FFFD together ("maximal subparts", Unicode 3.9, as every common decoder does).
int character_bytes(std::string_view text);

// Of the first byte that begins no character; text.size() where each does.
size_t first_not_utf8(std::string_view text);

}  // namespace moorage::core
