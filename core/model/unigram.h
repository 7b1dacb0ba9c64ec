// unigram.h - the unigram model of SentencePiece: of all ways to spell a text in pieces the one
// whose scores sum to the most.
//
// Before that a text is normalised by the map that the model's makers compiled (longest matches of
// a double array replaced), and spaces become a mark of their own. The rules are those of llama.cpp
// for files whose tokenizer is "t5".
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
    bool own = false;  // a user's own: matches before normalisation, costs nothing
};
struct unigram_rules {
    int32_t unknown_id = 0;
    double unknown_score = 0;
    bool space_before = false;  // a text begins with the mark of a space
    bool merge_spaces = false;  // runs of spaces are one, none at the ends
    bool space_behind = false;  // the mark comes behind a word instead
    // Of the 256 bytes, -1 where there is none: an unknown character all of whose bytes are there
    // becomes them. Empty: no byte is a token.
    std::vector<int32_t> byte_ids = {};
};

class unigram {
public:
    // `map`: precompiled_charsmap, or empty. Errors: a map whose parts do not fit.
    static result<unigram> make(const std::vector<unigram_piece> &pieces, unigram_rules rules,
                                std::span<const std::byte> map);
    // Appends the ids of `text` (valid UTF-8).
    void encode(std::string_view text, std::vector<int32_t> &out) const;
    std::string normalised(std::string_view text) const;

private:
    struct piece {
        std::string text;
        int32_t id;
        double score;
        bool own;
    };
    // What stands for the front of `text`, and how many of its bytes.
    std::pair<std::string_view, size_t> front(std::string_view text) const;
    void append_unknown(std::string_view character, bool again, std::vector<int32_t> &out) const;
    // Calls body(piece, bytes) for each piece that `text` begins with, the shortest first.
    template <class Body>
    void each_match(std::string_view text, Body &&body) const;

    std::vector<piece> pieces_;  // sorted by text
    unigram_rules rules_;
    std::vector<uint32_t> array_;  // the map's double array
    std::string replacements_;     // each ends with a zero
};

}  // namespace moorage::core
