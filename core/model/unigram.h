// unigram.h - the unigram model of SentencePiece. It spells a text with those pieces whose scores
// have the highest sum.
//
// The text is first normalised by a compiled map of the model's makers, which replaces longest
// matches of a double array. Spaces become a special mark. The rules are those of llama.cpp for
// files whose tokenizer is "t5".
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/result.h"

namespace moorage::core {

struct unigram_piece {
    std::string_view text;
    int32_t id = 0;
    double score = 0;
    bool user_defined = false;  // user-defined: matches before normalisation, has no cost
};
struct unigram_rules {
    int32_t unknown_id = 0;
    double unknown_score = 0;
    bool space_before = false;  // puts the mark of a space before a text
    bool merge_spaces = false;  // joins runs of spaces and removes those at the ends
    bool space_behind = false;  // puts the mark after a word instead
    // Ids of the 256 bytes; -1: none. An unknown character becomes its bytes if all of them have
    // ids. Empty: no byte is a token.
    std::vector<int32_t> byte_ids = {};
};

class unigram {
public:
    // `map`: precompiled_charsmap, or empty. Errors: parts of the map do not fit together.
    static result<unigram> make(const std::vector<unigram_piece> &pieces, unigram_rules rules,
                                std::span<const std::byte> map);
    // Appends the ids of `text` (valid UTF-8).
    void encode(std::string_view text, std::vector<int32_t> &ids) const;
    std::string normalise(std::string_view text) const;

private:
    struct piece {
        std::string text;
        int32_t id;
        double score;
        bool user_defined;
    };
    // The replacement for the beginning of `text`, and how many bytes it replaces.
    std::pair<std::string_view, size_t> replace_front(std::string_view text) const;
    void append_unknown(std::string_view character, bool follows_unknown,
                        std::vector<int32_t> &ids) const;
    // Calls body(piece, bytes) for each piece at the beginning of `text`, the shortest first.
    template <class Body>
    void each_match(std::string_view text, Body &&body) const;

    std::vector<piece> pieces_;  // sorted by text
    unigram_rules rules_;
    std::vector<uint32_t> array_;  // the map's double array
    std::string replacements_;     // each ends with a zero byte
};

}  // namespace moorage::core
