// tokenizer_steps.h - the steps of a text before BPE: normalisers rewrite it, pre-tokenizers cut it
// into words.
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

// The longest result allowed for a text of `bytes`. Each step may multiply the length, so a few
// lines of a file could otherwise exceed any memory. Unicode normalisation makes a text at most
// eleven times as long, and the alphabet of bytes doubles that.
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
    kind operation = kind::form;
    normal_form form = normal_form::nfc;
    std::string content;  // prepend, replace
    std::optional<pattern> match_pattern;
    bool left = false, right = false;  // strip
};
// Fails if the text grows beyond grown_bytes_max() of its original size.
result<std::string> normalize(std::span<const normalizer_step> steps, std::string text);

// Replaces every match of `match_pattern` by `content`. Fails instead of making more than
// `bytes_max`.
result<std::string> replace_all(std::string_view text, const pattern &match_pattern,
                                std::string_view content, size_t bytes_max = SIZE_MAX);

// A text and its words in order. Words need not cover all of the text.
struct text_words {
    struct word {
        size_t begin, end;  // bytes
        bool first;         // begins at the beginning of the encoded text
    };
    std::string text;
    std::vector<word> words;
};

// How a match between two words is treated.
enum class match_rule : uint8_t {
    removed,
    isolated,
    merged_with_previous,
    merged_with_next,
    contiguous  // isolated, but adjacent matches are one word
};
enum class prepend_rule : uint8_t { always, first, never };

struct splitter {
    pattern match_pattern;
    match_rule rule = match_rule::isolated;
    bool invert = false;  // the text between matches counts as the matches
};

struct word_step {
    enum class kind : uint8_t { split, byte_level, metaspace };
    kind operation = kind::split;
    std::optional<splitter> split;  // for split; for byte_level and metaspace: if they split
    bool prefix_space = false;      // byte_level
    std::string replacement;        // metaspace: one character
    prepend_rule prepend = prepend_rule::always;
};
// Fails if the text becomes longer than `bytes_max`.
status apply_step(const word_step &step, text_words &target, size_t bytes_max);

}  // namespace moorage::core
