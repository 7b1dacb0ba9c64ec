// unicode.cpp - texts that are not UTF-8; normal forms and categories from utf8proc.
#include "core/model/unicode.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <vector>

#include <utf8proc.h>

#include "core/base/text.h"

namespace moorage::core {

namespace {

bool is_within(uint8_t byte, uint8_t low, uint8_t high) { return byte >= low && byte <= high; }

bool is_ascii(std::string_view text) {
    return std::all_of(text.begin(), text.end(),
                       [](char c) { return static_cast<int8_t>(c) >= 0; });
}

// Is `text` already in the form, judged only by its bytes? Below U+0300 nothing composes or
// decomposes in NFC, and ASCII never changes.
bool is_surely_normal(std::string_view text, normal_form form) {
    if (form != normal_form::nfc) return is_ascii(text);
    return std::all_of(text.begin(), text.end(),
                       [](char c) { return static_cast<uint8_t>(c) < 0xcc; });
}

// Sorts consecutive marks by their classes. utf8proc's own sort takes quadratic time on long runs
// of marks, which a hostile text may have.
void order_marks(std::vector<utf8proc_int32_t> &characters) {
    const auto class_of = [](utf8proc_int32_t c) {
        return utf8proc_get_property(c)->combining_class;
    };
    for (auto begin = characters.begin(); begin != characters.end();) {
        if (class_of(*begin) == 0) {
            ++begin;
            continue;
        }
        const auto end = std::find_if(begin, characters.end(),
                                      [&](utf8proc_int32_t c) { return class_of(c) == 0; });
        std::stable_sort(begin, end, [&](utf8proc_int32_t a, utf8proc_int32_t b) {
            return class_of(a) < class_of(b);
        });
        begin = end;
    }
}

std::array<int16_t, byte_characters> bytes_by_character() {
    std::array<int16_t, byte_characters> table;
    table.fill(-1);
    for (int byte = 0; byte < 256; ++byte)
        table[character_of_byte(static_cast<uint8_t>(byte))] = static_cast<int16_t>(byte);
    return table;
}

}  // namespace

bool is_valid_utf8(std::string_view text) { return first_not_utf8(text) == text.size(); }

status check_utf8(std::string_view text, std::string_view place) {
    const size_t position = first_not_utf8(text);
    if (position == text.size()) return success();
    return error{format("{}: byte {} is {:#04x}, which is not UTF-8; convert the text (iconv -f "
                        "LATIN1 -t UTF-8, for instance)",
                        place, position, static_cast<unsigned char>(text[position])),
                 true};
}

std::string to_valid_utf8(std::string_view text) {
    std::string valid_text;
    valid_text.reserve(text.size());
    while (!text.empty()) {
        const int bytes = character_bytes(text);
        if (bytes > 0)
            valid_text += text.substr(0, bytes);
        else
            valid_text += replacement_character;
        text.remove_prefix(bytes == 0 ? text.size() : bytes > 0 ? bytes : -bytes);
    }
    return valid_text;
}

char32_t next_character(std::string_view text, size_t &position) {
    assert(position < text.size());
    const auto lead = static_cast<uint8_t>(text[position++]);
    if (lead < 0x80) return lead;
    const int continuation_bytes = lead < 0xe0 ? 1 : lead < 0xf0 ? 2 : 3;
    char32_t character = lead & (0x3f >> continuation_bytes);
    for (int i = 0; i < continuation_bytes && position < text.size(); ++i)
        character = character << 6 | (static_cast<uint8_t>(text[position++]) & 0x3f);
    return character;
}

void append_character(std::string &text, char32_t c) {
    assert(c < 0x110000);
    if (c < 0x80) {
        text += static_cast<char>(c);
    } else if (c < 0x800) {
        text += static_cast<char>(0xc0 | c >> 6);
        text += static_cast<char>(0x80 | (c & 0x3f));
    } else {
        if (c < 0x10000) {
            text += static_cast<char>(0xe0 | c >> 12);
        } else {
            text += static_cast<char>(0xf0 | c >> 18);
            text += static_cast<char>(0x80 | (c >> 12 & 0x3f));
        }
        text += static_cast<char>(0x80 | (c >> 6 & 0x3f));
        text += static_cast<char>(0x80 | (c & 0x3f));
    }
}

std::string to_normal_form(std::string_view text, normal_form form) {
    if (is_surely_normal(text, form)) return std::string(text);
    const bool compatible = form == normal_form::nfkc || form == normal_form::nfkd;
    const bool compose = form == normal_form::nfc || form == normal_form::nfkc;
    const auto decompose = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_DECOMPOSE |
                                                          (compatible ? UTF8PROC_COMPAT : 0));
    // The longest decomposition of one character has 18 characters.
    std::array<utf8proc_int32_t, 32> decomposed;
    std::vector<utf8proc_int32_t> characters;
    characters.reserve(text.size());
    for (size_t position = 0; position < text.size();) {
        const auto character = static_cast<utf8proc_int32_t>(next_character(text, position));
        int boundary = 0;
        const auto count = utf8proc_decompose_char(character, decomposed.data(), decomposed.size(),
                                                   decompose, &boundary);
        if (count < 0 || count > static_cast<utf8proc_ssize_t>(decomposed.size()))
            characters.push_back(character);
        else
            characters.insert(characters.end(), decomposed.begin(), decomposed.begin() + count);
    }
    order_marks(characters);
    auto count = static_cast<utf8proc_ssize_t>(characters.size());
    if (compose)
        count = utf8proc_normalize_utf32(
            characters.data(), count,
            static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
    assert(count >= 0);
    std::string output;
    output.reserve(text.size());
    for (utf8proc_ssize_t i = 0; i < count; ++i)
        append_character(output, static_cast<char32_t>(characters[i]));
    return output;
}

std::string to_lower_case(std::string_view text) {
    std::string lowered;
    lowered.reserve(text.size());
    for (size_t position = 0; position < text.size();) {
        const char32_t character = next_character(text, position);
        if (character == 0x130)  // the only one with a lower case of two characters
            lowered += "i\xcc\x87";
        else
            append_character(
                lowered,
                static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(character))));
    }
    return lowered;
}

std::string remove_marks(std::string_view text) {
    std::string output;
    output.reserve(text.size());
    for (size_t position = 0; position < text.size();) {
        const char32_t character = next_character(text, position);
        const auto category = utf8proc_category(static_cast<utf8proc_int32_t>(character));
        if (category != UTF8PROC_CATEGORY_MN && category != UTF8PROC_CATEGORY_MC &&
            category != UTF8PROC_CATEGORY_ME)
            append_character(output, character);
    }
    return output;
}

bool is_white_space(char32_t c) {
    return (c >= 0x9 && c <= 0xd) || c == 0x20 || c == 0x85 || c == 0xa0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f ||
           c == 0x205f || c == 0x3000;
}

bool is_word_character(char32_t c) {
    switch (utf8proc_category(static_cast<utf8proc_int32_t>(c))) {
        case UTF8PROC_CATEGORY_LU:
        case UTF8PROC_CATEGORY_LL:
        case UTF8PROC_CATEGORY_LT:
        case UTF8PROC_CATEGORY_LM:
        case UTF8PROC_CATEGORY_LO:
        case UTF8PROC_CATEGORY_MN:
        case UTF8PROC_CATEGORY_MC:
        case UTF8PROC_CATEGORY_ME:
        case UTF8PROC_CATEGORY_ND:
        case UTF8PROC_CATEGORY_NL:
        case UTF8PROC_CATEGORY_PC:
            return true;
        default:
            break;
    }
    // Join_Control, and characters that are Alphabetic but no letter, mark or number: letters in
    // circles and squares.
    return c == 0x200c || c == 0x200d || (c >= 0x24b6 && c <= 0x24e9) ||
           (c >= 0x1f130 && c <= 0x1f149) || (c >= 0x1f150 && c <= 0x1f169) ||
           (c >= 0x1f170 && c <= 0x1f189);
}

size_t leading_space_bytes(std::string_view text) {
    size_t bytes = 0;
    for (size_t position = 0; position < text.size(); bytes = position)
        if (!is_white_space(next_character(text, position))) break;
    return bytes;
}

size_t trailing_space_bytes(std::string_view text) {
    size_t begin = text.size();
    while (begin > 0) {
        size_t position = begin - 1;
        while (position > 0 && (static_cast<uint8_t>(text[position]) & 0xc0) == 0x80) --position;
        size_t end = position;
        if (!is_white_space(next_character(text, end))) break;
        begin = position;
    }
    return text.size() - begin;
}

char32_t character_of_byte(uint8_t byte) {
    if (is_within(byte, 0x21, 0x7e) || is_within(byte, 0xa1, 0xac) || byte >= 0xae) return byte;
    // The other bytes are numbered from U+0100 in order: 00..20, 7F..A0, AD.
    if (byte <= 0x20) return 0x100 + byte;
    return byte == 0xad ? 0x143 : 0x121 + (byte - 0x7f);
}

int byte_of_character(char32_t character) {
    static const std::array<int16_t, byte_characters> table = bytes_by_character();
    return character < byte_characters ? table[character] : -1;
}

void append_byte_level(std::string &text, std::string_view bytes) {
    for (const char byte : bytes)
        append_character(text, character_of_byte(static_cast<uint8_t>(byte)));
}

}  // namespace moorage::core
