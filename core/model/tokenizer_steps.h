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
result<std::string> normalize(std::span<const normalizer_step> steps, std::string text);

// Every match of `where` replaced by `content`.
result<std::string> replace_all(std::string_view text, const pattern &where,
                                std::string_view content);

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
status apply(const word_step &step, text_words &to);

}  // namespace moorage::core
