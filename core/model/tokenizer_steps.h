// tokenizer_steps.h - what happens to a text before BPE: normalisers rewrite it, pre-tokenizers cut
// it into words.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.h"
#include "core/model/tokenizer_pattern.h"
#include "core/model/unicode.h"

namespace moorage::core {

// Steps one after the other multiply what each makes longer, which a few lines of a file can drive
// beyond any memory: what comes of a text of `bytes` may not be longer than this. The longest that
// Unicode makes of itself is eleven times as long, twice that in the alphabet of bytes.
constexpr size_t grown_bytes_max(size_t bytes) { return 64 * bytes + 65536; }

struct normalizer_step {
    enum class kind : uint8_t {
        form,
        lower_case,
        prepend,
        replace,
        strip,
        strip_accents,
        byte_level
    };
    kind what = kind::form;
    normal_form form = normal_form::nfc;
    std::string content;  // prepend, replace
    std::optional<pattern> where;
    bool left = false, right = false;  // strip
};
// An error where the text grows beyond grown_bytes_max() of what it was.
result<std::string> normalize(std::span<const normalizer_step> steps, std::string text);

// Every match of `where` replaced by `content`; an error instead of a result above `bytes_max`.
result<std::string> replace_all(std::string_view text, const pattern &where,
                                std::string_view content, size_t bytes_max = SIZE_MAX);

// A text and the words in it, in order. Words may leave out some of the text.
struct text_words {
    struct word {
        size_t begin, end;  // bytes
        bool first;         // begins where the text to encode begins
    };
    std::string text;
    std::vector<word> words;
};

// What becomes of a match between the words that it separates.
enum class match_rule : uint8_t {
    removed,
    isolated,
    merged_with_previous,
    merged_with_next,
    contiguous  // isolated, but matches that touch are one word
};
enum class prepend_rule : uint8_t { always, first, never };

struct splitter {
    pattern where;
    match_rule rule = match_rule::isolated;
    bool invert = false;  // what lies between matches counts as the matches
};

struct word_step {
    enum class kind : uint8_t { split, byte_level, metaspace };
    kind what = kind::split;
    std::optional<splitter> split;  // split; byte_level, metaspace: where they split
    bool prefix_space = false;      // byte_level
    std::string replacement;        // metaspace: one character
    prepend_rule prepend = prepend_rule::always;
};
// An error where the text comes to more than `bytes_max`.
status apply(const word_step &step, text_words &to, size_t bytes_max);

}  // namespace moorage::core
