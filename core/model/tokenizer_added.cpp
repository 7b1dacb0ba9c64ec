// tokenizer_added.cpp - a trie over bytes, and the rules for matches.
#include "core/model/tokenizer_added.h"

#include <algorithm>
#include <cassert>

#include "core/model/unicode.h"

namespace moorage::core {

namespace {

bool word_before(std::string_view text, size_t at) {
    if (at == 0) return false;
    do --at;
    while (at > 0 && (static_cast<uint8_t>(text[at]) & 0xc0) == 0x80);
    return word_character(next_character(text, at));
}

bool word_behind(std::string_view text, size_t at) {
    return at < text.size() && word_character(next_character(text, at));
}

}  // namespace

void added_finder::add(std::string_view text, const added_token &token) {
    assert(!text.empty());
    begins_[static_cast<uint8_t>(text[0])] = true;
    uint32_t at = 0;
    for (const char c : text) {
        const auto fresh = static_cast<uint32_t>(nodes_.size());
        const auto [found, made] = nodes_[at].next.emplace(static_cast<uint8_t>(c), fresh);
        at = found->second;
        if (made) nodes_.emplace_back();
    }
    if (nodes_[at].token >= 0) return;
    nodes_[at].token = static_cast<int32_t>(tokens_.size());
    tokens_.push_back(token);
}

size_t added_finder::match(std::string_view text, size_t at, int32_t &token) const {
    size_t longest = 0;
    uint32_t node = 0;
    for (size_t end = at; end < text.size();) {
        const auto next = nodes_[node].next.find(static_cast<uint8_t>(text[end]));
        if (next == nodes_[node].next.end()) break;
        node = next->second;
        ++end;
        if (nodes_[node].token < 0) continue;
        token = nodes_[node].token;
        longest = end - at;
    }
    return longest;
}

std::vector<added_finder::part> added_finder::find(std::string_view text, bool special) const {
    std::vector<part> parts;
    size_t told = 0;  // the parts so far end here
    for (size_t at = 0; at < text.size() && !tokens_.empty();) {
        int32_t index = -1;
        const size_t bytes = begins_[static_cast<uint8_t>(text[at])] ? match(text, at, index) : 0;
        if (bytes == 0) {
            ++at;
            continue;
        }
        size_t begin = at, end = at + bytes;
        at = end;  // a text that does not count as a match is skipped, too
        const added_token &token = tokens_[index];
        if (token.special && !special) continue;
        if (token.single_word && (word_before(text, begin) || word_behind(text, end))) continue;
        // The token before may already have taken the space.
        if (token.strip_left)
            begin = std::max(begin - trailing_space_bytes(text.substr(0, begin)), told);
        if (token.strip_right) end += leading_space_bytes(text.substr(end));
        if (told < begin) parts.push_back({told, begin, -1});
        parts.push_back({begin, end, token.id});
        told = end;
    }
    if (told < text.size()) parts.push_back({told, text.size(), -1});
    return parts;
}

}  // namespace moorage::core
