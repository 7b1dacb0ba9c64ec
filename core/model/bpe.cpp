// bpe.cpp - the vocabulary, the table of merges, and two ways of merging with equal results.
#include "core/model/bpe.h"

#include <algorithm>
#include <bit>
#include <cassert>

#include "core/base/log.h"
#include "core/base/safetensors.h"
#include "core/base/text.h"
#include "core/model/unicode.h"

namespace moorage::core {

namespace {

// With fewer symbols, searching all pairs is faster than a heap.
constexpr size_t short_word_symbols = 40;
constexpr uint32_t none = UINT32_MAX;
constexpr char32_t small_characters = 0x400;  // looked up in an array; contains the byte alphabet

error no_token(char32_t character) {
    return error{format("the vocabulary has no token for U+{:04X} and no unk_token",
                        static_cast<uint32_t>(character))};
}

uint64_t key_of(int32_t left, int32_t right) {
    return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
}

}  // namespace

result<vocabulary> vocabulary::make(std::vector<std::pair<std::string, uint32_t>> entries) {
    vocabulary tokens;
    tokens.entries_ = std::move(entries);
    uint32_t size = 0;
    for (const auto &[token, id] : tokens.entries_) {
        assert(id < ids_max);
        size = std::max(size, id + 1);
    }
    tokens.by_id_.assign(size, -1);
    tokens.ids_.reserve(tokens.entries_.size());
    for (size_t i = 0; i < tokens.entries_.size(); ++i) {
        const auto &[token, id] = tokens.entries_[i];
        if (const int32_t earlier = tokens.by_id_[id]; earlier >= 0)
            return error{format("tokens \"{}\" and \"{}\" have the same id {}",
                                tokens.entries_[earlier].first, token, id)};
        tokens.by_id_[id] = static_cast<int32_t>(i);
        tokens.ids_.emplace(token, static_cast<int32_t>(id));
    }
    return tokens;
}

int32_t vocabulary::id_of(std::string_view token) const {
    const auto found = ids_.find(token);
    return found == ids_.end() ? -1 : found->second;
}

int32_t vocabulary::add_hidden(std::string word) {
    const auto id = static_cast<int32_t>(ids_max + hidden_.size());
    hidden_.push_back(std::move(word));
    ids_.emplace(hidden_.back(), id);
    return id;
}

const std::string *vocabulary::token_of(int32_t id) const {
    const int64_t place = int64_t{id} - ids_max;
    if (place >= 0 && place < static_cast<int64_t>(hidden_.size()))
        return &hidden_[static_cast<size_t>(place)];
    if (id < 0 || static_cast<size_t>(id) >= by_id_.size() || by_id_[id] < 0) return nullptr;
    return &entries_[by_id_[id]].first;
}

merge_table::merge_table(size_t merges)
    : slots_(std::bit_ceil(std::max<size_t>(merges, 4) * 2)),
      shift_(64 - static_cast<uint32_t>(std::bit_width(slots_.size()) - 1)) {}

size_t merge_table::place_of(uint64_t key) const {
    // The upper bits of the product depend on all bits of the key.
    size_t place = (key ^ key >> 29) * 0x9e3779b97f4a7c15u >> shift_;
    while (slots_[place].key != key && slots_[place].key != UINT64_MAX)
        place = (place + 1) & (slots_.size() - 1);
    return place;
}

void merge_table::add(int32_t left, int32_t right, merge merged) {
    const uint64_t key = key_of(left, right);
    slots_[place_of(key)] = {key, merged};
}

const merge_table::merge *merge_table::find(int32_t left, int32_t right) const {
    const slot &found = slots_[place_of(key_of(left, right))];
    return found.key == UINT64_MAX ? nullptr : &found.merged;
}

result<bpe> bpe::make(vocabulary words, const merge_list &merges, bpe_rules rules,
                      const std::vector<uint32_t> &ranks) {
    assert(ranks.empty() || ranks.size() == merges.size());
    bpe model(std::move(words), merges.size());
    for (size_t rank = 0; rank < merges.size(); ++rank) {
        const auto &[left, right] = merges[rank];
        const auto id_of = [&](const std::string &word) {
            const int32_t id = model.words_.id_of(word);
            return id >= 0 ? id : model.words_.add_hidden(word);
        };
        const int32_t ids[3] = {id_of(left), id_of(right), id_of(left + right)};
        const uint32_t merge_rank = ranks.empty() ? static_cast<uint32_t>(rank) : ranks[rank];
        model.merges_.add(ids[0], ids[1], {merge_rank, ids[2]});
    }
    if (!model.words_.hidden().empty())
        rules.hidden_from = std::min<int32_t>(rules.hidden_from, vocabulary::ids_max);
    if (!rules.unknown_token.empty()) {
        model.unknown_id_ = model.words_.id_of(rules.unknown_token);
        if (model.unknown_id_ < 0 || model.unknown_id_ >= rules.hidden_from)
            return error{format("the vocabulary has no unk_token \"{}\"", rules.unknown_token)};
    }
    model.rules_ = std::move(rules);
    for (int byte = 0; byte < 256; ++byte)
        model.byte_ids_.push_back(model.words_.id_of(format("<0x{:02X}>", byte)));
    std::string token;
    for (char32_t character = 0; character < small_characters; ++character) {
        token.clear();
        append_character(token, character);
        model.small_ids_.push_back(model.words_.id_of(token));
    }
    return model;
}

int32_t bpe::id_of_character(std::string_view character, char32_t value) const {
    return value < small_characters ? small_ids_[value] : words_.id_of(character);
}

// The word's characters as ids before any merge. As in the reference, an unknown character is
// written only before the next known one, so bytes of byte_fallback may come before it.
status bpe::split_characters(std::string_view word, std::vector<int32_t> &ids) const {
    bool unknown = false;
    for (size_t position = 0; position < word.size();) {
        const size_t begin = position;
        const char32_t character = next_character(word, position);
        const std::string_view bytes = word.substr(begin, position - begin);
        const int32_t id = id_of_character(bytes, character);
        if (id >= 0) {
            if (unknown) ids.push_back(unknown_id_);
            unknown = false;
            ids.push_back(id);
            continue;
        }
        const auto byte_id = [&](char byte) { return byte_ids_[static_cast<uint8_t>(byte)]; };
        if (rules_.byte_fallback && std::all_of(bytes.begin(), bytes.end(),
                                                [&](char byte) { return byte_id(byte) >= 0; })) {
            for (const char byte : bytes) ids.push_back(byte_id(byte));
            continue;
        }
        if (unknown_id_ < 0) return no_token(character);
        if (unknown && !rules_.fuse_unknown) ids.push_back(unknown_id_);
        unknown = true;
    }
    if (unknown) ids.push_back(unknown_id_);
    return success();
}

status bpe::encode(std::string_view word, workspace &memory, std::vector<int32_t> &ids) const {
    assert(word.size() < size_t{1} << 31);
    if (rules_.ignore_merges)
        if (const int32_t id = words_.id_of(word); id >= 0 && id < rules_.hidden_from) {
            ids.push_back(id);
            return success();
        }
    memory.ids.clear();
    const size_t first = ids.size();
    if (status done = split_characters(word, memory.ids); !done) return done;
    if (memory.ids.size() <= short_word_symbols)
        merge_short(memory, ids);
    else
        merge_long(memory, ids);
    return rules_.hidden_from == INT32_MAX ? success() : spell_hidden(ids, first);
}

status bpe::spell_hidden(std::vector<int32_t> &ids, size_t first) const {
    if (std::all_of(ids.begin() + static_cast<std::ptrdiff_t>(first), ids.end(),
                    [&](int32_t id) { return id < rules_.hidden_from; }))
        return success();
    std::vector<int32_t> spelt;
    const auto byte_id = [&](char byte) { return byte_ids_[static_cast<uint8_t>(byte)]; };
    for (size_t i = first; i < ids.size(); ++i) {
        if (ids[i] < rules_.hidden_from) {
            spelt.push_back(ids[i]);
            continue;
        }
        const std::string_view word = *words_.token_of(ids[i]);
        for (size_t position = 0; position < word.size();) {
            const size_t begin = position;
            const char32_t value = next_character(word, position);
            const std::string_view character = word.substr(begin, position - begin);
            const int32_t id = id_of_character(character, value);
            if (id >= 0 && id < rules_.hidden_from)
                spelt.push_back(id);
            else if (rules_.byte_fallback &&
                     std::ranges::all_of(character, [&](char byte) { return byte_id(byte) >= 0; }))
                for (const char byte : character) spelt.push_back(byte_id(byte));
            else if (unknown_id_ >= 0)
                spelt.push_back(unknown_id_);
            else
                return no_token(value);
        }
    }
    ids.resize(first);
    ids.insert(ids.end(), spelt.begin(), spelt.end());
    return success();
}

void bpe::merge_short(workspace &memory, std::vector<int32_t> &merged_ids) const {
    std::vector<int32_t> &ids = memory.ids;
    // merges[i] is that of ids[i] and ids[i + 1].
    std::vector<merge_table::merge> &merges = memory.merges;
    const auto look_up = [&](size_t i) -> merge_table::merge {
        const auto *found = merges_.find(ids[i], ids[i + 1]);
        return found ? *found : merge_table::merge{none, -1};
    };
    const size_t pairs = ids.empty() ? 0 : ids.size() - 1;
    merges.resize(pairs);
    for (size_t i = 0; i < pairs; ++i) merges[i] = look_up(i);
    while (!merges.empty()) {
        // The leftmost of the lowest ranks.
        const auto best =
            std::min_element(merges.begin(), merges.end(),
                             [](const auto &a, const auto &b) { return a.rank < b.rank; });
        if (best->rank == none) break;
        const size_t position = best - merges.begin();
        ids[position] = best->id;
        ids.erase(ids.begin() + position + 1);
        merges.erase(best);
        if (position < merges.size()) merges[position] = look_up(position);
        if (position > 0) merges[position - 1] = look_up(position - 1);
    }
    merged_ids.insert(merged_ids.end(), ids.begin(), ids.end());
}

// Puts `left` and its next symbol on the heap if they can merge.
void bpe::push_candidate(workspace &memory, uint32_t left) const {
    const auto &symbols = memory.symbols;
    const uint32_t right = symbols[left].next;
    if (right == none) return;
    const auto *found = merges_.find(symbols[left].id, symbols[right].id);
    if (!found) return;
    memory.heap.push_back(
        {uint64_t{found->rank} << 32 | left, symbols[left].id, symbols[right].id});
    std::push_heap(memory.heap.begin(), memory.heap.end());
}

void bpe::merge_long(workspace &memory, std::vector<int32_t> &merged_ids) const {
    auto &symbols = memory.symbols;
    const auto count = static_cast<uint32_t>(memory.ids.size());
    symbols.resize(count);
    for (uint32_t i = 0; i < count; ++i)
        symbols[i] = {memory.ids[i], i == 0 ? none : i - 1, i + 1 == count ? none : i + 1};
    memory.heap.clear();
    for (uint32_t i = 0; i + 1 < count; ++i) push_candidate(memory, i);
    while (!memory.heap.empty()) {
        std::pop_heap(memory.heap.begin(), memory.heap.end());
        const workspace::candidate best = memory.heap.back();
        memory.heap.pop_back();
        const auto position = static_cast<uint32_t>(best.order);
        workspace::symbol &left = symbols[position];
        // One of the two has changed since then. A newer candidate replaces this one.
        if (left.id != best.left || left.next == none || symbols[left.next].id != best.right)
            continue;
        workspace::symbol &right = symbols[left.next];
        left.id = merges_.find(best.left, best.right)->id;
        left.next = right.next;
        right.id = -1;
        if (left.next != none) symbols[left.next].previous = position;
        push_candidate(memory, position);
        if (left.previous != none) push_candidate(memory, left.previous);
    }
    for (uint32_t i = 0; i != none && i < count; i = symbols[i].next)
        merged_ids.push_back(symbols[i].id);
}

void warn_of_hidden(const bpe &model, std::string_view place) {
    const std::deque<std::string> &hidden = model.words().hidden();
    if (hidden.empty()) return;
    log_warning(format("{}: {} of the words in merges {} no token, for example \"{}\"", place,
                       hidden.size(), hidden.size() == 1 ? "is" : "are",
                       printable(hidden.front())));
}

}  // namespace moorage::core
