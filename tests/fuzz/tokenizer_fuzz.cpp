// tokenizer_fuzz.cpp - fuzz target of tokenizer.json. Any bytes give an error, or a tokenizer. It
// turns any text into ids below its size, and any ids into UTF-8, at once and token by token.
//
// Input that begins with { is the file itself and, behind a zero byte, a text. Half of its
// mutations move or replace values of the parsed file. Any other input is a list of choices. They
// make a file of the right form (file_from()), so that nearly all inputs reach the steps behind the
// parser, and the texts to encode.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/json.h"
#include "core/model/tokenizer.h"
#include "core/model/unicode.h"
#include "tests/fuzz/choices.h"

using namespace moorage::core;
using moorage::test::choices;

extern "C" size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t size_max);

namespace {

void require(bool condition) {
    if (!condition) std::abort();
}

// Pieces of texts, of patterns and of vocabularies. There are few, so that they meet.
constexpr const char *pieces[] = {
    "a",          "b",       " ",      "ab",     "\n",     "  ",     "\u00e9", "e\u0301",
    "\u2581",     "\u0120",  "1",      "'s",     "<s>",    "</s>",   "A",      "\u4f60",
    "\u0130",     "\u00df",  "\t",     "<0x61>", "<0xE2>", "\u00a0", "\ufdfa", ".",
    "\U0001f600", "\u200d",  "\u03a3", "12",     "aa",     "ba",     "\r\n",   "\u1e9b\u0323",
    "\xff",       "\xe4\xbd"};

constexpr const char *patterns[] = {
    "\\s+",
    "\\p{L}+",
    "\\p{N}{1,3}",
    "[^\\s\\p{L}]",
    "\\s+(?!\\S)",
    "'s|'t|'re| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+",
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}|\\s*[\\r\\n]+|\\s",
    "[\\r\\n]",
    "\\s?[\\p{L}\\p{M}]+",
    "[^(\\s|[.,!?\u2026\u3002])]+",
    "[\\p{P}\\p{S}]",
    "(a|b)*",
    "a{2,}",
    "^a",
    "b$",
    "",
    ".",
    "[a-c&&[^b]]",
    "(?<=a)b",
    "\\b",
    "\\x{4e00}-\\x{9fff}"};

constexpr const char *atoms[] = {"a",      "b",    "[ab]",   "[^a]", "\\s", "\\S", ".",
                                 "(?:ab)", "(a|)", "\\p{L}", "\\w",  "\\d", "$",   "(?!a)"};
constexpr const char *repeats[] = {"", "*", "+", "?", "{2}", "{1,3}", "+?", "*+"};

json pattern_from(choices &choices) {
    switch (choices.below(3)) {
        case 0:
            return {{"String", choices.pick(pieces)}};
        case 1:
            return {{"Regex", choices.pick(patterns)}};
        default:
            break;
    }
    std::string text;
    for (uint32_t left = 1 + choices.below(4); left > 0; --left) {
        text += choices.pick(atoms);
        text += choices.pick(repeats);
        if (choices.below(8) == 7) text += '|';
    }
    return {{"Regex", text}};
}

template <class MakeStep>
json sequence_from(choices &choices, const char *key, uint32_t depth, const MakeStep &make_step) {
    json list = json::array();
    for (uint32_t left = 1 + choices.below(4); left > 0; --left)
        list.push_back(make_step(choices, depth + 1));
    return {{"type", "Sequence"}, {key, list}};
}

json normalizer_from(choices &choices, uint32_t depth = 0) {
    static constexpr const char *plain[] = {"NFC",       "NFD",          "NFKC",     "NFKD",
                                            "Lowercase", "StripAccents", "ByteLevel"};
    switch (choices.below(6)) {
        case 0:
            return {{"type", choices.pick(plain)}};
        case 1:
            return {{"type", "Prepend"}, {"prepend", choices.pick(pieces)}};
        case 2:
        case 3:
            return {{"type", "Replace"},
                    {"pattern", pattern_from(choices)},
                    {"content", choices.pick(pieces)}};
        case 4:
            return {
                {"type", "Strip"}, {"strip_left", choices.flag()}, {"strip_right", choices.flag()}};
        default:
            if (depth == 2) return {{"type", "NFC"}};
            return sequence_from(choices, "normalizers", depth, normalizer_from);
    }
}

json metaspace_from(choices &choices) {
    static constexpr const char *schemes[] = {"always", "first", "never"};
    json step = {{"type", "Metaspace"}, {"replacement", choices.flag() ? "\u2581" : "a"}};
    step["prepend_scheme"] = choices.pick(schemes);
    step["add_prefix_space"] = step["prepend_scheme"] != "never";
    step["split"] = choices.flag();
    return step;
}

json word_step_from(choices &choices, uint32_t depth = 0) {
    static constexpr const char *behaviors[] = {"Removed", "Isolated", "MergedWithPrevious",
                                                "MergedWithNext", "Contiguous"};
    static constexpr const char *plain[] = {"Whitespace", "WhitespaceSplit"};
    switch (choices.below(8)) {
        case 0:
            return {{"type", "ByteLevel"},
                    {"add_prefix_space", choices.flag()},
                    {"use_regex", choices.flag()}};
        case 1:
        case 2:
            return {{"type", "Split"},
                    {"pattern", pattern_from(choices)},
                    {"behavior", choices.pick(behaviors)},
                    {"invert", choices.flag()}};
        case 3:
            return metaspace_from(choices);
        case 4:
            return {{"type", "Digits"}, {"individual_digits", choices.flag()}};
        case 5:
            return {{"type", "Punctuation"}, {"behavior", choices.pick(behaviors)}};
        case 6:
            if (choices.flag()) return {{"type", "CharDelimiterSplit"}, {"delimiter", "b"}};
            return {{"type", choices.pick(plain)}};
        default:
            if (depth == 2) return {{"type", "Whitespace"}};
            return sequence_from(choices, "pretokenizers", depth, word_step_from);
    }
}

json decoder_from(choices &choices, uint32_t depth = 0) {
    static constexpr const char *plain[] = {"ByteLevel", "ByteFallback", "Fuse"};
    switch (choices.below(6)) {
        case 0:
        case 1:
            return {{"type", choices.pick(plain)}};
        case 2:
            return metaspace_from(choices);
        case 3:
            return {{"type", "Replace"},
                    {"pattern", pattern_from(choices)},
                    {"content", choices.pick(pieces)}};
        case 4:
            return {{"type", "Strip"},
                    {"content", choices.flag() ? " " : "a"},
                    {"start", choices.below(4)},
                    {"stop", choices.below(4)}};
        default:
            if (depth == 2) return {{"type", "Fuse"}};
            return sequence_from(choices, "decoders", depth, decoder_from);
    }
}

using words = std::vector<std::string>;

// Characters of the pieces, the bytes as GPT-2 or Llama 2 write them, or some of each. Made once,
// because it takes most of the time of a run.
const words &alphabet(uint32_t kind) {
    static const std::vector<words> alphabets = [] {
        words plain, bytes, fallback;
        for (const char *character : {"a", "b", "1", " ", "\u2581", "\u0120", "\u00c3", "\u00a9",
                                      "A", "\u4f60", "e", "\u0301", "'", "s", "\u010a", "."})
            plain.push_back(character);
        for (uint32_t byte = 0; byte < 256; ++byte) {
            static constexpr char digits[] = "0123456789ABCDEF";
            append_byte_level(bytes.emplace_back(), std::string(1, static_cast<char>(byte)));
            fallback.push_back(std::string("<0x") + digits[byte / 16] + digits[byte % 16] + ">");
        }
        // The letters first, because merges come from the first few.
        std::rotate(bytes.begin(), bytes.begin() + 'a', bytes.end());
        fallback.insert(fallback.begin(), plain.begin(), plain.end());
        return std::vector<words>{plain, bytes, fallback};
    }();
    return alphabets[kind];
}

// The model as text, because JSON objects that keep the order of their keys take time that grows
// with the square of their number.
std::string model_from(choices &choices) {
    static constexpr uint32_t kinds[] = {0, 0, 0, 1, 2};
    words tokens = alphabet(choices.pick(kinds));
    json merges = json::array();
    for (uint32_t left = choices.below(12); left > 0; --left) {
        // Draws from the first few characters and from earlier merges, so that such pairs occur.
        const auto draw_token = [&] {
            const uint32_t choice = choices.below(32);
            return choice < 16 ? tokens[choice] : tokens[tokens.size() - 1 - choice % 8];
        };
        const std::string first = draw_token(), second = draw_token();
        if (std::find(tokens.begin(), tokens.end(), first + second) == tokens.end())
            tokens.push_back(first + second);
        if (choices.below(8) == 7) continue;  // a token that no merge makes
        merges.push_back(choices.flag() ? json(first + " " + second)
                                        : json::array({first, second}));
    }
    std::string text = "{\"type\":\"BPE\",\"vocab\":{";
    for (size_t id = 0; id < tokens.size(); ++id)
        text += (id == 0 ? "" : ",") + json(tokens[id]).dump() + ":" + std::to_string(id);
    text += "},\"merges\":" + merges.dump();
    for (const char *key : {"fuse_unk", "byte_fallback", "ignore_merges"})
        text += std::string(",\"") + key + (choices.flag() ? "\":true" : "\":false");
    if (choices.flag()) text += ",\"unk_token\":" + json(tokens[choices.below(16)]).dump();
    return text + "}";
}

json added_from(choices &choices) {
    json list = json::array();
    for (uint32_t left = choices.below(5); left > 0; --left)
        list.push_back({{"id", 1000 + list.size()},
                        {"content", choices.pick(pieces)},
                        {"single_word", choices.flag()},
                        {"lstrip", choices.flag()},
                        {"rstrip", choices.flag()},
                        {"normalized", choices.flag()},
                        {"special", choices.flag()}});
    return list;
}

json post_processor_from(choices &choices) {
    if (choices.flag()) return {{"type", "ByteLevel"}, {"trim_offsets", true}};
    const json text = {{"Sequence", {{"id", "A"}, {"type_id", 0}}}};
    const json token = {{"SpecialToken", {{"id", "x"}, {"type_id", 0}}}};
    json single = json::array();
    if (choices.flag()) single.push_back(token);
    single.push_back(text);
    if (choices.flag()) single.push_back(token);
    return {{"type", "TemplateProcessing"},
            {"single", single},
            {"special_tokens", {{"x", {{"id", "x"}, {"ids", {choices.below(8)}}}}}}};
}

std::string file_from(choices &choices) {
    std::string file = "{\"model\":" + model_from(choices);
    const auto add = [&](const char *key, const json &value) {
        file += std::string(",\"") + key +
                "\":" + value.dump(-1, ' ', false, json::error_handler_t::replace);
    };
    add("added_tokens", added_from(choices));
    if (choices.flag()) add("normalizer", normalizer_from(choices));
    if (choices.flag()) add("pre_tokenizer", word_step_from(choices));
    if (choices.flag()) add("decoder", decoder_from(choices));
    if (choices.flag()) add("post_processor", post_processor_from(choices));
    return file + "}";
}

struct input {
    std::string file, text;
};

input input_of(const uint8_t *data, size_t size) {
    const std::string_view whole(reinterpret_cast<const char *>(data), size);
    if (!whole.starts_with('{')) {
        choices choices(data, size);
        input drawn;
        drawn.file = file_from(choices);
        for (uint32_t left = choices.below(24); left > 0; --left)
            drawn.text += choices.pick(pieces);
        drawn.text += choices.rest();
        return drawn;
    }
    const size_t zero = whole.find('\0');
    if (zero == whole.npos) return {std::string(whole), "ab  \u00e9\n <s>'s 12\u4f60"};
    return {std::string(whole.substr(0, zero)), std::string(whole.substr(zero + 1))};
}

void put_to_work(const tokenizer &tokenizer, const std::string &text) {
    std::vector<int32_t> ids = {0, 1, 2};
    for (const bool special : {true, false}) {
        const encode_options options{.add_special = special, .parse_special = special};
        const auto done = tokenizer.encode(text, options);
        if (!done) require(!done.failure().text.empty());
        if (!done) continue;
        require(tokenizer.encode(text, options).value() == *done);
        ids.insert(ids.end(), done->begin(), done->end());
    }
    for (size_t i = 3; i < ids.size(); ++i)
        require(ids[i] >= 0 && static_cast<uint32_t>(ids[i]) < tokenizer.size());
    for (const char byte : text) ids.push_back(static_cast<uint8_t>(byte));
    text_stream stream(tokenizer, {});
    std::string pieces_of_it;
    size_t pushed = 0;
    for (const int32_t id : ids) {
        pushed += tokenizer.token_of(id).size();
        const std::string piece = stream.push(id);
        require(is_valid_utf8(piece));
        pieces_of_it += piece;
    }
    pieces_of_it += stream.finish();
    require(is_valid_utf8(pieces_of_it));
    require(pieces_of_it == tokenizer.decode(ids, {}));
    // Replacements grow within their limit. Bytes that are not UTF-8 become three bytes each.
    require(pieces_of_it.size() <= 3 * (65 * pushed + 65536) + ids.size());
}

// Every value of the tree, the root first.
void collect(json &node, std::vector<json *> &nodes) {
    nodes.push_back(&node);
    if (node.is_structured() && nodes.size() < 10'000)
        for (json &child : node) collect(child, nodes);
}

void change(json &root, std::mt19937 &random) {
    std::vector<json *> nodes;
    collect(root, nodes);
    json &target = *nodes[random() % nodes.size()];
    const json &source = *nodes[random() % nodes.size()];
    static const char *const texts[] = {"\\s+(?!\\S)", "\\p{L}", "(a|b)*", "[^\\s]",
                                        "NFC",         "a",      "\u2581", ""};
    switch (random() % 6) {
        case 0:
            target = json(source);
            break;
        case 1:
            target = random() % 300;
            break;
        case 2:
            target = random() % 2 == 0;
            break;
        case 3:
            target = texts[random() % std::size(texts)];
            break;
        case 4:
            if (target.is_array()) target.push_back(json(source));
            break;
        default:
            if (target.is_structured() && !target.empty()) {
                auto entry = target.begin();
                std::advance(entry, random() % target.size());
                target.erase(entry);
            }
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const input drawn = input_of(data, size);
    const auto parsed = tokenizer::parse(drawn.file, "fuzz");
    if (parsed)
        put_to_work(**parsed, drawn.text);
    else
        require(parsed.failure().text.starts_with("fuzz"));
    return 0;
}

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t size_max,
                                          unsigned seed) {
    if (size == 0 || data[0] != '{' || seed % 2 == 0) return LLVMFuzzerMutate(data, size, size_max);
    input drawn = input_of(data, size);
    json root = json::parse(drawn.file, nullptr, /*allow_exceptions=*/false);
    if (root.is_discarded()) return LLVMFuzzerMutate(data, size, size_max);
    std::mt19937 random(seed);
    for (uint32_t left = 1 + random() % 3; left > 0; --left) change(root, random);
    std::string mutated = root.dump(-1, ' ', false, json::error_handler_t::replace);
    mutated += '\0';
    mutated += drawn.text;
    if (mutated.size() > size_max) return LLVMFuzzerMutate(data, size, size_max);
    std::memcpy(data, mutated.data(), mutated.size());
    return mutated.size();
}
