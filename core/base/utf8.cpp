// utf8.cpp - follows the table of well-formed sequences (Unicode 3.9, table 3-7).
#include "core/base/utf8.h"

#include <cstdint>

namespace moorage::core {

namespace {

bool is_within(uint8_t byte, uint8_t low, uint8_t high) { return byte >= low && byte <= high; }

}  // namespace

int character_bytes(std::string_view text) {
    if (text.empty()) return 0;
    const auto byte_at = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
    const uint8_t lead = byte_at(0);
    if (lead < 0x80) return 1;
    if (!is_within(lead, 0xc2, 0xf4)) return -1;
    const int length = lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
    // The second byte's range excludes overlong forms, surrogates and what is above U+10FFFF.
    const uint8_t low = lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : 0x80;
    const uint8_t high = lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : 0xbf;
    for (int i = 1; i < length; ++i) {
        if (static_cast<size_t>(i) == text.size()) return 0;
        if (!is_within(byte_at(i), i == 1 ? low : 0x80, i == 1 ? high : 0xbf)) return -i;
    }
    return length;
}

size_t first_not_utf8(std::string_view text) {
    size_t position = 0;
    while (position < text.size()) {
        const int bytes = character_bytes(text.substr(position));
        if (bytes <= 0) break;
        position += static_cast<size_t>(bytes);
    }
    return position;
}

}  // namespace moorage::core
