// Goal: no text that a terminal would obey passes, and nothing else changes. Written text is
// formatted by the host's function, whatever comes with an argument. Method: every code point and
// every byte, compared with the definitions of Unicode and UTF-8; an argument with a format() of
// its own.
#include <doctest/doctest.h>

#include <memory>
#include <string>
#include <string_view>

#include "core/base/text.h"
#include "core/base/visible.h"

// Like std::string, which has std::format() if the compiler's library has <format>.
namespace visible_test::elsewhere {

template <class T>
struct allocator : std::allocator<T> {
    using std::allocator<T>::allocator;
    template <class Other>
    allocator(const allocator<Other> &) {}
};
using text = std::basic_string<char, std::char_traits<char>, allocator<char>>;

template <class... Values>
std::string format(std::string_view, Values &&...) {
    return "formatted elsewhere";
}

}  // namespace visible_test::elsewhere

namespace visible_test {

using moorage::core::visible;
using moorage::core::with_short_words;

namespace {

std::string utf8(uint32_t code) {
    const auto tail = [&](int shift) { return static_cast<char>(0x80 | ((code >> shift) & 0x3F)); };
    if (code < 0x80) return {static_cast<char>(code)};
    if (code < 0x800) return {static_cast<char>(0xC0 | code >> 6), tail(0)};
    if (code < 0x10000) return {static_cast<char>(0xE0 | code >> 12), tail(6), tail(0)};
    return {static_cast<char>(0xF0 | code >> 18), tail(12), tail(6), tail(0)};
}

}  // namespace

TEST_CASE("every code point stays, but for those that control") {
    for (uint32_t code = 0; code <= 0x10FFFF; ++code) {
        if (code >= 0xD800 && code < 0xE000) continue;  // no code points
        std::string wanted = utf8(code);
        if (code < 0x20 && code != '\n' && code != '\t') wanted = utf8(0x2400 + code);
        if (code == 0x7F) wanted = utf8(0x2421);
        if (code >= 0x80 && code < 0xA0) wanted = utf8(0xFFFD);
        if (visible("a" + utf8(code) + "b") != "a" + wanted + "b") FAIL("code point " << code);
    }
    CHECK(visible("") == "");
    CHECK(visible("\x1b[2J\x1b]0;title\x07") == "␛[2J␛]0;title␇");
    CHECK(visible("grün, 日本語 🙂\n\tx") == "grün, 日本語 🙂\n\tx");
}

TEST_CASE("bytes that are no UTF-8 are replaced one by one") {
    const std::string mark = utf8(0xFFFD);
    for (int byte = 0x80; byte < 0x100; ++byte)
        CHECK(visible(std::string(1, static_cast<char>(byte)) + "x") == mark + "x");
    CHECK(visible("\xC1\x9B") == mark + mark);                        // U+005B, longer than needed
    CHECK(visible("\xE0\x82\x9B") == mark + mark + mark);             // U+009B, longer than needed
    CHECK(visible("\xED\xA0\x80") == mark + mark + mark);             // half of a pair
    CHECK(visible("\xF4\x90\x80\x80") == mark + mark + mark + mark);  // above the last
    CHECK(visible("\xE6\x97") == mark + mark);                        // cut off
    CHECK(visible("\xE6\x97\x1b") == mark + mark + "␛");
}

TEST_CASE("of a word that nobody meant the beginning and the end are shown") {
    const std::string long_word(5000, 'a'), path(399, 'p');
    CHECK(with_short_words("no policy " + path + ", nor x") == "no policy " + path + ", nor x");
    CHECK(with_short_words("no policy " + long_word + " and\n" + long_word) ==
          "no policy " + std::string(150, 'a') + "[4700 bytes more]" + std::string(150, 'a') +
              " and\n" + std::string(150, 'a') + "[4700 bytes more]" + std::string(150, 'a'));
    // Letters of two bytes are not torn.
    std::string letters = "x";
    for (int i = 0; i < 300; ++i) letters += "\u00fc";
    const std::string cut = with_short_words(letters);
    CHECK(visible(cut) == cut);
    CHECK(cut.find("bytes more]") != std::string::npos);
    CHECK(with_short_words("") == "");
    CHECK(with_short_words(" \n ") == " \n ");
}

TEST_CASE("an argument's own format() is not asked") {
    using moorage::core::format;
    CHECK(format("{} {}", elsewhere::text("here"), std::string("and here")) == "here and here");
}

}  // namespace visible_test
