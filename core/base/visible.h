// visible.h - text from files and policies, made harmless to a terminal.
#pragma once

#include <string>
#include <string_view>

namespace moorage::core {

// What a terminal would obey is shown instead: control characters (but newline and tab) by their
// pictures, as U+241B for the one that begins escape sequences; U+0080 to U+009F and bytes that are
// no UTF-8 by U+FFFD. Each is one column wide.
std::string visible(std::string_view text);

// For messages: of a word of more than 400 bytes (a name that nobody meant) the beginning and the
// end are shown, and how much lies between. Files have shorter paths.
std::string with_short_words(std::string_view text);

}  // namespace moorage::core
