// visible.cpp - one pass over the code points.
#include "core/base/visible.h"

#include <algorithm>
#include <string>

namespace moorage::core {

namespace {

unsigned char byte_at(std::string_view text, size_t position) {
    return position < text.size() ? static_cast<unsigned char>(text[position]) : 0;
}

// The number of bytes of the code point at `position`; 0: none begins there. Requires: not ASCII.
size_t code_point_bytes(std::string_view text, size_t position) {
    const unsigned char lead = byte_at(text, position), second = byte_at(text, position + 1);
    const size_t bytes = lead >= 0xC2 && lead <= 0xDF   ? 2
                         : lead >= 0xE0 && lead <= 0xEF ? 3
                         : lead >= 0xF0 && lead <= 0xF4 ? 4
                                                        : 0;
    for (size_t i = 1; i < bytes; ++i)
        if ((byte_at(text, position + i) & 0xC0) != 0x80) return 0;
    // Too long encodings, halves of UTF-16 pairs, and values above U+10FFFF.
    if ((lead == 0xE0 && second < 0xA0) || (lead == 0xED && second >= 0xA0) ||
        (lead == 0xF0 && second < 0x90) || (lead == 0xF4 && second >= 0x90))
        return 0;
    return bytes;
}

}  // namespace

std::string visible(std::string_view text) {
    static constexpr const char *replacement = "\xEF\xBF\xBD";
    std::string shown;
    shown.reserve(text.size());
    for (size_t position = 0; position < text.size();) {
        const unsigned char byte = byte_at(text, position);
        const size_t bytes = byte < 0x80 ? 1 : code_point_bytes(text, position);
        if (byte == '\n' || byte == '\t' || (byte >= 0x20 && byte < 0x7F))
            shown += text[position];
        else if (byte < 0x80)  // U+2400 and on, in UTF-8
            (shown += "\xE2\x90") += static_cast<char>(byte == 0x7F ? 0xA1 : 0x80 + byte);
        else if (bytes == 0 || (byte == 0xC2 && byte_at(text, position + 1) < 0xA0))
            shown += replacement;
        else
            shown += text.substr(position, bytes);
        position += std::max<size_t>(bytes, 1);
    }
    return shown;
}

std::string with_short_words(std::string_view text) {
    constexpr size_t word_bytes_max = 400, kept_bytes = 150;
    constexpr std::string_view separators = " \t\n";
    std::string shown;
    for (size_t position = 0; position < text.size();) {
        const size_t begin = std::min(text.find_first_not_of(separators, position), text.size());
        const size_t end = std::min(text.find_first_of(separators, begin), text.size());
        shown += text.substr(position, begin - position);
        position = end;
        if (end - begin <= word_bytes_max) {
            shown += text.substr(begin, end - begin);
            continue;
        }
        // Move both cuts to boundaries between code points.
        size_t head = begin + kept_bytes, tail = end - kept_bytes;
        while (head > begin && (byte_at(text, head) & 0xC0) == 0x80) --head;
        while (tail < end && (byte_at(text, tail) & 0xC0) == 0x80) ++tail;
        shown += text.substr(begin, head - begin);
        shown += "[" + std::to_string(tail - head) + " bytes more]";
        shown += text.substr(tail, end - tail);
    }
    return shown;
}

}  // namespace moorage::core
