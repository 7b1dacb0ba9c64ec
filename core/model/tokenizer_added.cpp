// tokenizer_added.cpp - a trie over bytes, and the rules for matches.
#include "core/model/tokenizer_added.h"

#include <algorithm>
#include <cassert>

#include "core/model/unicode.h"

namespace moorage::core {

namespace {

bool has_word_before(std::string_view text, size_t position) {
    if (position == 0) return false;
    do --position;
    while (position > 0 && (static_cast<uint8_t>(text[position]) & 0xc0) == 0x80);
    return is_word_character(next_character(text, position));
}

bool has_word_after(std::string_view text, size_t position) {
    return position < text.size() && is_word_character(next_character(text, position));
}

}  // namespace

void added_token_finder::add(std::string_view text, const added_token &token) {
    assert(!text.empty());
    first_bytes_[static_cast<uint8_t>(text[0])] = true;
    uint32_t node = 0;
    for (const char c : text) {
        const auto fresh = static_cast<uint32_t>(nodes_.size());
        const auto [found, inserted] = nodes_[node].next.emplace(static_cast<uint8_t>(c), fresh);
        node = found->second;
        if (inserted) nodes_.emplace_back();
    }
    if (nodes_[node].token >= 0) return;
    nodes_[node].token = static_cast<int32_t>(tokens_.size());
    tokens_.push_back(token);
}

size_t added_token_finder::match(std::string_view text, size_t begin, int32_t &token) const {
    size_t longest = 0;
    uint32_t node = 0;
    for (size_t end = begin; end < text.size();) {
        const auto next = nodes_[node].next.find(static_cast<uint8_t>(text[end]));
        if (next == nodes_[node].next.end()) break;
        node = next->second;
        ++end;
        if (nodes_[node].token < 0) continue;
        token = nodes_[node].token;
        longest = end - begin;
    }
    return longest;
}

std::vector<added_token_finder::part> added_token_finder::find(std::string_view text,
                                                               bool parse_special) const {
    std::vector<part> parts;
    size_t covered_end = 0;  // the parts so far end here
    for (size_t position = 0; position < text.size() && !tokens_.empty();) {
        int32_t index = -1;
        const size_t bytes =
            first_bytes_[static_cast<uint8_t>(text[position])] ? match(text, position, index) : 0;
        if (bytes == 0) {
            ++position;
            continue;
        }
        size_t begin = position, end = position + bytes;
        position = end;  // a text that does not count as a match is skipped, too
        const added_token &token = tokens_[index];
        if (token.special && !parse_special) continue;
        if (token.single_word && (has_word_before(text, begin) || has_word_after(text, end)))
            continue;
        // The token before may already have taken the space.
        if (token.strip_left)
            begin = std::max(begin - trailing_space_bytes(text.substr(0, begin)), covered_end);
        if (token.strip_right) end += leading_space_bytes(text.substr(end));
        if (covered_end < begin) parts.push_back({covered_end, begin, -1});
        parts.push_back({begin, end, token.id});
        covered_end = end;
    }
    if (covered_end < text.size()) parts.push_back({covered_end, text.size(), -1});
    return parts;
}

}  // namespace moorage::core
