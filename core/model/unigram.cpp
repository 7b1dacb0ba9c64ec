// unigram.cpp - normalisation with the compiled map, and the best path through a text.
#include "core/model/unigram.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "core/base/text.h"

namespace moorage::core {

namespace {

constexpr std::string_view mark = "\u2581";

// The number of bytes of a character whose first byte is `first`.
size_t character_bytes_of(char first) {
    const auto byte = static_cast<uint8_t>(first);
    return byte < 0x80 ? 1 : byte < 0xe0 ? 2 : byte < 0xf0 ? 3 : 4;
}

// A node of the double array (darts-clone): an offset to its children, a label, and whether a word
// ends here.
uint32_t offset_of(uint32_t node) { return node >> 10 << ((node & 1u << 9) >> 6); }
uint32_t label_of(uint32_t node) { return node & (1u << 31 | 0xffu); }
bool ends_word(uint32_t node) { return (node >> 8 & 1) != 0; }
uint32_t value_of(uint32_t node) { return node & ~(1u << 31); }

}  // namespace

result<unigram> unigram::make(const std::vector<unigram_piece> &pieces, unigram_rules rules,
                              std::span<const std::byte> map) {
    unigram model;
    model.rules_ = rules;
    for (const unigram_piece &entry : pieces)
        if (!entry.text.empty())
            model.pieces_.push_back(
                {std::string(entry.text), entry.id, entry.score, entry.user_defined});
    // If several pieces have the same spelling, the last one counts, as in a table that is
    // overwritten.
    std::ranges::stable_sort(model.pieces_, {}, &piece::text);
    for (size_t i = 1; i < model.pieces_.size(); ++i)
        if (model.pieces_[i].text == model.pieces_[i - 1].text) model.pieces_[i - 1].text.clear();
    std::erase_if(model.pieces_, [](const piece &entry) { return entry.text.empty(); });
    if (map.empty()) return model;
    uint32_t bytes = 0;
    if (map.size() >= sizeof bytes) std::memcpy(&bytes, map.data(), sizeof bytes);
    if (bytes == 0 || bytes % sizeof(uint32_t) != 0 || bytes > map.size() - sizeof bytes)
        return error{format("has {} bytes, of which {} are to be an array of whole words",
                            map.size(), bytes)};
    model.array_.resize(bytes / sizeof(uint32_t));
    std::memcpy(model.array_.data(), map.data() + sizeof bytes, bytes);
    const auto rest = map.subspan(sizeof bytes + bytes);
    model.replacements_.assign(reinterpret_cast<const char *>(rest.data()), rest.size());
    model.replacements_.push_back('\0');
    return model;
}

template <class Body>
void unigram::each_match(std::string_view text, Body &&body) const {
    auto begin = pieces_.begin(), end = pieces_.end();
    for (size_t depth = 0; depth < text.size() && begin != end; ++depth) {
        const auto byte_at_depth = [&](const piece &entry) {
            return entry.text.size() > depth ? int{static_cast<uint8_t>(entry.text[depth])} : -1;
        };
        const int wanted = static_cast<uint8_t>(text[depth]);
        begin = std::partition_point(
            begin, end, [&](const piece &entry) { return byte_at_depth(entry) < wanted; });
        end = std::partition_point(
            begin, end, [&](const piece &entry) { return byte_at_depth(entry) <= wanted; });
        if (begin != end && begin->text.size() == depth + 1) body(*begin, depth + 1);
    }
}

std::pair<std::string_view, size_t> unigram::replace_front(std::string_view text) const {
    size_t user_defined_bytes = 0;
    each_match(text, [&](const piece &match, size_t bytes) {
        if (match.user_defined) user_defined_bytes = bytes;
    });
    if (user_defined_bytes != 0) return {text.substr(0, user_defined_bytes), user_defined_bytes};
    size_t longest = 0;
    uint32_t place = 0;
    uint32_t node = array_.empty() ? 0 : offset_of(array_[0]);
    for (size_t i = 0; i < text.size() && !array_.empty(); ++i) {
        const auto byte = static_cast<uint8_t>(text[i]);
        if (byte == 0) break;
        node ^= byte;
        if (node >= array_.size() || label_of(array_[node]) != byte) break;
        const bool ends = ends_word(array_[node]);
        node ^= offset_of(array_[node]);
        if (node >= array_.size()) break;
        if (!ends) continue;
        longest = i + 1;
        place = value_of(array_[node]);
    }
    if (longest != 0 && place < replacements_.size())
        return {std::string_view(replacements_.c_str() + place), longest};
    const size_t bytes = std::min(character_bytes_of(text.front()), text.size());
    return {text.substr(0, bytes), bytes};
}

std::string unigram::normalise(std::string_view text) const {
    std::string output;
    const bool marks_before = rules_.space_before && !rules_.space_behind;
    bool has_begun = false, in_word = false;
    while (!text.empty()) {
        const auto [replaced, bytes] = replace_front(text);
        for (const char byte : replaced) {
            if (byte == ' ') {
                in_word = false;
                if (!rules_.merge_spaces) output += mark;
                continue;
            }
            if (!in_word && ((marks_before && !has_begun) || rules_.merge_spaces)) {
                output += mark;
                has_begun = true;
            }
            in_word = true;
            output += byte;
        }
        text.remove_prefix(bytes);
    }
    if (rules_.space_before && rules_.space_behind) output += mark;
    return output;
}

// Writes the last byte first, because the path is followed from the text's end. `follows_unknown`:
// the token before is also unknown; a run of unknown characters becomes one token.
void unigram::append_unknown(std::string_view character, bool follows_unknown,
                             std::vector<int32_t> &ids) const {
    const auto id_of = [&](char byte) { return rules_.byte_ids[static_cast<uint8_t>(byte)]; };
    if (!rules_.byte_ids.empty() &&
        std::ranges::all_of(character, [&](char byte) { return id_of(byte) >= 0; }))
        for (size_t i = character.size(); i-- > 0;) ids.push_back(id_of(character[i]));
    else if (!follows_unknown)
        ids.push_back(rules_.unknown_id);
}

void unigram::encode(std::string_view text, std::vector<int32_t> &ids) const {
    const std::string clean = normalise(text);
    if (clean.empty()) return;
    struct step {
        int32_t id;
        size_t begin;
        double sum;
    };
    std::vector<step> best(clean.size() + 1,
                           {rules_.unknown_id, 0, -std::numeric_limits<double>::max()});
    best[0].sum = 0;
    const auto offer = [&](size_t begin, size_t end, int32_t id, double score) {
        const double sum = best[begin].sum + score;
        if (sum > best[end].sum) best[end] = {id, begin, sum};
    };
    for (size_t begin = 0; begin < clean.size();) {
        const size_t character = std::min(character_bytes_of(clean[begin]), clean.size() - begin);
        bool known = false;
        each_match(std::string_view(clean).substr(begin), [&](const piece &match, size_t bytes) {
            known = known || bytes == character;
            offer(begin, begin + bytes, match.id, match.user_defined ? 0 : match.score);
        });
        if (!known) offer(begin, begin + character, rules_.unknown_id, rules_.unknown_score);
        begin += character;
    }
    const size_t first = ids.size();
    for (size_t end = clean.size(); end != 0; end = best[end].begin) {
        const bool follows_unknown = ids.size() > first && ids.back() == rules_.unknown_id;
        const std::string_view part =
            std::string_view(clean).substr(best[end].begin, end - best[end].begin);
        if (best[end].id == rules_.unknown_id)
            append_unknown(part, follows_unknown, ids);
        else
            ids.push_back(best[end].id);
    }
    std::reverse(ids.begin() + static_cast<std::ptrdiff_t>(first), ids.end());
}

}  // namespace moorage::core
