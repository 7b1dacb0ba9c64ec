// tokenizer_steps.cpp - normalisers and pre-tokenizers, one function each.
#include "core/model/tokenizer_steps.h"

#include <algorithm>

#include "core/base/text.h"

namespace moorage::core {

namespace {

std::string strip(std::string_view text, bool left, bool right) {
    if (left) text.remove_prefix(leading_space_bytes(text));
    if (right) text.remove_suffix(trailing_space_bytes(text));
    return std::string(text);
}

error too_long(const char *step_names, size_t bytes, size_t bytes_max) {
    return {format("{} make {} bytes of a part of the text, {} is the limit", step_names, bytes,
                   bytes_max)};
}

result<std::string> normalize(const normalizer_step &step, std::string text, size_t bytes_max) {
    using kind = normalizer_step::kind;
    switch (step.operation) {
        case kind::form:
            return to_normal_form(text, step.form);
        case kind::lower_case:
            return to_lower_case(text);
        case kind::prepend:
            return text.empty() ? text : step.content + text;
        case kind::replace:
            return replace_all(text, *step.match_pattern, step.content, bytes_max);
        case kind::strip:
            return strip(text, step.left, step.right);
        case kind::strip_accents:
            return remove_marks(text);
        case kind::byte_level:
            break;
    }
    std::string encoded;
    append_byte_level(encoded, text);
    return encoded;
}

// Part of a text: a match, or the text between matches.
struct stretch {
    text_range range;
    bool match;
};

status find_stretches(const splitter &splitter, std::string_view text,
                      std::vector<text_range> &matches, std::vector<stretch> &stretches) {
    matches.clear();
    stretches.clear();
    if (status done = splitter.match_pattern.find_all(text, matches); !done) return done;
    size_t end = 0;
    for (const text_range &match : matches) {
        if (end != match.begin) stretches.push_back({{end, match.begin}, splitter.invert});
        stretches.push_back({match, !splitter.invert});
        end = match.end;
    }
    if (end != text.size()) stretches.push_back({{end, text.size()}, splitter.invert});
    return success();
}

// Turns stretches into words, in place. Words that are dropped become empty.
void merge(std::vector<stretch> &stretches, match_rule rule) {
    const auto join = [&](size_t emptied, size_t extended) {
        stretches[extended].range = {
            std::min(stretches[emptied].range.begin, stretches[extended].range.begin),
            std::max(stretches[emptied].range.end, stretches[extended].range.end)};
        stretches[emptied].range.end = stretches[emptied].range.begin;
    };
    switch (rule) {
        case match_rule::isolated:
            break;
        case match_rule::removed:
            for (stretch &stretch : stretches)
                if (stretch.match) stretch.range.end = stretch.range.begin;
            break;
        case match_rule::contiguous:
            for (size_t i = 1, last = 0; i < stretches.size(); ++i)
                if (stretches[i].match == stretches[i - 1].match)
                    join(i, last);
                else
                    last = i;
            break;
        // A match joins the neighbour that is no match. If there are several matches in a row, only
        // the adjacent one joins.
        case match_rule::merged_with_previous:
            for (size_t i = 1; i < stretches.size(); ++i)
                if (stretches[i].match && !stretches[i - 1].match) join(i, i - 1);
            break;
        case match_rule::merged_with_next:
            for (size_t i = stretches.size(); i-- > 1;)
                if (stretches[i - 1].match && !stretches[i].match) join(i - 1, i);
            break;
    }
}

status apply_split(const splitter &splitter, text_words &target) {
    std::vector<text_words::word> words;
    words.reserve(target.words.size());
    std::vector<text_range> matches;
    std::vector<stretch> stretches;
    for (const text_words::word &word : target.words) {
        const std::string_view text =
            std::string_view(target.text).substr(word.begin, word.end - word.begin);
        if (status done = find_stretches(splitter, text, matches, stretches); !done) return done;
        merge(stretches, splitter.rule);
        for (const auto &[range, match] : stretches)
            if (range.begin != range.end)
                words.push_back({word.begin + range.begin, word.begin + range.end,
                                 word.first && range.begin == 0});
    }
    target.words = std::move(words);
    return success();
}

// Rewrites every word with `append`, which gets the new text and the old word.
template <class Append>
void rewrite(text_words &target, Append append) {
    std::string text;
    text.reserve(target.text.size() + target.text.size() / 2);
    for (text_words::word &word : target.words) {
        const size_t begin = text.size();
        append(text, std::string_view(target.text).substr(word.begin, word.end - word.begin),
               word.first);
        word.begin = begin;
        word.end = text.size();
    }
    target.text = std::move(text);
}

status apply_byte_level(const word_step &step, text_words &target) {
    if (step.prefix_space)
        rewrite(target, [](std::string &text, std::string_view word, bool) {
            if (!word.starts_with(' ')) text += ' ';
            text += word;
        });
    if (step.split)
        if (status done = apply_split(*step.split, target); !done) return done;
    rewrite(target,
            [](std::string &text, std::string_view word, bool) { append_byte_level(text, word); });
    return success();
}

status apply_metaspace(const word_step &step, text_words &target) {
    rewrite(target, [&](std::string &text, std::string_view word, bool first) {
        const bool prepend =
            step.prepend == prepend_rule::always || (step.prepend == prepend_rule::first && first);
        if (prepend && !word.starts_with(' ') && !word.starts_with(step.replacement))
            text += step.replacement;
        for (const char c : word)
            if (c == ' ')
                text += step.replacement;
            else
                text += c;
    });
    return step.split ? apply_split(*step.split, target) : success();
}

}  // namespace

result<std::string> normalize(std::span<const normalizer_step> steps, std::string text) {
    const size_t bytes_max = grown_bytes_max(text.size());
    for (const normalizer_step &step : steps) {
        result<std::string> done = normalize(step, std::move(text), bytes_max);
        if (!done) return done;
        text = std::move(done).value();
        if (text.size() > bytes_max) return too_long("the normalizers", text.size(), bytes_max);
    }
    return text;
}

result<std::string> replace_all(std::string_view text, const pattern &match_pattern,
                                std::string_view content, size_t bytes_max) {
    std::vector<text_range> matches;
    if (const status done = match_pattern.find_all(text, matches); !done) return done.failure();
    size_t bytes = text.size() + matches.size() * content.size();
    for (const text_range &match : matches) bytes -= match.end - match.begin;
    if (bytes > bytes_max) return too_long("the replacements", bytes, bytes_max);
    std::string replaced;
    replaced.reserve(bytes);
    size_t end = 0;
    for (const text_range &match : matches) {
        replaced += text.substr(end, match.begin - end);
        replaced += content;
        end = match.end;
    }
    replaced += text.substr(end);
    return replaced;
}

static status apply_operation(const word_step &step, text_words &target) {
    switch (step.operation) {
        case word_step::kind::split:
            return apply_split(*step.split, target);
        case word_step::kind::byte_level:
            return apply_byte_level(step, target);
        case word_step::kind::metaspace:
            return apply_metaspace(step, target);
    }
    return success();
}

status apply_step(const word_step &step, text_words &target, size_t bytes_max) {
    const status done = apply_operation(step, target);
    if (done && target.text.size() > bytes_max)
        return too_long("the pre_tokenizers", target.text.size(), bytes_max);
    return done;
}

}  // namespace moorage::core
