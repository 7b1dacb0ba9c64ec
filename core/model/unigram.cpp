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
size_t length_of(char first) {
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
    unigram made;
    made.rules_ = rules;
    for (const unigram_piece &one : pieces)
        if (!one.text.empty())
            made.pieces_.push_back({std::string(one.text), one.id, one.score, one.own});
    // If several pieces have the same spelling, the last one counts, as in a table that is
    // overwritten.
    std::ranges::stable_sort(made.pieces_, {}, &piece::text);
    for (size_t i = 1; i < made.pieces_.size(); ++i)
        if (made.pieces_[i].text == made.pieces_[i - 1].text) made.pieces_[i - 1].text.clear();
    std::erase_if(made.pieces_, [](const piece &one) { return one.text.empty(); });
    if (map.empty()) return made;
    uint32_t bytes = 0;
    if (map.size() >= sizeof bytes) std::memcpy(&bytes, map.data(), sizeof bytes);
    if (bytes == 0 || bytes % sizeof(uint32_t) != 0 || bytes > map.size() - sizeof bytes)
        return error{format("has {} bytes, of which {} are to be an array of whole words",
                            map.size(), bytes)};
    made.array_.resize(bytes / sizeof(uint32_t));
    std::memcpy(made.array_.data(), map.data() + sizeof bytes, bytes);
    const auto rest = map.subspan(sizeof bytes + bytes);
    made.replacements_.assign(reinterpret_cast<const char *>(rest.data()), rest.size());
    made.replacements_.push_back('\0');
    return made;
}

template <class Body>
void unigram::each_match(std::string_view text, Body &&body) const {
    auto begin = pieces_.begin(), end = pieces_.end();
    for (size_t depth = 0; depth < text.size() && begin != end; ++depth) {
        const auto at = [&](const piece &one) {
            return one.text.size() > depth ? int{static_cast<uint8_t>(one.text[depth])} : -1;
        };
        const int wanted = static_cast<uint8_t>(text[depth]);
        begin =
            std::partition_point(begin, end, [&](const piece &one) { return at(one) < wanted; });
        end = std::partition_point(begin, end, [&](const piece &one) { return at(one) <= wanted; });
        if (begin != end && begin->text.size() == depth + 1) body(*begin, depth + 1);
    }
}

std::pair<std::string_view, size_t> unigram::front(std::string_view text) const {
    size_t own = 0;
    each_match(text, [&](const piece &one, size_t bytes) {
        if (one.own) own = bytes;
    });
    if (own != 0) return {text.substr(0, own), own};
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
    const size_t bytes = std::min(length_of(text.front()), text.size());
    return {text.substr(0, bytes), bytes};
}

std::string unigram::normalised(std::string_view text) const {
    std::string out;
    const bool before = rules_.space_before && !rules_.space_behind;
    bool begun = false, in_word = false;
    while (!text.empty()) {
        const auto [replaced, bytes] = front(text);
        for (const char byte : replaced) {
            if (byte == ' ') {
                in_word = false;
                if (!rules_.merge_spaces) out += mark;
                continue;
            }
            if (!in_word && ((before && !begun) || rules_.merge_spaces)) {
                out += mark;
                begun = true;
            }
            in_word = true;
            out += byte;
        }
        text.remove_prefix(bytes);
    }
    if (rules_.space_before && rules_.space_behind) out += mark;
    return out;
}

// Writes the last byte first, because the path is followed from the text's end. `again`: the token
// before is also unknown; a run of unknown characters becomes one token.
void unigram::append_unknown(std::string_view character, bool again,
                             std::vector<int32_t> &out) const {
    const auto id_of = [&](char byte) { return rules_.byte_ids[static_cast<uint8_t>(byte)]; };
    if (!rules_.byte_ids.empty() &&
        std::ranges::all_of(character, [&](char byte) { return id_of(byte) >= 0; }))
        for (size_t i = character.size(); i-- > 0;) out.push_back(id_of(character[i]));
    else if (!again)
        out.push_back(rules_.unknown_id);
}

void unigram::encode(std::string_view text, std::vector<int32_t> &out) const {
    const std::string clean = normalised(text);
    if (clean.empty()) return;
    struct step {
        int32_t id;
        size_t from;
        double sum;
    };
    std::vector<step> best(clean.size() + 1,
                           {rules_.unknown_id, 0, -std::numeric_limits<double>::max()});
    best[0].sum = 0;
    const auto offer = [&](size_t from, size_t to, int32_t id, double score) {
        const double sum = best[from].sum + score;
        if (sum > best[to].sum) best[to] = {id, from, sum};
    };
    for (size_t from = 0; from < clean.size();) {
        const size_t character = std::min(length_of(clean[from]), clean.size() - from);
        bool known = false;
        each_match(std::string_view(clean).substr(from), [&](const piece &one, size_t bytes) {
            known = known || bytes == character;
            offer(from, from + bytes, one.id, one.own ? 0 : one.score);
        });
        if (!known) offer(from, from + character, rules_.unknown_id, rules_.unknown_score);
        from += character;
    }
    const size_t first = out.size();
    for (size_t at = clean.size(); at != 0; at = best[at].from) {
        const bool again = out.size() > first && out.back() == rules_.unknown_id;
        const std::string_view part =
            std::string_view(clean).substr(best[at].from, at - best[at].from);
        if (best[at].id == rules_.unknown_id)
            append_unknown(part, again, out);
        else
            out.push_back(best[at].id);
    }
    std::reverse(out.begin() + static_cast<std::ptrdiff_t>(first), out.end());
}

}  // namespace moorage::core
