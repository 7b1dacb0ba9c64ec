// visible.h - makes text from files and policies harmless to a terminal.
#pragma once

#include <string>
#include <string_view>

namespace moorage::core {

// Replaces everything that a terminal would obey. Control characters other than newline and tab
// become their pictures, such as U+241B for the one that begins escape sequences. U+0080 to U+009F
// and bytes that are not UTF-8 become U+FFFD. Each replacement is one column wide.
std::string visible(std::string_view text);

// For messages: shortens a word of more than 400 bytes, which is not a real name, to its beginning,
// its end and the number of bytes between. Paths of files are shorter.
std::string with_short_words(std::string_view text);

}  // namespace moorage::core
