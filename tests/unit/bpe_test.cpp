// bpe_test.cpp - goal: both ways of merging follow the definition of byte-pair encoding, and
// unknown characters follow the reference library. Method: a plain merge of the lowest rank over
// random vocabularies, cases worked by hand.
#include <doctest/doctest.h>

#include <algorithm>
#include <random>

#include "core/model/bpe.h"

namespace bpe_test {

using namespace moorage::core;
using strings = std::vector<std::string>;

namespace {

using merge_list = bpe::merge_list;

// Merges the pair of lowest rank, leftmost first, until none is left.
strings slow_merge(strings symbols, const merge_list &merges) {
    for (;;) {
        size_t best = merges.size(), position = 0;
        for (size_t i = 0; i + 1 < symbols.size(); ++i) {
            // The last of equal merges counts.
            const auto found =
                std::find(merges.rbegin(), merges.rend(), std::pair{symbols[i], symbols[i + 1]});
            const size_t rank = found == merges.rend() ? merges.size() : merges.rend() - found - 1;
            if (rank < best) best = rank, position = i;
        }
        if (best == merges.size()) return symbols;
        symbols[position] += symbols[position + 1];
        symbols.erase(symbols.begin() + position + 1);
    }
}

struct small_model {
    std::vector<std::pair<std::string, uint32_t>> entries;
    merge_list merges;
    void add(const std::string &token) {
        for (const auto &[known, id] : entries)
            if (known == token) return;
        entries.emplace_back(token, entries.size());
    }
    bpe make(bpe_rules rules = {}) const {
        auto words = vocabulary::make(entries);
        REQUIRE(words);
        auto tokenizer = bpe::make(std::move(words).value(), merges, std::move(rules));
        REQUIRE_MESSAGE(tokenizer, tokenizer.failure().text);
        return std::move(tokenizer).value();
    }
};

std::string tokens_of(const bpe &model, const std::string &word) {
    bpe::workspace memory;
    std::vector<int32_t> ids;
    const status done = model.encode(word, memory, ids);
    if (!done) return "error: " + done.failure().text;
    std::string text;
    for (const int32_t id : ids) text += (text.empty() ? "" : " ") + *model.words().token_of(id);
    return text;
}

}  // namespace

TEST_CASE("bpe: the same as merging the lowest rank again and again") {
    std::mt19937 random(11);
    for (int round = 0; round < 60; ++round) {
        small_model model;
        for (const char *token : {"a", "b", "c", "é"}) model.add(token);
        const int merges = 1 + static_cast<int>(random() % 40);
        for (int i = 0; i < merges; ++i) {
            const std::string left = model.entries[random() % model.entries.size()].first;
            const std::string right = model.entries[random() % model.entries.size()].first;
            if (left.size() + right.size() > 12) continue;
            model.add(left + right);
            model.merges.emplace_back(left, right);
        }
        const bpe tokenizer = model.make();
        for (int i = 0; i < 30; ++i) {
            strings symbols(random() % (i % 3 == 0 ? 250 : 45));
            std::string word, expected;
            for (std::string &symbol : symbols) word += symbol = model.entries[random() % 4].first;
            for (const std::string &symbol : slow_merge(symbols, model.merges))
                expected += (expected.empty() ? "" : " ") + symbol;
            CHECK_MESSAGE(tokens_of(tokenizer, word) == expected, word);
        }
    }
}

TEST_CASE("bpe: a long word without a space") {
    small_model model;
    for (const char *token : {"a", "aa", "aaaa"}) model.add(token);
    model.merges = {{"a", "a"}, {"aa", "aa"}};
    const bpe tokenizer = model.make();
    bpe::workspace memory;
    std::vector<int32_t> ids;
    REQUIRE(tokenizer.encode(std::string(100'003, 'a'), memory, ids));
    // 25,000 times four, then aa and a.
    REQUIRE(ids.size() == 25'002);
    CHECK(std::count(ids.begin(), ids.end(), 2) == 25'000);
    CHECK(ids[25'000] == 1);
    CHECK(ids[25'001] == 0);
}

TEST_CASE("bpe: unknown characters, bytes, whole words") {
    small_model model;
    for (const char *token : {"<unk>", "a", "b", "ab", "<0xC3>", "<0xA9>", "abc"}) model.add(token);
    model.merges = {{"a", "b"}};
    CHECK(tokens_of(model.make(), "abx").find("no token for U+0078") != std::string::npos);
    CHECK(tokens_of(model.make({.unknown_token = "<unk>"}), "xyab") == "<unk> <unk> ab");
    CHECK(tokens_of(model.make({.unknown_token = "<unk>", .fuse_unknown = true}), "xyabz") ==
          "<unk> ab <unk>");
    CHECK(tokens_of(model.make({.unknown_token = "<unk>", .byte_fallback = true}), "aéx") ==
          "a <0xC3> <0xA9> <unk>");
    CHECK(tokens_of(model.make({.unknown_token = "<unk>"}), "abc") == "ab <unk>");
    CHECK(tokens_of(model.make({.unknown_token = "", .ignore_merges = true}), "abc") == "abc");
    CHECK(tokens_of(model.make({.unknown_token = "", .ignore_merges = true}), "") == "");
}

TEST_CASE("bpe: words of merges that are no tokens merge on the way to others") {
    // ab and xy are none: a b c becomes ab c, then abc; a b d becomes ab d, which is spelled out.
    small_model model;
    for (const char *token : {"<unk>", "a", "b", "c", "d", "y", "abc", "<0x78>"}) model.add(token);
    model.merges = {{"a", "b"}, {"ab", "c"}, {"x", "y"}};
    const bpe tokenizer = model.make({.unknown_token = "<unk>", .byte_fallback = true});
    CHECK(std::vector(tokenizer.words().hidden().begin(), tokenizer.words().hidden().end()) ==
          strings{"ab", "x", "xy"});
    CHECK(tokenizer.tokens() == 8);
    CHECK(tokens_of(tokenizer, "abc") == "abc");
    CHECK(tokens_of(tokenizer, "abd") == "a b d");
    CHECK(tokens_of(tokenizer, "ab") == "a b");
    CHECK(tokens_of(tokenizer, "dxy") == "d <0x78> y");  // x has a byte, and no token
    const bpe whole = model.make({.unknown_token = "", .ignore_merges = true});
    CHECK(tokens_of(whole, "ab") == "a b");
    CHECK(tokens_of(whole, "x").find("no token for U+0078") != std::string::npos);
    CHECK(tokens_of(model.make({.unknown_token = "<unk>"}), "xyd") == "<unk> y d");
    const std::string many = [] {
        std::string text;
        for (int i = 0; i < 30; ++i) text += "abd";
        return text;
    }();
    std::string spelt;
    for (int i = 0; i < 30; ++i) spelt += i == 0 ? "a b d" : " a b d";
    CHECK(tokens_of(tokenizer, many) == spelt);
    auto words = vocabulary::make({{"a", 0}, {"b", 1}});
    REQUIRE(words);
    const auto named = bpe::make(std::move(words).value(), {{"a", "b"}}, {.unknown_token = "ab"});
    CHECK_FALSE(named.ok());
}

TEST_CASE("bpe: what the vocabulary lacks is named") {
    const auto twice = vocabulary::make({{"a", 3}, {"b", 3}});
    REQUIRE_FALSE(twice);
    CHECK(twice.failure().text == "tokens \"a\" and \"b\" have the same id 3");
}

}  // namespace bpe_test
