// tokenizer_test.cpp - goal: a tokenizer.json gives the ids and the texts of the reference library,
// text survives the way there and back, and no damage to the file does harm. Method: the
// reference's ids for the demo model, files small enough to work ids out by hand, random texts and
// random ids, every value of a file replaced by others, random damage.
#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>

#include "core/base/json.h"
#include "core/model/tokenizer.h"
#include "core/model/unicode.h"
#include "tests/unit/tokenizer_files.h"

namespace tokenizer_test {

using namespace moorage::core;
using namespace moorage::test;
using ids = std::vector<int32_t>;

namespace {

std::unique_ptr<tokenizer> read(const json &file) {
    auto parsed = tokenizer::parse(file.dump(), "hand.json");
    REQUIRE_MESSAGE(parsed, parsed.failure().text);
    return std::move(parsed).value();
}

std::string refusal(const json &file) {
    const auto parsed = tokenizer::parse(file.dump(), "hand.json");
    return parsed ? "" : parsed.failure().text;
}

ids encode(const tokenizer &words, const std::string &text, encode_options options = {}) {
    const auto done = words.encode(text, options);
    REQUIRE_MESSAGE(done, done.failure().text);
    return *done;
}

std::string text_of(const std::filesystem::path &file) {
    std::ifstream input(file, std::ios::binary);
    std::stringstream text;
    text << input.rdbuf();
    return text.str();
}

std::filesystem::path demo_file() {
    return std::filesystem::path(MOORAGE_SOURCE_DIR) / "configs/demo/tokenizer.json";
}

std::unique_ptr<tokenizer> demo() {
    auto opened = tokenizer::open(demo_file());
    REQUIRE_MESSAGE(opened, opened.failure().text);
    return std::move(opened).value();
}

// Characters of all lengths, spaces, marks, characters of the patterns, and now and then any
// character.
std::string random_text(std::mt19937 &random) {
    static const std::vector<std::string> common = {
        "a",  "B", " ",    "  ",     "\n",      "\r\n",   "'s",     "'LL", "12",     "!",
        "\t", "_", "the ", "\u00e9", "e\u0301", "\u4f60", "\u3000", "<|",  "\u2581", "\U0001f600"};
    std::string text;
    for (size_t left = random() % 30; left > 0; --left) {
        if (random() % 4 > 0) {
            text += common[random() % common.size()];
            continue;
        }
        char32_t c = random() % 0x110000;
        if (c >= 0xd800 && c < 0xe000) c = 0xfffd;
        append_character(text, c);
    }
    return text;
}

}  // namespace

TEST_CASE("demo: the reference's ids for every text") {
    const std::filesystem::path file =
        std::filesystem::path(MOORAGE_SOURCE_DIR) / "tests/data/tokenizer_vectors.json";
    const auto words = demo();
    const json cases = parse_json(text_of(file));
    CHECK(cases.size() > 50);
    for (const json &test_case : cases) {
        const auto text = test_case["text"].get<std::string>();
        CHECK(encode(*words, text) == test_case["ids"].get<ids>());
        CHECK(words->decode(test_case["ids"].get<ids>(), {.skip_special = false}) ==
              to_normal_form(text, normal_form::nfc));
    }
}

TEST_CASE("demo: any text comes back in its normal form, whatever is asked of special tokens") {
    const auto words = demo();
    std::mt19937 random(3);
    for (int round = 0; round < 3000; ++round) {
        const std::string text = random_text(random) + (round % 10 == 0 ? "<|endoftext|>x" : "");
        const std::string expected = to_normal_form(text, normal_form::nfc);
        const bool parse = random() % 2;
        const ids encoded = encode(*words, text, {.parse_special = parse});
        if (words->decode(encoded, {.skip_special = false}) != expected) FAIL(text);
        if (encode(*words, expected, {.parse_special = parse}) != encoded) FAIL(text);
    }
    CHECK(encode(*words, "<|endoftext|>") == ids{0});
    CHECK(encode(*words, "<|endoftext|>", {.parse_special = false}).size() > 1);
    CHECK(words->is_special(0));
    CHECK_FALSE(words->is_special(1));
    CHECK(words->size() == 4096);
    CHECK(words->id_of("<|endoftext|>") == 0);
    CHECK(words->token_of(0) == "<|endoftext|>");
    CHECK(words->id_of("no such token") == -1);
    CHECK(words->decode(ids{0}, {}) == "");
    CHECK(words->decode(ids{0, -1, 4096, 1 << 30}, {.skip_special = false}) == "<|endoftext|>");
}

TEST_CASE("byte level without a normaliser: any text is itself") {
    const auto words = read(byte_level_file({{"t", "h"}, {"Ã", "©"}, {"Ġ", "a"}}));
    const auto split = read(split_file(
        {R"((?i:'s|'ll)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s+)"}, {}));
    std::mt19937 random(5);
    for (int round = 0; round < 3000; ++round) {
        const std::string text = random_text(random);
        if (words->decode(encode(*words, text), {}) != text) FAIL(text);
        if (split->decode(encode(*split, text), {}) != text) FAIL(text);
    }
}

TEST_CASE("what is no UTF-8 is encoded as U+FFFD") {
    const auto words = read(byte_level_file({}));
    CHECK(encode(*words, "a\xff\xe2\x82") == ids{'a', 0xef, 0xbf, 0xbd, 0xef, 0xbf, 0xbd});
    std::mt19937 random(9);
    for (int round = 0; round < 2000; ++round) {
        std::string bytes;
        for (size_t left = random() % 12; left > 0; --left) bytes += static_cast<char>(random());
        if (words->decode(encode(*words, bytes), {}) != to_valid_utf8(bytes)) FAIL(round);
    }
}

TEST_CASE("byte level: merges in words as GPT-2 cuts them") {
    // 256 Ġt, 257 he, 258 Ġthe, 259 ll, 260 llo
    const json file =
        byte_level_file({{"Ġ", "t"}, {"h", "e"}, {"Ġt", "he"}, {"l", "l"}, {"ll", "o"}});
    const auto words = read(file);
    CHECK(encode(*words, " the hello") == ids{258, ' ', 257, 260});
    CHECK(encode(*words, "the") == ids{'t', 257});
    CHECK(encode(*words, "") == ids{});
    CHECK(words->decode(ids{258, ' ', 257, 260}, {}) == " the hello");
    json prefixed = file;
    prefixed["pre_tokenizer"]["add_prefix_space"] = true;
    CHECK(encode(*read(prefixed), "the") == ids{258});
    CHECK(encode(*read(prefixed), " the") == ids{258});
    // The same merges as texts, as older files have them.
    json old = file;
    old["model"]["merges"] = {"#version: 0.2", "Ġ t", "h e", "Ġt he", "l l", "ll o"};
    CHECK(encode(*read(old), " the hello") == ids{258, ' ', 257, 260});
}

TEST_CASE("Llama 3's pattern, whole words before merges, begin and end") {
    json file = split_file({R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|)"
                            R"( ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"},
                           {{"1", "2"}, {"12", "3"}, {"3", "4"}, {"4", "5"}});
    // 256 12, 257 123, 258 34, 259 45
    CHECK(encode(*read(file), "12345") == ids{257, 259});
    CHECK(encode(*read(file), "1234") == ids{257, '4'});
    file["model"]["vocab"]["Ġtea"] = 300;  // no merges lead to it
    CHECK(encode(*read(file), " tea") == ids{' ', 't', 'e', 'a'});
    file["model"]["ignore_merges"] = true;
    file["added_tokens"] = {added("<|begin|>", 301), added("<|end|>", 302)};
    const auto piece = [](const char *id) -> json { return {{"SpecialToken", {{"id", id}}}}; };
    const auto special = [](const char *id, int number) -> json {
        return {{"id", id}, {"ids", {number}}, {"tokens", {id}}};
    };
    file["post_processor"] = {
        {"type", "Sequence"},
        {"processors",
         {{{"type", "ByteLevel"}},
          {{"type", "TemplateProcessing"},
           {"single", {piece("<|begin|>"), {{"Sequence", {{"id", "A"}}}}, piece("<|end|>")}},
           {"special_tokens",
            {{"<|begin|>", special("<|begin|>", 301)}, {"<|end|>", special("<|end|>", 302)}}}}}}};
    const auto words = read(file);
    CHECK(encode(*words, " tea") == ids{301, 300, 302});
    CHECK(encode(*words, " tea", {.add_special = false}) == ids{300});
    CHECK(encode(*words, "") == ids{301, 302});
    CHECK(words->decode(ids{301, 300, 302}, {}) == " tea");
    CHECK(words->decode(ids{301, 300, 302}, {.skip_special = false}) == "<|begin|> tea<|end|>");
    CHECK(words->size() == 303);
}

TEST_CASE("DeepSeek's sequence of splits and digits") {
    // Merges that would apply if the splits were not there.
    json file =
        split_file({"[\r\n]", R"(\s?\p{L}+)", R"(\s?\p{P}+)", "[一-龥]+"},
                   {{"1", "2"}, {"a", "1"}, {"Ċ", "Ċ"}, {"Ġ", "."}, {".", "Ġ"}, {"Ġ", "a"}});
    // 259 Ġ., 261 Ġa
    json &steps = file["pre_tokenizer"]["pretokenizers"];
    const json digits = {{"type", "Digits"}, {"individual_digits", true}};
    steps.insert(steps.end() - 1, digits);
    const auto words = read(file);
    CHECK(encode(*words, "a12\n\n. . a") == ids{'a', '1', '2', '\n', '\n', '.', 259, 261});
    json joined = file;
    joined["pre_tokenizer"]["pretokenizers"][4]["individual_digits"] = false;
    CHECK(encode(*read(joined), "a12") == ids{'a', 256});
}

TEST_CASE("Llama 2: metaspace by normalisers, byte fallback, one leading space") {
    const auto words = read(metaspace_file());
    CHECK(encode(*words, "ab ab") == ids{1, 264, 264});
    CHECK(encode(*words, "ab", {.add_special = false}) == ids{264});
    CHECK(encode(*words, " ab") == ids{1, 259, 264});
    CHECK(encode(*words, "") == ids{1});
    CHECK(encode(*words, "b\u00e9") == ids{1, 259, 261, 3 + 0xc3, 3 + 0xa9});
    // The normaliser puts its character in front of each piece between special tokens.
    CHECK(encode(*words, "ab</s>a") == ids{1, 264, 2, 262});
    CHECK(words->decode(ids{1, 264, 264}, {}) == "ab ab");
    CHECK(words->decode(ids{1, 259, 264}, {}) == " ab");
    CHECK(words->decode(ids{259, 261, 3 + 0xc3, 3 + 0xa9}, {}) == "b\u00e9");
    CHECK(words->decode(ids{3 + 0xc3, 3 + 0xa9, 3 + 0xff, 260}, {}) ==
          "\ufffd\ufffd\ufffd"
          "a");
    CHECK(words->decode(ids{1, 264}, {.skip_special = false}) == "<s> ab");
    text_stream stream(*words, {});
    CHECK(stream.push(1) == "");
    CHECK(stream.push(264) == "ab");  // without its leading space
    CHECK(stream.push(264) == " ab");
    CHECK(stream.push(3 + 0xc3) == "");
    CHECK(stream.push(3 + 0xa9) == "");
    CHECK(stream.push(260) ==
          "\u00e9"
          "a");
    CHECK(stream.push(3 + 0xe2) == "");
    CHECK(stream.finish() == "\ufffd");
    CHECK(stream.push(264) == "ab");  // anew
}

TEST_CASE("metaspace as a pre-tokenizer: always, first, never, and the older spelling") {
    json file = metaspace_file();
    file["normalizer"] = nullptr;
    file["pre_tokenizer"] = {{"type", "Metaspace"}, {"replacement", "\u2581"}, {"split", false}};
    json &step = file["pre_tokenizer"];
    file["decoder"] = {{"type", "Metaspace"}, {"replacement", "\u2581"}};
    const encode_options plain{.add_special = false};
    const auto check = [&](const ids &once, const ids &behind_special) {
        CHECK(encode(*read(file), "ab", plain) == once);
        CHECK(encode(*read(file), "<s>ab", plain) == behind_special);
    };
    check({264}, {1, 264});
    step["prepend_scheme"] = "first";
    check({264}, {1, 263});
    CHECK(read(file)->decode(ids{264, 264}, {}) == "ab ab");
    step["prepend_scheme"] = "never";
    check({263}, {1, 263});
    file["decoder"]["prepend_scheme"] = "never";
    CHECK(read(file)->decode(ids{264, 264}, {}) == " ab ab");
    file["pre_tokenizer"] = {
        {"type", "Metaspace"}, {"replacement", "\u2581"}, {"add_prefix_space", true}};
    check({264}, {1, 264});
    file["pre_tokenizer"]["add_prefix_space"] = false;
    CHECK(encode(*read(file), "ab", plain) == ids{263});
    file["pre_tokenizer"]["prepend_scheme"] = "first";
    CHECK(
        refusal(file) ==
        "hand.json: pre_tokenizer: add_prefix_space is false, but prepend_scheme is not \"never\"");
}

TEST_CASE("added tokens: spaces beside them, single words, behind the normaliser") {
    json file = byte_level_file({});
    file["normalizer"] = {{"type", "Lowercase"}};
    const auto with_token = [&](const char *key, bool value, bool normalized) {
        json token = added("Tok", 300, false);
        token[key] = value;
        token["normalized"] = normalized;
        file["added_tokens"] = json::array({token});
        return read(file);
    };
    CHECK(encode(*with_token("lstrip", true, false), "a  Tok b") == ids{'a', 300, ' ', 'b'});
    CHECK(encode(*with_token("rstrip", true, false), "a Tok  b") == ids{'a', ' ', 300, 'b'});
    CHECK(encode(*with_token("single_word", true, false), "aTok Tok.") ==
          ids{'a', 't', 'o', 'k', ' ', 300, '.'});
    // In the raw text only as written; behind the normaliser in any case.
    CHECK(encode(*with_token("single_word", false, false), "TOKTok") == ids{'t', 'o', 'k', 300});
    CHECK(encode(*with_token("single_word", false, true), "TOKtok") == ids{300, 300});
    // The vocabulary's id counts where it has the token.
    file["added_tokens"] = json::array({added("a", 77)});
    CHECK(encode(*read(file), "a") == ids{'a'});
    CHECK(read(file)->is_special('a'));
}

TEST_CASE("a stream of any ids gives what decoding them at once gives, in whole characters") {
    const auto bytes = demo(), meta = read(metaspace_file());
    std::mt19937 random(21);
    for (const tokenizer *words : {bytes.get(), meta.get()})
        for (int round = 0; round < 500; ++round) {
            ids token_ids(random() % 40);
            // Half of them single bytes, which make half characters.
            for (int32_t &id : token_ids) id = random() % (random() % 2 ? 262 : words->size());
            const decode_options options{.skip_special = random() % 2 == 0};
            text_stream stream(*words, options);
            std::string text;
            for (const int32_t id : token_ids) {
                const std::string piece = stream.push(id);
                if (!is_valid_utf8(piece)) FAIL(round);
                text += piece;
            }
            const std::string last = stream.finish();
            if (!is_valid_utf8(last)) FAIL(round);
            if (text + last != words->decode(token_ids, options)) FAIL(round);
        }
}

TEST_CASE("long texts: a word of 100 kB, and one of spaces") {
    const auto words = demo();
    for (const std::string &repeated : {std::string("a"), std::string(" "), std::string("ab"),
                                        std::string("\u4f60"), std::string("\n")}) {
        std::string text;
        while (text.size() < 100'000) text += repeated;
        CHECK(words->decode(encode(*words, text), {}) == text);
    }
}

TEST_CASE("what is not known is refused by its name and place") {
    const json good = metaspace_file();
    REQUIRE(refusal(good) == "");
    const auto refusal_with = [&](const char *place, const json &value) {
        json file = good;
        file[json::json_pointer(place)] = value;
        return refusal(file);
    };
    const auto has = [](const std::string &text, const char *part) {
        return text.find(part) != std::string::npos;
    };
    CHECK(has(refusal_with("/normalizer/normalizers/0/type", "Nmt"),
              "hand.json: normalizer.normalizers[0]: type \"Nmt\" is not supported; supported: "
              "Sequence, NFC"));
    CHECK(has(refusal_with("/pre_tokenizer", {{"type", "ByteLvel"}}), "did you mean ByteLevel"));
    CHECK(has(refusal_with("/decoder/decoders/1/type", "WordPiece"),
              "decoder.decoders[1]: type \"WordPiece\""));
    CHECK(has(refusal_with("/post_processor/type", "RobertaProcessing"),
              "post_processor: type \"Roberta"));
    CHECK(has(refusal_with("/model/type", "Unigram"),
              "model: type \"Unigram\" is not supported; supported: BPE"));
    CHECK(has(refusal_with("/model/continuing_subword_prefix", "##"), "continuing_subword_prefix"));
    CHECK(refusal_with("/model/continuing_subword_prefix", "") == "");
    CHECK(has(refusal_with("/model/end_of_word_suffix", "</w>"), "end_of_word_suffix"));
    CHECK(has(refusal_with("/model/dropout", .1), "dropout"));
    CHECK(has(refusal_with("/model/unk_token", "<none>"), "<none>"));
    CHECK(has(refusal_with("/model/merges/1", "a b c"), "merges[1]"));
    CHECK(refusal_with("/model/merges/1", "b z") == "");  // words of merges need not be tokens
    CHECK(has(refusal_with("/model/vocab/a", -1), "the id of \"a\""));
    CHECK(has(refusal_with("/model/vocab/a", 1u << 30), "the id of \"a\""));
    CHECK(has(refusal_with("/model/vocab/a", 261), "have the same id 261"));
    CHECK(has(refusal_with("/added_tokens/1/id", "x"), "added_tokens[1]"));
    CHECK(has(refusal_with("/added_tokens/1", added("new", 5)),
              "\"new\" has the id 5 of \"<0x02>\""));
    CHECK(has(refusal_with("/post_processor/special_tokens/<s>/ids", {9999}), "below 265"));
    CHECK(
        has(refusal_with("/normalizer/normalizers/1/pattern", {{"Regex", "("}}), "pattern \"(\""));
    CHECK(has(refusal_with("/decoder/decoders/3/content", "xy"), "one character"));
    json file = good;
    file.erase("model");
    CHECK(refusal(file) == "hand.json: model is missing");
    json nested = {{"type", "NFC"}};
    for (int i = 0; i < 40; ++i)
        nested = {{"type", "Sequence"}, {"normalizers", json::array({nested})}};
    CHECK(has(refusal_with("/normalizer", nested), "sequences deeper than 16"));
    const auto broken = tokenizer::parse("{\"model\": {", "hand.json");
    REQUIRE_FALSE(broken);
    CHECK(has(broken.failure().text, "hand.json: "));
    CHECK_FALSE(tokenizer::open("/no/such/tokenizer.json"));
}

namespace {

// Reads a possibly damaged file, and uses it if it can be read.
bool survives(const std::string &file) {
    const auto parsed = tokenizer::parse(file, "damaged.json");
    if (!parsed) return parsed.failure().text.find('\0') == std::string::npos;
    const auto done = (*parsed)->encode("ab  \u00e9 <s>'s 12\n", {});
    const ids encoded = done ? *done : ids{0, 1, 2, 300};
    return is_valid_utf8((*parsed)->decode(encoded, {.skip_special = false}));
}

}  // namespace

TEST_CASE("damage: every value of a file replaced by others") {
    const std::vector<json> others = {
        nullptr,          true, -1, 1.5, 3000000000u, "", "x", json::array(), {{}}, json::object(),
        {{"type", "BPE"}}};
    json llama = metaspace_file();
    llama["pre_tokenizer"] = {{"type", "Metaspace"}, {"replacement", "\u2581"}};
    int damages = 0;
    for (const json &file : {llama, split_file({"\\s+", "a|b"}, {{"a", "b"}})}) {
        json flat = file.flatten();
        // Keys of all containers, too.
        std::vector<std::string> places;
        for (const auto &[place, value] : flat.items()) {
            for (size_t end = place.size(); end != 0 && end != place.npos;
                 end = place.rfind('/', end - 1))
                places.push_back(place.substr(0, end));
        }
        std::sort(places.begin(), places.end());
        places.erase(std::unique(places.begin(), places.end()), places.end());
        for (const std::string &place : places) {
            // One byte token stands for all.
            if (place.find("vocab/") != place.npos && place.size() % 7 != 0) continue;
            for (const json &replacement : others) {
                json damaged = file;
                damaged[json::json_pointer(place)] = replacement;
                if (!survives(damaged.dump())) FAIL(place << " = " << replacement.dump());
                ++damages;
            }
        }
    }
    CHECK(damages > 1000);
}

TEST_CASE("damage: random bytes changed, lost, doubled") {
    std::mt19937 random(17);
    const std::string small = metaspace_file().dump(), large = text_of(demo_file());
    for (int round = 0; round < 600; ++round) {
        std::string file = round % 6 == 0 ? large : small;
        const size_t position = random() % file.size(), bytes = 1 + random() % 40;
        switch (random() % 4) {
            case 0:
                file[position] = static_cast<char>(random());
                break;
            case 1:
                file.resize(position);
                break;
            case 2:
                file.erase(position, bytes);
                break;
            default:
                file.insert(position, file.substr(random() % file.size(), bytes));
        }
        CHECK_MESSAGE(survives(file), round);
    }
}

TEST_CASE("normalisers that multiply a text are held, on the way in and out") {
    const json longer = {
        {"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", "aaaaaaaaaa"}};
    const auto file_of_stages = [&](int stages) {
        json list = json::array();
        for (int i = 0; i < stages; ++i) list.push_back(longer);
        json file = byte_level_file({});
        file["normalizer"] = {{"type", "Sequence"}, {"normalizers", list}};
        return file;
    };
    // 10^4 bytes of one letter are below the limit of 64 + 65,536; 10^8 are not.
    const auto four = tokenizer::parse(file_of_stages(4).dump(), "four");
    REQUIRE(four.ok());
    CHECK((*four)->encode("a", {})->size() == 10'000);
    const auto eight = tokenizer::parse(file_of_stages(8).dump(), "eight");
    REQUIRE(eight.ok());
    const auto refused = (*eight)->encode("a", {});
    REQUIRE_FALSE(refused.ok());
    CAPTURE(refused.failure().text);
    CHECK(refused.failure().text.find("eight: the replacements make 100000 bytes") == 0);
    CHECK(refused.failure().text.find("65600 is the limit") != std::string::npos);
    CHECK((*eight)->encode("b", {})->size() == 1);

    json words = byte_level_file({});
    words["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", json::array()}};
    for (int i = 0; i < 30; ++i)
        words["pre_tokenizer"]["pretokenizers"].push_back(
            {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}});
    const auto doubling = tokenizer::parse(words.dump(), "doubling");
    REQUIRE(doubling.ok());
    const auto doubled = (*doubling)->encode("\u00e9", {});
    REQUIRE_FALSE(doubled.ok());
    CHECK(doubled.failure().text.find("doubling: the pre_tokenizers make ") == 0);

    // Decoding has no errors: a text that would be too long stays as it is.
    json decoder_file = byte_level_file({});
    decoder_file["decoder"] = {{"type", "Sequence"}, {"decoders", json::array()}};
    for (int i = 0; i < 8; ++i) decoder_file["decoder"]["decoders"].push_back(longer);
    const auto decoding = tokenizer::parse(decoder_file.dump(), "decoding");
    REQUIRE(decoding.ok());
    const std::vector<int32_t> many(1000, 'a');
    CHECK((*decoding)->decode(many, {}).size() <= 65 * 1000 + 65536);
    CHECK((*decoding)->decode(std::vector<int32_t>{'b', 'a'}, {}).size() > 10'000);
}

}  // namespace tokenizer_test
