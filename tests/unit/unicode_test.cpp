// unicode_test.cpp - goal: UTF-8, normal forms and the byte alphabet are what their definitions
// say. Method: all characters there and back, tables of the Unicode standard, cases worked by hand.
#include <doctest/doctest.h>

#include <map>
#include <vector>

#include "core/model/unicode.h"

namespace unicode_test {

using namespace moorage::core;

TEST_CASE("unicode: every character is encoded and read back, nothing else is valid") {
    std::vector<char32_t> wrong;
    for (char32_t c = 0; c < 0x110000; ++c) {
        std::string text;
        append_character(text, c);
        const bool surrogate = c >= 0xd800 && c < 0xe000;
        size_t position = 0;
        const bool right = surrogate ? !is_valid_utf8(text)
                                     : is_valid_utf8(text) && next_character(text, position) == c &&
                                           position == text.size();
        if (!right) wrong.push_back(c);
    }
    CHECK_MESSAGE(wrong.empty(), wrong.size(), " of them, the first ",
                  static_cast<uint32_t>(wrong.empty() ? 0 : wrong.front()));
}

TEST_CASE("unicode: what is no UTF-8 becomes U+FFFD as in tables 3-8 to 3-11 of the standard") {
    const std::string r(replacement_character);
    const auto times = [&](int n) {
        std::string result;
        for (int i = 0; i < n; ++i) result += r;
        return result;
    };
    CHECK(to_valid_utf8("\xc0\xaf\xe0\x80\xbf\xf0\x81\x82\x41") == times(8) + "A");
    CHECK(to_valid_utf8("\xed\xa0\x80\xed\xbf\xbf\xed\xaf\x41") == times(8) + "A");
    CHECK(to_valid_utf8("\xf4\x91\x92\x93\xff\x41\x80\xbf\x42") == times(5) + "A" + times(2) + "B");
    CHECK(to_valid_utf8("\xe1\x80\xe2\xf0\x91\x92\xf1\xbf\x41") == times(4) + "A");
    CHECK(to_valid_utf8("\xf0\x9f\x98") == r);
    CHECK(check_utf8("caf\xc3\xa9", "a.txt").ok());
    CHECK(check_utf8("caf\xe9 au lait", "a.txt").failure().text ==
          "a.txt: byte 3 is 0xe9, which is not UTF-8; convert the text (iconv -f LATIN1 -t UTF-8, "
          "for instance)");
    CHECK(check_utf8("\xf0\x9f\x98", "a.txt").failure().text.starts_with("a.txt: byte 0 is 0xf0"));
    CHECK(character_bytes("\xf0\x9f\x98") == 0);
    CHECK(character_bytes("\xf0\x9f\x41") == -2);
}

TEST_CASE("unicode: normal forms") {
    CHECK(to_normal_form("e\u0301", normal_form::nfc) == "\u00e9");
    CHECK(to_normal_form("\u00e9", normal_form::nfd) == "e\u0301");
    CHECK(to_normal_form("\u212b", normal_form::nfc) == "\u00c5");  // a singleton
    CHECK(to_normal_form("\ufb01\u00b2", normal_form::nfkc) == "fi2");
    CHECK(to_normal_form("\ufb01", normal_form::nfc) == "\ufb01");
    CHECK(to_normal_form("\u1112\u1161\u11ab", normal_form::nfc) == "\ud55c");
    CHECK(to_normal_form("\u0958", normal_form::nfc) == "\u0915\u093c");  // excluded from composing
    // Marks are sorted by class (230, 220), and equal classes keep their order.
    CHECK(to_normal_form("a\u0301\u0323", normal_form::nfd) == "a\u0323\u0301");
    CHECK(to_normal_form("a\u0323\u0301", normal_form::nfc) == "\u1ea1\u0301");
    CHECK(to_normal_form("a\u0300\u0301", normal_form::nfc) == "\u00e0\u0301");
    // Long runs of marks in the wrong order.
    std::string run = "a", sorted = "a";
    for (int i = 0; i < 50'000; ++i) run += "\u0301\u0323";
    for (int i = 0; i < 50'000; ++i) sorted += "\u0323";
    for (int i = 0; i < 50'000; ++i) sorted += "\u0301";
    CHECK(to_normal_form(run, normal_form::nfd) == sorted);
}

TEST_CASE("unicode: case, marks, spaces, words") {
    CHECK(to_lower_case("A\u00c9\u0130\u03a3\U00010400") == "a\u00e9i\u0307\u03c3\U00010428");
    CHECK(remove_marks("e\u0301a\u20dd\u0903b") == "eab");
    CHECK(leading_space_bytes(" \t\u3000x ") == 5);
    CHECK(trailing_space_bytes(" x\u2003\n") == 4);
    CHECK(trailing_space_bytes("\u3000") == 3);
    CHECK_FALSE(is_white_space(0x200b));
    CHECK_FALSE(is_white_space(0x180e));
    for (const char32_t c :
         {U'a', U'_', U'9', U'\u0301', U'\u2160', U'\u203f', U'\u200d', U'\u24b6'})
        CHECK(is_word_character(c));
    for (const char32_t c : {U'-', U' ', U'\u00b2', U'\u20ac', U'\u2070'})
        CHECK_FALSE(is_word_character(c));
}

TEST_CASE("unicode: the byte alphabet") {
    // GPT-2's published rule: printable bytes are themselves, the others follow from U+0100.
    std::map<char32_t, int> bytes;
    int others = 0;
    for (int byte = 0; byte < 256; ++byte) {
        const bool printable = (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte <= 0xac) ||
                               (byte >= 0xae && byte <= 0xff);
        bytes[printable ? static_cast<char32_t>(byte) : 0x100 + others++] = byte;
    }
    CHECK(bytes.size() == 256);
    for (char32_t c = 0; c < 0x200; ++c)
        CHECK(byte_of_character(c) == (bytes.contains(c) ? bytes[c] : -1));
    for (const auto &[character, byte] : bytes)
        CHECK(character_of_byte(static_cast<uint8_t>(byte)) == character);
    CHECK(character_of_byte(' ') == U'\u0120');
}

}  // namespace unicode_test
