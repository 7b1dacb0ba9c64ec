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
        while (at_ < text_.size()) {
            const char c = text_[at_];
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
            ++at_;
        }
        return 0;
    }

private:
    void skip_to_line_end() { at_ = std::min(text_.find('\n', at_), text_.size()); }

    void skip_string(char quote) {
        const std::string three(3, quote);
        const bool long_string = text_.substr(at_, 3) == three;
        at_ += long_string ? 3 : 1;
        while (at_ < text_.size()) {
            if (text_[at_] == '\\' && quote == '"') {
                // The escaped character may be a line break, which must be counted.
                if (at_ + 1 < text_.size() && text_[at_ + 1] == '\n') ++line_;
                at_ += 2;
                continue;
            }
            if (text_[at_] == '\n') {
                if (!long_string) return;
                ++line_;
            }
            if (!long_string && text_[at_] == quote) return void(++at_);
            if (long_string && text_.substr(at_, 3) == three) return skip_closing(quote);
            ++at_;
        }
    }

    // Up to two more quotes belong to the string, which then ends in quotes.
    void skip_closing(char quote) {
        at_ += 3;
        for (int i = 0; i < 2 && at_ < text_.size() && text_[at_] == quote; ++i) ++at_;
    }

    std::string_view text_;
    size_t at_ = 0;
    uint32_t line_ = 1;
};

// The line of the first byte that is not UTF-8; 0: none.
uint32_t line_of_bad_character(std::string_view text) {
    const size_t at = first_not_utf8(text);
    if (at == text.size()) return 0;
    return 1 + static_cast<uint32_t>(
                   std::count(text.begin(), text.begin() + static_cast<ptrdiff_t>(at), '\n'));
}

// Finds an escape that produces %, which encoded_text() uses as its mark. Anyone can write %
// itself, so look-alikes in literal strings are not told apart.
uint32_t line_of_escaped_percent(std::string_view text) {
    const size_t at = std::min(text.find("\\u0025"), text.find("\\U00000025"));
    if (at == std::string_view::npos) return 0;
    return 1 + static_cast<uint32_t>(
                   std::count(text.begin(), text.begin() + static_cast<ptrdiff_t>(at), '\n'));
}

}  // namespace

status check_text(std::string_view text, std::string_view name) {
    const auto wrong = [&](uint32_t line, std::string_view what) {
        return error{format("{}:{}: not valid TOML: {}", name, line, what), true};
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
    std::string out;
    out.reserve(text.size());
    for (const char c : text) {
        const auto byte = static_cast<unsigned char>(c);
        if (byte < 0x80 && c != '%') {
            out += c;
        } else {
            out += '%';
            out += digits[byte >> 4];
            out += digits[byte & 15];
        }
    }
    return out;
}

std::string decoded_text(std::string_view text) {
    const auto digit = [&](size_t at) {
        if (at >= text.size()) return -1;
        const char c = text[at];
        return c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
    };
    std::string out;
    out.reserve(text.size());
    for (size_t at = 0; at < text.size(); ++at) {
        if (text[at] == '%' && digit(at + 1) >= 0 && digit(at + 2) >= 0) {
            out += static_cast<char>(digit(at + 1) * 16 + digit(at + 2));
            at += 2;
        } else {
            out += text[at];
        }
    }
    return out;
}

std::string quoted(const std::string &text) {
    std::string out = "\"";
    for (const char c : text) {
        if (c == '"' || c == '\\') out += '\\';
        if (c >= ' ' && c <= '~') out += c;
    }
    return out + "\"";
}

}  // namespace moorage::core
