// tokenizer_parts_test.cpp - goal: patterns, splits, normalisers and added tokens follow the
// reference library. Method: its documentation's examples and cases worked by hand, above all those
// in which its regular expressions differ from PCRE2's.
#include <doctest/doctest.h>

#include "core/model/tokenizer_added.h"
#include "core/model/tokenizer_regex.h"
#include "core/model/tokenizer_steps.h"
#include "core/model/unicode.h"

namespace tokenizer_parts_test {

using namespace moorage::core;
using strings = std::vector<std::string>;

namespace {

pattern regex(const std::string &text) {
    auto parsed = pattern::regex(text);
    REQUIRE_MESSAGE(parsed, parsed.failure().text);
    return std::move(parsed).value();
}

strings matches(const std::string &expression, const std::string &text) {
    std::vector<text_range> found;
    const pattern compiled = regex(expression);
    const status done = compiled.find_all(text, found);
    REQUIRE_MESSAGE(done, done.failure().text);
    strings result;
    for (const text_range &range : found)
        result.push_back(text.substr(range.begin, range.end - range.begin));
    return result;
}

std::string refusal(const std::string &expression) {
    const auto parsed = pattern::regex(expression);
    return parsed ? "" : parsed.failure().text;
}

strings words_of(const word_step &step, const std::string &text) {
    text_words words{text, {{0, text.size(), true}}};
    REQUIRE(apply_step(step, words, SIZE_MAX));
    strings result;
    for (const auto &word : words.words)
        result.push_back(words.text.substr(word.begin, word.end - word.begin));
    return result;
}

word_step split_step(pattern matcher, match_rule rule, bool invert = false) {
    word_step step;
    step.split = splitter{std::move(matcher), rule, invert};
    return step;
}

word_step metaspace_step(prepend_rule prepend, bool split) {
    word_step step;
    step.operation = word_step::kind::metaspace;
    step.replacement = "\u2581";
    step.prepend = prepend;
    if (split)
        step.split =
            splitter{pattern::literal(step.replacement).value(), match_rule::merged_with_next};
    return step;
}

}  // namespace

TEST_CASE("regex: GPT-2's words") {
    const std::string words =
        R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
    CHECK(matches(words, "Hello there       dear, it's 42!") ==
          strings{"Hello", " there", "      ", " dear", ",", " it", "'s", " 42", "!"});
    CHECK(matches(words, "a\n\nb  ") == strings{"a", "\n", "\n", "b", "  "});
    // U+180E was a space in Perl's eyes for long; U+0085 is one, U+200B is not.
    CHECK(matches(words, "a\u180e\u0085\u200b") == strings{"a", "\u180e", "\u0085", "\u200b"});
}

TEST_CASE("regex: what later models cut with") {
    const std::string llama3 =
        R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|)"
        R"( ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
    CHECK(matches(llama3, "I'LL pay $12345.67\r\n\n  now  ") ==
          strings{"I", "'LL", " pay", " $", "123", "45", ".", "67", "\r\n\n", " ", " now", "  "});
    // Possessive quantifiers: after ?+ the letter behind is not given back.
    CHECK(matches(R"([^\r\n\p{L}\p{N}]?+\p{L}+|.)", "'x'1") == strings{"'x", "'", "1"});
    CHECK(matches(R"('(?i:[sdmt]|ll))", "'S's'd'x'LL'l") == strings{"'S", "'s", "'d", "'LL"});
    const std::string deepseek = R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[\p{L}\p{M}]+)";
    CHECK(matches(deepseek, "-abc [x \\y ]z ^a e\u0301") ==
          strings{"-abc", "[x", "\\y", "]z", "^a", "e\u0301"});
    CHECK(matches("[一-龥ぁ-ゟ゠-ヿ]+", "x你好カz") == strings{"你好カ"});
}

TEST_CASE("regex: where the two syntaxes differ, the reference's meaning holds") {
    CHECK(matches(R"(\p{Han}+)", "好、a") == strings{"好"});  // U+3001 is Han by extension only
    CHECK(matches(R"(\p{N}{1,2}+)", "12345") == strings{"12345"});  // greedy, repeated
    CHECK(matches(R"(a{2}?b)", "b aab") == strings{"b", "aab"});
    CHECK(matches(R"(xa{,2})", "xaaa x") == strings{"xaa", "x"});
    CHECK(matches(R"([a-d&&[^bc]]+)", "abcd") == strings{"a", "d"});
    CHECK(matches(R"([a[cd]]+)", "abcda") == strings{"a", "cda"});
    CHECK(matches(R"([^a[cd]]+)", "abcdex") == strings{"b", "ex"});
    CHECK(matches(R"([\W\d]+)", "a1-b") == strings{"1-"});
    CHECK(matches(R"([^\W_]+)", "a_b-c") == strings{"a", "b", "c"});
    CHECK(matches(R"(\h+)", "fF09 g") == strings{"fF09"});
    CHECK(matches(R"(\v)", "\n\v") == strings{"\v"});
    CHECK(matches(R"((?m:a.b))", "a\nb") == strings{"a\nb"});
    CHECK(matches(R"(a.b)", "a\nb").empty());
    CHECK(matches(R"(^b$)", "a\nb\nc") == strings{"b"});
    CHECK(matches(R"(x(?i)a|b)", "xA B xB") == strings{"xA", "xB"});
    CHECK(matches(R"(\u00e9\x{20AC})", "é€") == strings{"é€"});
    CHECK(matches(R"([[:alpha:]]+)", "ab1") == strings{"ab"});
    CHECK(matches(R"([a\-c]+)", "a-bc") == strings{"a-", "c"});
    CHECK(matches(R"([\w-]+)", "a-b.c") == strings{"a-b", "c"});
    CHECK(matches(R"([sd])", "sdp") == strings{"s", "d"});
    CHECK(matches(R"(\p{^L}\P{L}\p{Letter})", "12a") == strings{"12a"});
    CHECK(matches(R"(\w)", "\u0301") == strings{"\u0301"});
    // Six other numbers of Latin-1 count as letters of words, but not within a class.
    CHECK(matches(R"(\w)", "\u00b2\u2070\u00be") == strings{"\u00b2", "\u00be"});
    CHECK(matches(R"(\W)", "\u00b2\u2070\u00be") == strings{"\u2070"});
    CHECK(matches(R"(a\b)", "a\u00b9 a\u2070") == strings{"a"});
    CHECK(matches(R"([\w]|\p{Word})", "\u00b2").empty());
    CHECK(matches(R"(\bb)", "b \u0301b") == strings{"b"});
    CHECK(matches(R"((?<=a)b(?!c))", "ab abc bb") == strings{"b"});
    CHECK(matches("a{b}{", "a{b}{") == strings{"a{b}{"});
    CHECK(matches("x*", "axxb") == strings{"", "xx", ""});
}

TEST_CASE("regex: refusals name what and where") {
    CHECK(refusal("(*UTF)a").find("cannot use (*...) at byte 0") != std::string::npos);
    CHECK(refusal(R"(\Qa)").find(R"(\Q at byte 0)") != std::string::npos);
    CHECK(refusal(R"(\p{Klingon})").find("unknown property Klingon") != std::string::npos);
    for (const char *bad :
         {"(a",     "a)",    "[a",      "\\",          "(?R)",      "(?1)", "[z-a]", "*a",
          "\\p{L",  "\\pL",  "[[:x:]]", "\\x{110000}", "\\x{d800}", "(?#",  "(?<a",  "\\ud800",
          "(?x) a", "[a&&]", "(?C1)",   "\\C",         "(?|a)",     "a(?i", "\\k",   "[\\R]"})
        CHECK_MESSAGE(!refusal(bad).empty(), bad);
    CHECK_FALSE(refusal(std::string(100, '(') + std::string(100, ')')).empty());
    CHECK_FALSE(refusal(std::string(100, '[') + "a" + std::string(100, ']')).empty());
    CHECK_FALSE(refusal(std::string(1 << 17, 'a')).empty());
    CHECK_FALSE(refusal("(((a{999}){999}){999}){999}").empty());
}

TEST_CASE("regex: a pattern that tries all ways gives up") {
    const pattern hostile = regex("(a|aa)+[bc]");
    std::vector<text_range> found;
    const status done = hostile.find_all(std::string(200, 'a'), found);
    REQUIRE_FALSE(done);
    CHECK(done.failure().text.find("gave up in a text of 200 bytes at byte 0") !=
          std::string::npos);
    // Deep backtracking takes memory up to its limit, never the stack.
    const std::string large(1 << 20, 'a');
    found.clear();
    if (regex("(?:a|b|(c))*").find_all(large, found))
        CHECK(found[0] == text_range{0, large.size()});
}

TEST_CASE("split: every rule, and inverted") {
    const auto split = [](match_rule rule, bool invert = false) {
        return words_of(split_step(pattern::literal("-").value(), rule, invert),
                        "the-final--countdown");
    };
    // The example of the reference's documentation.
    CHECK(split(match_rule::removed) == strings{"the", "final", "countdown"});
    CHECK(split(match_rule::isolated) == strings{"the", "-", "final", "-", "-", "countdown"});
    CHECK(split(match_rule::merged_with_previous) == strings{"the-", "final-", "-", "countdown"});
    CHECK(split(match_rule::merged_with_next) == strings{"the", "-final", "-", "-countdown"});
    CHECK(split(match_rule::contiguous) == strings{"the", "-", "final", "--", "countdown"});
    CHECK(split(match_rule::removed, true) == strings{"-", "-", "-"});
    CHECK(words_of(split_step(regex(R"(\p{N})"), match_rule::isolated), "a12") ==
          strings{"a", "1", "2"});
    // A word is a text of its own: a look-ahead ends with it.
    text_words words{"a b", {{0, 2, true}, {2, 3, false}}};
    REQUIRE(apply_step(split_step(regex(R"( (?!\S))"), match_rule::isolated), words, SIZE_MAX));
    CHECK(words.words.size() == 3);
}

TEST_CASE("metaspace: where the replacement is put in front") {
    using enum prepend_rule;
    CHECK(words_of(metaspace_step(always, true), "Hey   friend!") == strings{"\u2581Hey", "\u2581",
                                                                             "\u2581",
                                                                             "\u2581"
                                                                             "friend!"});
    CHECK(words_of(metaspace_step(always, false), " a b") == strings{"\u2581"
                                                                     "a\u2581"
                                                                     "b"});
    CHECK(words_of(metaspace_step(never, true), "a b") == strings{"a",
                                                                  "\u2581"
                                                                  "b"});
    for (const bool first : {true, false}) {
        text_words words{"ab", {{0, 1, first}, {1, 2, false}}};
        REQUIRE(apply_step(metaspace_step(prepend_rule::first, true), words, SIZE_MAX));
        CHECK(words.text == (first ? "\u2581"
                                     "ab"
                                   : "ab"));
    }
}

TEST_CASE("byte level: spaces in front and the alphabet") {
    word_step step;
    step.operation = word_step::kind::byte_level;
    step.prefix_space = true;
    CHECK(words_of(step, "é") == strings{"ĠÃ©"});
    CHECK(words_of(step, " a") == strings{"Ġa"});
    step.prefix_space = false;
    CHECK(words_of(step, "a\n") == strings{"aĊ"});
}

TEST_CASE("normalisers") {
    const auto run = [](normalizer_step step, const std::string &text) {
        std::vector<normalizer_step> steps;
        steps.push_back(std::move(step));
        return normalize(steps, text).value();
    };
    using kind = normalizer_step::kind;
    CHECK(run({.operation = kind::prepend, .content = "_", .match_pattern = {}}, "a") == "_a");
    CHECK(run({.operation = kind::prepend, .content = "_", .match_pattern = {}}, "") == "");
    CHECK(run({.operation = kind::strip, .content = {}, .match_pattern = {}, .left = true},
              " a ") == "a ");
    CHECK(run({.operation = kind::strip, .content = {}, .match_pattern = {}, .right = true},
              " a\u3000") == " a");
    CHECK(run({.operation = kind::replace, .content = "ab", .match_pattern = regex(R"(\s+)")},
              " x  y") == "abxaby");
    CHECK(run({.operation = kind::byte_level, .content = {}, .match_pattern = {}}, "\u20ac") ==
          "âĤ¬");
}

TEST_CASE("added tokens: leftmost, longest, and their rules") {
    added_token_finder finder;
    const auto add = [&](const char *text, added_token token) { finder.add(text, token); };
    add("<a>", {.content = "<a>", .id = 1, .special = true});
    add("<a><b>", {.content = "<a><b>", .id = 2});
    add("word", {.content = "word", .id = 3, .single_word = true});
    add("L", {.content = "L", .id = 4, .strip_left = true});
    add("R", {.content = "R", .id = 5, .strip_right = true});
    add("\n", {.content = "\n", .id = 6});
    const auto find = [&](const std::string &text, bool special = true) {
        std::string result;
        for (const auto &[begin, end, id] : finder.find(text, special))
            result +=
                (id >= 0 ? std::to_string(id) : "") + "(" + text.substr(begin, end - begin) + ")";
        return result;
    };
    CHECK(find("") == "");
    CHECK(find("x<a>y") == "(x)1(<a>)(y)");
    CHECK(find("<a><b>") == "2(<a><b>)");
    CHECK(find("<a><a><b>") == "1(<a>)2(<a><b>)");
    CHECK(find("<a><", false) == "(<a><)");
    CHECK(find("a word, sword words word") == "(a )3(word)(, sword words )3(word)");
    CHECK(find("wordé éword") == "(wordé éword)");
    CHECK(find("a \u3000Lb") == "(a)4( \u3000L)(b)");
    CHECK(find("R  L L") == "5(R  )4(L)4( L)");
    // A token within the space that another has taken is found all the same.
    CHECK(find("R\nx") == "5(R\n)6(\n)(x)");
}

}  // namespace tokenizer_parts_test
