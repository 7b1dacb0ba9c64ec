// tokenizer_files.h - small tokenizer.json texts, made here, in which every id can be worked out by
// hand.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "core/base/json.h"

namespace moorage::test {

using core::json;

// The token of one byte in the byte alphabet, by GPT-2's published rule.
inline std::string byte_token(int byte) {
    const auto printable = [](int b) {
        return (b >= '!' && b <= '~') || (b >= 0xa1 && b <= 0xac) || b >= 0xae;
    };
    int character = byte;
    if (!printable(byte)) {
        character = 256;
        for (int b = 0; b < byte; ++b) character += printable(b) ? 0 : 1;
    }
    if (character < 128) return std::string(1, static_cast<char>(character));
    return {static_cast<char>(0xc0 | character >> 6), static_cast<char>(0x80 | (character & 63))};
}

using merge_names = std::vector<std::pair<std::string, std::string>>;

// Ids: bytes are themselves, merge i makes the token 256 + i.
inline json byte_level_model(const merge_names &merges) {
    json vocab, list = json::array();
    for (int byte = 0; byte < 256; ++byte) vocab[byte_token(byte)] = byte;
    for (const auto &[left, right] : merges) {
        vocab[left + right] = 256 + list.size();
        list.push_back(json::array({left, right}));
    }
    return {{"type", "BPE"}, {"vocab", vocab}, {"merges", list}};
}

inline json added(const std::string &content, int id, bool special = true) {
    return {{"id", id},        {"content", content},     {"single_word", false}, {"lstrip", false},
            {"rstrip", false}, {"normalized", !special}, {"special", special}};
}

inline json byte_level_file(const merge_names &merges) {
    return {{"added_tokens", json::array()},
            {"normalizer", nullptr},
            {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}}},
            {"post_processor", {{"type", "ByteLevel"}, {"trim_offsets", true}}},
            {"decoder", {{"type", "ByteLevel"}}},
            {"model", byte_level_model(merges)}};
}

// Splits by a regular expression, then into bytes, as Llama 3 and its successors.
inline json split_file(const std::vector<std::string> &patterns, const merge_names &merges) {
    json file = byte_level_file(merges);
    json steps = json::array();
    for (const std::string &pattern : patterns)
        steps.push_back({{"type", "Split"},
                         {"pattern", {{"Regex", pattern}}},
                         {"behavior", "Isolated"},
                         {"invert", false}});
    steps.push_back({{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}});
    file["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", steps}};
    return file;
}

// As Llama 2 and Mistral: 0 <unk>, 1 <s>, 2 </s>, 3 + byte, then 259 and up: _, a, b, _a, ab, _ab
// with _ for U+2581.
inline json metaspace_file() {
    const std::string space = "\u2581";
    json vocab = {{"<unk>", 0}, {"<s>", 1}, {"</s>", 2}};
    const char *digits = "0123456789ABCDEF";
    for (int byte = 0; byte < 256; ++byte)
        vocab[std::string("<0x") + digits[byte / 16] + digits[byte % 16] + ">"] = 3 + byte;
    int id = 259;
    for (const std::string &token :
         {space, std::string("a"), std::string("b"), space + "a", std::string("ab"), space + "ab"})
        vocab[token] = id++;
    const auto replace = [](const std::string &old_text, const std::string &new_text) -> json {
        return {{"type", "Replace"}, {"pattern", {{"String", old_text}}}, {"content", new_text}};
    };
    return {{"added_tokens", {added("<unk>", 0), added("<s>", 1), added("</s>", 2)}},
            {"normalizer",
             {{"type", "Sequence"},
              {"normalizers", {{{"type", "Prepend"}, {"prepend", space}}, replace(" ", space)}}}},
            {"pre_tokenizer", nullptr},
            {"post_processor",
             {{"type", "TemplateProcessing"},
              {"single",
               {{{"SpecialToken", {{"id", "<s>"}, {"type_id", 0}}}},
                {{"Sequence", {{"id", "A"}, {"type_id", 0}}}}}},
              {"special_tokens", {{"<s>", {{"id", "<s>"}, {"ids", {1}}, {"tokens", {"<s>"}}}}}}}},
            {"decoder",
             {{"type", "Sequence"},
              {"decoders",
               {replace(space, " "),
                {{"type", "ByteFallback"}},
                {{"type", "Fuse"}},
                {{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}}}}}},
            {"model",
             {{"type", "BPE"},
              {"dropout", nullptr},
              {"unk_token", "<unk>"},
              {"continuing_subword_prefix", nullptr},
              {"end_of_word_suffix", nullptr},
              {"fuse_unk", true},
              {"byte_fallback", true},
              {"vocab", vocab},
              {"merges", {space + " a", "a b", space + "a b"}}}}};
}

}  // namespace moorage::test
