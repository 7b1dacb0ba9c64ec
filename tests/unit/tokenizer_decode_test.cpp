// tokenizer_decode_test.cpp - goal: decoding in pieces gives the text of the reference library's
// decoding at once. Method: its rules on whole lists of tokens, written plainly, compared on random
// chains and tokens.
#include <doctest/doctest.h>

#include <cstdio>
#include <random>

#include "core/model/tokenizer_decode.h"
#include "core/model/tokenizer_steps.h"
#include "core/model/unicode.h"

namespace tokenizer_decode_test {

using namespace moorage::core;
using strings = std::vector<std::string>;

namespace {

// The reference's decoders, on whole lists.
std::string lossy(const std::string &bytes) { return to_valid_utf8(bytes); }

strings slow_byte_level(const strings &tokens) {
    std::string bytes;
    for (const std::string &token : tokens) {
        std::string token_bytes;
        bool is_bytes = true;
        for (size_t position = 0; position < token.size();) {
            const int byte = byte_of_character(next_character(token, position));
            is_bytes = is_bytes && byte >= 0;
            token_bytes += static_cast<char>(byte);
        }
        bytes += is_bytes ? token_bytes : token;
    }
    return {lossy(bytes)};
}

strings slow_byte_fallback(const strings &tokens) {
    strings result;
    std::string run;
    const auto end_run = [&] {
        if (run.empty()) return;
        if (is_valid_utf8(run))
            result.push_back(run);
        else
            result.insert(result.end(), run.size(), std::string(replacement_character));
        run.clear();
    };
    for (const std::string &token : tokens) {
        unsigned byte = 0;
        if (token.size() == 6 && std::sscanf(token.c_str(), "<0x%2X>", &byte) == 1) {
            run += static_cast<char>(byte);
            continue;
        }
        end_run();
        result.push_back(token);
    }
    end_run();
    return result;
}

std::u32string characters(const std::string &text) {
    std::u32string result;
    for (size_t position = 0; position < text.size();) result += next_character(text, position);
    return result;
}

std::string slow_strip(const decoder_step &step, const std::string &token) {
    std::u32string text = characters(token);
    for (uint32_t i = 0; i < step.start && !text.empty() && text.front() == step.character; ++i)
        text.erase(0, 1);
    for (uint32_t i = 0; i < step.stop && !text.empty() && text.back() == step.character; ++i)
        text.pop_back();
    std::string result;
    for (const char32_t c : text) append_character(result, c);
    return result;
}

std::string slow_metaspace(const decoder_step &step, const std::string &token, bool first) {
    std::string result;
    for (const char32_t c : characters(token))
        if (c != step.character)
            append_character(result, c);
        else if (!first || !step.prepended)
            result += ' ';
    return result;
}

strings slow_decode(const decoder_step &step, strings tokens) {
    using kind = decoder_step::kind;
    if (step.operation == kind::byte_level) return slow_byte_level(tokens);
    if (step.operation == kind::byte_fallback) return slow_byte_fallback(tokens);
    if (step.operation == kind::fuse) {
        std::string joined;
        for (const std::string &token : tokens) joined += token;
        return {joined};
    }
    for (size_t i = 0; i < tokens.size(); ++i)
        if (step.operation == kind::metaspace)
            tokens[i] = slow_metaspace(step, tokens[i], i == 0);
        else if (step.operation == kind::strip)
            tokens[i] = slow_strip(step, tokens[i]);
        else
            tokens[i] = replace_all(tokens[i], *step.match_pattern, step.content).value();
    return tokens;
}

decoder_step random_step(std::mt19937 &random) {
    using kind = decoder_step::kind;
    decoder_step step;
    step.operation = static_cast<kind>(random() % 6);
    step.character = random() % 2 ? U' ' : U'\u2581';
    step.prepended = random() % 2;
    step.start = random() % 3;
    step.stop = random() % 3;
    auto matcher =
        random() % 3 == 0 ? pattern::regex("a+") : pattern::literal(random() % 2 ? "\u2581" : "ab");
    step.match_pattern = std::make_shared<const pattern>(std::move(matcher).value());
    step.content = random() % 2 ? " " : "";
    return step;
}

}  // namespace

TEST_CASE(
    "decoders: any chain gives what the reference's lists give, in pieces of whole characters") {
    const strings alphabet = {"a",        "b",      " ",      "  ",     "\u2581", "\u2581\u2581x",
                              "ab",       "aab",    "é",      "Ġ",      "Ã",      "©",
                              "Ã©",       "<0xC3>", "<0xA9>", "<0xe2>", "<0x82>", "<0xAC>",
                              "<0x41>",   "<0xZZ>", "âĤ",     "¬",      "",       "long token",
                              " \u2581 ", "\u20ac", "ð",      "Ł"};
    std::mt19937 random(7);
    int equal = 0;
    for (int round = 0; round < 20'000; ++round) {
        std::vector<decoder_step> steps(1 + random() % 4);
        for (decoder_step &step : steps) step = random_step(random);
        strings tokens(random() % 8);
        for (std::string &token : tokens) token = alphabet[random() % alphabet.size()];
        decode_chain chain(steps);
        std::string text;
        bool whole = true;
        for (const std::string &token : tokens) {
            const std::string piece = chain.push(token);
            whole = whole && is_valid_utf8(piece);
            text += piece;
        }
        text += chain.finish();
        strings expected = tokens;
        for (const decoder_step &step : steps) expected = slow_decode(step, expected);
        std::string joined;
        for (const std::string &token : expected) joined += token;
        if (text != joined || !whole) FAIL("round " << round << ": " << text << " != " << joined);
        ++equal;
    }
    CHECK(equal == 20'000);
}

TEST_CASE("decoders: text is handed out as soon as it is certain") {
    const std::vector<decoder_step> bytes(
        1, {.operation = decoder_step::kind::byte_level, .match_pattern = {}, .content = {}});
    decode_chain chain(bytes);
    CHECK(chain.push("aâ") == "a");
    CHECK(chain.push("Ĥ") == "");
    CHECK(chain.push("¬Ġ") == "€ ");
    CHECK(chain.push("â") == "");
    CHECK(chain.finish() == replacement_character);
    decode_chain none({});
    CHECK(none.push("a") == "a");
    CHECK(none.push("b") == " b");
    CHECK(none.finish() == "");
}

}  // namespace tokenizer_decode_test
