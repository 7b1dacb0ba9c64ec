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

error too_long(const char *what, size_t bytes, size_t bytes_max) {
    return {
        format("{} make {} bytes of a part of the text, {} is the limit", what, bytes, bytes_max)};
}

result<std::string> normalize(const normalizer_step &step, std::string text, size_t bytes_max) {
    using kind = normalizer_step::kind;
    switch (step.what) {
        case kind::form:
            return normalized(text, step.form);
        case kind::lower_case:
            return lower_case(text);
        case kind::prepend:
            return text.empty() ? text : step.content + text;
        case kind::replace:
            return replace_all(text, *step.where, step.content, bytes_max);
        case kind::strip:
            return strip(text, step.left, step.right);
        case kind::strip_accents:
            return without_marks(text);
        case kind::byte_level:
            break;
    }
    std::string out;
    append_byte_level(out, text);
    return out;
}

// Part of a text: a match, or the text between matches.
struct stretch {
    text_range range;
    bool match;
};

status find_stretches(const splitter &by, std::string_view text, std::vector<text_range> &matches,
                      std::vector<stretch> &out) {
    matches.clear();
    out.clear();
    if (status done = by.where.find_all(text, matches); !done) return done;
    size_t end = 0;
    for (const text_range &match : matches) {
        if (end != match.begin) out.push_back({{end, match.begin}, by.invert});
        out.push_back({match, !by.invert});
        end = match.end;
    }
    if (end != text.size()) out.push_back({{end, text.size()}, by.invert});
    return success();
}

// Turns stretches into words, in place. Words that are dropped become empty.
void merge(std::vector<stretch> &of, match_rule rule) {
    const auto join = [&](size_t from, size_t to) {
        of[to].range = {std::min(of[from].range.begin, of[to].range.begin),
                        std::max(of[from].range.end, of[to].range.end)};
        of[from].range.end = of[from].range.begin;
    };
    switch (rule) {
        case match_rule::isolated:
            break;
        case match_rule::removed:
            for (stretch &one : of)
                if (one.match) one.range.end = one.range.begin;
            break;
        case match_rule::contiguous:
            for (size_t i = 1, last = 0; i < of.size(); ++i)
                if (of[i].match == of[i - 1].match)
                    join(i, last);
                else
                    last = i;
            break;
        // A match joins the neighbour that is no match. If there are several matches in a row, only
        // the adjacent one joins.
        case match_rule::merged_with_previous:
            for (size_t i = 1; i < of.size(); ++i)
                if (of[i].match && !of[i - 1].match) join(i, i - 1);
            break;
        case match_rule::merged_with_next:
            for (size_t i = of.size(); i-- > 1;)
                if (of[i - 1].match && !of[i].match) join(i - 1, i);
            break;
    }
}

status split(const splitter &by, text_words &to) {
    std::vector<text_words::word> words;
    words.reserve(to.words.size());
    std::vector<text_range> matches;
    std::vector<stretch> stretches;
    for (const text_words::word &word : to.words) {
        const std::string_view text =
            std::string_view(to.text).substr(word.begin, word.end - word.begin);
        if (status done = find_stretches(by, text, matches, stretches); !done) return done;
        merge(stretches, by.rule);
        for (const auto &[range, match] : stretches)
            if (range.begin != range.end)
                words.push_back({word.begin + range.begin, word.begin + range.end,
                                 word.first && range.begin == 0});
    }
    to.words = std::move(words);
    return success();
}

// Rewrites every word with `append`, which gets the new text and the old word.
template <class Append>
void rewrite(text_words &to, Append append) {
    std::string text;
    text.reserve(to.text.size() + to.text.size() / 2);
    for (text_words::word &word : to.words) {
        const size_t begin = text.size();
        append(text, std::string_view(to.text).substr(word.begin, word.end - word.begin),
               word.first);
        word.begin = begin;
        word.end = text.size();
    }
    to.text = std::move(text);
}

status byte_level(const word_step &step, text_words &to) {
    if (step.prefix_space)
        rewrite(to, [](std::string &text, std::string_view word, bool) {
            if (!word.starts_with(' ')) text += ' ';
            text += word;
        });
    if (step.split)
        if (status done = split(*step.split, to); !done) return done;
    rewrite(to,
            [](std::string &text, std::string_view word, bool) { append_byte_level(text, word); });
    return success();
}

status metaspace(const word_step &step, text_words &to) {
    rewrite(to, [&](std::string &text, std::string_view word, bool first) {
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
    return step.split ? split(*step.split, to) : success();
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

result<std::string> replace_all(std::string_view text, const pattern &where,
                                std::string_view content, size_t bytes_max) {
    std::vector<text_range> matches;
    if (const status done = where.find_all(text, matches); !done) return done.failure();
    size_t bytes = text.size() + matches.size() * content.size();
    for (const text_range &match : matches) bytes -= match.end - match.begin;
    if (bytes > bytes_max) return too_long("the replacements", bytes, bytes_max);
    std::string out;
    out.reserve(bytes);
    size_t end = 0;
    for (const text_range &match : matches) {
        out += text.substr(end, match.begin - end);
        out += content;
        end = match.end;
    }
    out += text.substr(end);
    return out;
}

static status apply(const word_step &step, text_words &to) {
    switch (step.what) {
        case word_step::kind::split:
            return split(*step.split, to);
        case word_step::kind::byte_level:
            return byte_level(step, to);
        case word_step::kind::metaspace:
            return metaspace(step, to);
    }
    return success();
}

status apply(const word_step &step, text_words &to, size_t bytes_max) {
    const status done = apply(step, to);
    if (done && to.text.size() > bytes_max)
        return too_long("the pre_tokenizers", to.text.size(), bytes_max);
    return done;
}

}  // namespace moorage::core
