// bpe.h - byte-pair encoding of one word. The merge of the lowest rank comes first, the leftmost
// one among equals.
//
// Short words are merged by repeated search for the lowest rank. Long words, such as a text without
// a space, use a heap, which takes n log n.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/base/result.h"

namespace moorage::core {

// Tokens and their ids, which may have gaps.
class vocabulary {
public:
    static constexpr uint32_t ids_max = 1 << 22;

    // `entries`: every id must be below ids_max. Errors: two tokens share an id.
    vocabulary(const vocabulary &) = delete;  // it holds views into itself
    vocabulary(vocabulary &&) = default;
    static result<vocabulary> make(std::vector<std::pair<std::string, uint32_t>> entries);
    int32_t id_of(std::string_view token) const;                            // -1: none
    const std::string *token_of(int32_t id) const;                          // null: none
    uint32_t size() const { return static_cast<uint32_t>(by_id_.size()); }  // ids are below it
    // Adds a word that is no token. Its id is ids_max, or one above the last such id.
    int32_t add_hidden(std::string word);
    const std::deque<std::string> &hidden() const { return hidden_; }

private:
    vocabulary() = default;
    std::vector<std::pair<std::string, uint32_t>> entries_;
    std::unordered_map<std::string_view, int32_t> ids_;  // views into entries_
    std::vector<int32_t> by_id_;                         // index into entries_; -1: none
    std::deque<std::string> hidden_;                     // a deque, so that they do not move
};

// The results of merging two tokens, as a flat table with open addressing.
class merge_table {
public:
    struct merge {
        uint32_t rank;
        int32_t id;
    };
    explicit merge_table(size_t merges);
    // A later merge of the same two tokens replaces an earlier one. Requires: at most as many
    // different pairs as announced.
    void add(int32_t left, int32_t right, merge merged);
    const merge *find(int32_t left, int32_t right) const;  // null: none

private:
    struct slot {
        uint64_t key = UINT64_MAX;
        merge merged{};
    };
    size_t place_of(uint64_t key) const;
    std::vector<slot> slots_;
    uint32_t shift_;
};

struct bpe_rules {
    std::string unknown_token;  // "": none
    bool fuse_unknown = false;  // a run of unknown characters becomes one unknown token
    bool byte_fallback = false;
    bool ignore_merges = false;  // a word that is itself a token is not split
    // Ids from here on are characters and words that can merge but are no tokens. Those that remain
    // after merging become their characters, their bytes, or the unknown token.
    int32_t hidden_from = INT32_MAX;
};

class bpe {
public:
    using merge_list = std::vector<std::pair<std::string, std::string>>;
    // Words of merges that are no tokens also merge; words().hidden() lists them. `ranks`: of the
    // merges, below 2^32 - 1. Empty: the order of the list.
    static result<bpe> make(vocabulary words, const merge_list &merges, bpe_rules rules,
                            const std::vector<uint32_t> &ranks = {});

    // Memory that encode reuses. One per thread.
    struct workspace {
        struct symbol {
            int32_t id;
            uint32_t previous, next;
        };
        struct candidate {
            uint64_t order;  // rank, then position
            int32_t left, right;
            bool operator<(const candidate &second) const { return order > second.order; }
        };
        std::vector<int32_t> ids;
        std::vector<merge_table::merge> merges;
        std::vector<symbol> symbols;
        std::vector<candidate> heap;
    };
    // Appends the ids of `word` (valid UTF-8, below 2^31 bytes). Errors: the vocabulary lacks a
    // character and has no unknown token.
    status encode(std::string_view word, workspace &memory, std::vector<int32_t> &ids) const;
    const vocabulary &words() const { return words_; }
    uint32_t tokens() const {  // ids of tokens are below it
        return std::min(words_.size(), static_cast<uint32_t>(rules_.hidden_from));
    }

private:
    bpe(vocabulary words, size_t merges) : words_(std::move(words)), merges_(merges) {}
    int32_t id_of_character(std::string_view character, char32_t value) const;
    status split_characters(std::string_view word, std::vector<int32_t> &ids) const;
    void merge_short(workspace &memory, std::vector<int32_t> &merged_ids) const;
    void merge_long(workspace &memory, std::vector<int32_t> &merged_ids) const;
    void push_candidate(workspace &memory, uint32_t left) const;
    status spell_hidden(std::vector<int32_t> &ids, size_t first) const;

    vocabulary words_;
    merge_table merges_;
    bpe_rules rules_;
    int32_t unknown_id_ = -1;
    std::vector<int32_t> byte_ids_;   // of <0x00>..<0xFF>
    std::vector<int32_t> small_ids_;  // of characters below its size
};

// Warns if merges have words that are no tokens. `place` begins the warning.
void warn_of_hidden(const bpe &model, std::string_view place);

}  // namespace moorage::core
