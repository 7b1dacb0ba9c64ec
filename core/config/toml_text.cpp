// toml_text.cpp - checks TOML text before the library sees it, and hides bytes from it that it
// mishandles.
#include "core/config/toml_text.h"

#include <algorithm>

#include "core/base/text.h"
#include "core/base/utf8.h"

namespace moorage::core {

namespace {

constexpr int dots_max = 16;

// Follows strings and comments to find keys with too many dots. Ignores syntax errors: the library
// stops at the first one.
class dot_scanner {
public:
    explicit dot_scanner(std::string_view text) : text_(text) {}

    // The line of the first key with more than dots_max dots; 0: none. The library limits nested
    // lists but not dotted keys. Each dot is one more nested table.
    uint32_t first_too_deep() {
        int dots = 0;
        while (position_ < text_.size()) {
            const char c = text_[position_];
            if (c == '"' || c == '\'') {
                skip_string(c);
                continue;
            }
            if (c == '#') {
                skip_to_line_end();
                continue;
            }
            if (c == '.' && ++dots > dots_max) return line_;
            if (c == '=' || c == ',' || c == '\n' || c == '{') dots = 0;
            if (c == '\n') ++line_;
            ++position_;
        }
        return 0;
    }

private:
    void skip_to_line_end() { position_ = std::min(text_.find('\n', position_), text_.size()); }

    void skip_string(char quote) {
        const std::string three(3, quote);
        const bool long_string = text_.substr(position_, 3) == three;
        position_ += long_string ? 3 : 1;
        while (position_ < text_.size()) {
            if (text_[position_] == '\\' && quote == '"') {
                // The escaped character may be a line break, which must be counted.
                if (position_ + 1 < text_.size() && text_[position_ + 1] == '\n') ++line_;
                position_ += 2;
                continue;
            }
            if (text_[position_] == '\n') {
                if (!long_string) return;
                ++line_;
            }
            if (!long_string && text_[position_] == quote) return void(++position_);
            if (long_string && text_.substr(position_, 3) == three) return skip_closing(quote);
            ++position_;
        }
    }

    // Up to two more quotes belong to the string, which then ends in quotes.
    void skip_closing(char quote) {
        position_ += 3;
        for (int i = 0; i < 2 && position_ < text_.size() && text_[position_] == quote; ++i)
            ++position_;
    }

    std::string_view text_;
    size_t position_ = 0;
    uint32_t line_ = 1;
};

// The line of the first byte that is not UTF-8; 0: none.
uint32_t line_of_bad_character(std::string_view text) {
    const size_t offset = first_not_utf8(text);
    if (offset == text.size()) return 0;
    return 1 + static_cast<uint32_t>(
                   std::count(text.begin(), text.begin() + static_cast<ptrdiff_t>(offset), '\n'));
}

// Finds an escape that produces %, which encoded_text() uses as its mark. Anyone can write %
// itself, so look-alikes in literal strings are not told apart.
uint32_t line_of_escaped_percent(std::string_view text) {
    const size_t offset = std::min(text.find("\\u0025"), text.find("\\U00000025"));
    if (offset == std::string_view::npos) return 0;
    return 1 + static_cast<uint32_t>(
                   std::count(text.begin(), text.begin() + static_cast<ptrdiff_t>(offset), '\n'));
}

}  // namespace

status check_text(std::string_view text, std::string_view name) {
    const auto wrong = [&](uint32_t line, std::string_view problem) {
        return error{format("{}:{}: not valid TOML: {}", name, line, problem), true};
    };
    if (const uint32_t line = line_of_bad_character(text); line != 0)
        return wrong(line, "the text is not UTF-8");
    if (const uint32_t line = line_of_escaped_percent(text); line != 0)
        return wrong(line, "a % is escaped; write it as itself");
    if (const uint32_t line = dot_scanner(text).first_too_deep(); line != 0)
        return wrong(line, format("a key has more than {} dots", dots_max));
    return success();
}

std::string encoded_text(std::string_view text) {
    static constexpr char digits[] = "0123456789ABCDEF";
    std::string encoded;
    encoded.reserve(text.size());
    for (const char c : text) {
        const auto byte = static_cast<unsigned char>(c);
        if (byte < 0x80 && c != '%') {
            encoded += c;
        } else {
            encoded += '%';
            encoded += digits[byte >> 4];
            encoded += digits[byte & 15];
        }
    }
    return encoded;
}

std::string decoded_text(std::string_view text) {
    const auto digit = [&](size_t position) {
        if (position >= text.size()) return -1;
        const char c = text[position];
        return c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
    };
    std::string decoded;
    decoded.reserve(text.size());
    for (size_t position = 0; position < text.size(); ++position) {
        if (text[position] == '%' && digit(position + 1) >= 0 && digit(position + 2) >= 0) {
            decoded += static_cast<char>(digit(position + 1) * 16 + digit(position + 2));
            position += 2;
        } else {
            decoded += text[position];
        }
    }
    return decoded;
}

std::string quoted(const std::string &text) {
    std::string literal = "\"";
    for (const char c : text) {
        if (c == '"' || c == '\\') literal += '\\';
        if (c >= ' ' && c <= '~') literal += c;
    }
    return literal + "\"";
}

}  // namespace moorage::core
