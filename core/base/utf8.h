// utf8.h - finds where characters begin and end.
#pragma once

#include <cstddef>
#include <string_view>

namespace moorage::core {

// The number of bytes of the character that begins at text[0]: 1 to 4 if it is complete. 0: `text`
// is empty or ends within the character. Negative: the first -n bytes belong to no character and
// become one U+FFFD together ("maximal subparts", Unicode 3.9, as in every common decoder).
int character_bytes(std::string_view text);

// The index of the first byte that does not begin a character; text.size() if there is none.
size_t first_not_utf8(std::string_view text);

}  // namespace moorage::core
