// tokenizer_components.cpp - one branch per component type.
#include "core/model/tokenizer_components.h"

#include <utility>

#include "core/base/json.h"
#include "core/base/text.h"

namespace moorage::core {

namespace {

constexpr int sequence_depth_max = 16;  // of sequences within sequences

// The pattern that GPT-2 cuts words with.
constexpr const char *word_pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
// \w of the reference's other matcher, which includes joiners.
constexpr const char *words_or_signs = R"([\w\u200c\u200d]+|[^\w\u200c\u200d\s]+)";

// The compiled pattern; none after a problem.
std::optional<pattern> kept(const component_reader &in, result<pattern> made) {
    if (made) return std::move(made).value();
    in.refuse(made.failure().text);
    return std::nullopt;
}

// {"String": text} or {"Regex": text}.
std::optional<pattern> read_pattern(const component_reader &in) {
    const component_reader held = in.object("pattern");
    if (held.failed()) return std::nullopt;
    if (held.find("String")) return kept(held, pattern::literal(held.text("String")));
    return kept(held, pattern::regex(held.text("Regex")));
}

// Refuses $1 in the replacement text of a regular expression. Releases of the reference differ on
// whether it is a group.
std::string replacement_text(const component_reader &in) {
    std::string content = in.text("content");
    const tokenizer_json *held = in.find("pattern");
    if (held && held->is_object() && held->contains("Regex") && content.find('$') != content.npos)
        in.refuse("content with $ beside a Regex is not supported");
    return content;
}

void add_split(const component_reader &in, const char *text, match_rule rule, bool invert,
               std::vector<word_step> &steps) {
    word_step step;
    if (auto where = kept(in, pattern::regex(text)))
        step.split = splitter{std::move(*where), rule, invert};
    steps.push_back(std::move(step));
}

void read_split(const component_reader &in, std::vector<word_step> &steps) {
    word_step step;
    auto where = read_pattern(in);
    if (!in.find("behavior")) in.refuse("behavior is missing");
    const uint32_t rule = in.choice(
        "behavior", {"Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"});
    const bool invert = in.flag("invert", false);
    if (where) step.split = splitter{std::move(*where), static_cast<match_rule>(rule), invert};
    steps.push_back(std::move(step));
}

void read_byte_level(const component_reader &in, std::vector<word_step> &steps) {
    word_step step;
    step.what = word_step::kind::byte_level;
    step.prefix_space = in.flag("add_prefix_space", true);
    if (in.flag("use_regex", true))
        if (auto where = kept(in, pattern::regex(word_pattern)))
            step.split = splitter{std::move(*where), match_rule::isolated, false};
    steps.push_back(std::move(step));
}

// Old files have add_prefix_space, new ones prepend_scheme.
prepend_rule read_prepend(const component_reader &in) {
    const auto rule =
        static_cast<prepend_rule>(in.choice("prepend_scheme", {"always", "first", "never"}));
    if (in.flag("add_prefix_space", true)) return rule;
    if (in.find("prepend_scheme") && rule != prepend_rule::never)
        in.refuse("add_prefix_space is false, but prepend_scheme is not \"never\"");
    return prepend_rule::never;
}

void read_metaspace(const component_reader &in, std::vector<word_step> &steps) {
    word_step step;
    step.what = word_step::kind::metaspace;
    append_character(step.replacement, in.character("replacement"));
    step.prepend = read_prepend(in);
    if (in.flag("split", true))
        if (auto where = kept(in, pattern::literal(step.replacement)))
            step.split = splitter{std::move(*where), match_rule::merged_with_next, false};
    steps.push_back(std::move(step));
}

// Calls `read` for each element of a Sequence's list.
template <class Read>
void read_sequence(const component_reader &in, const char *key, int depth, Read read) {
    if (depth == sequence_depth_max)
        return in.refuse(format("sequences deeper than {}", sequence_depth_max));
    for (const component_reader &element : in.list(key)) {
        if (in.failed()) return;
        read(element);
    }
}

void read_normalizer(const component_reader &in, int depth, std::vector<normalizer_step> &steps) {
    using kind = normalizer_step::kind;
    const std::string type = in.type({"Sequence", "NFC", "NFD", "NFKC", "NFKD", "Lowercase",
                                      "Prepend", "Replace", "Strip", "StripAccents", "ByteLevel"});
    if (type == "Sequence")
        return read_sequence(in, "normalizers", depth, [&](const component_reader &element) {
            read_normalizer(element, depth + 1, steps);
        });
    normalizer_step step;
    if (type == "NFC" || type == "NFD" || type == "NFKC" || type == "NFKD") {
        const bool compose = type.back() == 'C', compatible = type.size() == 4;
        step.form = compose      ? compatible ? normal_form::nfkc : normal_form::nfc
                    : compatible ? normal_form::nfkd
                                 : normal_form::nfd;
    } else if (type == "Lowercase") {
        step.what = kind::lower_case;
    } else if (type == "Prepend") {
        step.what = kind::prepend;
        step.content = in.text("prepend");
    } else if (type == "Replace") {
        step.what = kind::replace;
        step.where = read_pattern(in);
        step.content = replacement_text(in);
    } else if (type == "Strip") {
        step.what = kind::strip;
        step.left = in.flag("strip_left", true);
        step.right = in.flag("strip_right", true);
    } else if (type == "StripAccents") {
        step.what = kind::strip_accents;
    } else {
        step.what = kind::byte_level;
    }
    steps.push_back(std::move(step));
}

void read_pre_tokenizer(const component_reader &in, int depth, std::vector<word_step> &steps) {
    const std::string type =
        in.type({"Sequence", "ByteLevel", "Split", "Metaspace", "Digits", "Punctuation",
                 "Whitespace", "WhitespaceSplit", "CharDelimiterSplit"});
    if (type == "Sequence")
        return read_sequence(in, "pretokenizers", depth, [&](const component_reader &element) {
            read_pre_tokenizer(element, depth + 1, steps);
        });
    if (type == "ByteLevel") return read_byte_level(in, steps);
    if (type == "Split") return read_split(in, steps);
    if (type == "Metaspace") return read_metaspace(in, steps);
    if (type == "Digits")
        return add_split(
            in, R"(\p{N})",
            in.flag("individual_digits", false) ? match_rule::isolated : match_rule::contiguous,
            false, steps);
    if (type == "Punctuation") {
        // A missing behavior means Isolated, the first of this list.
        constexpr match_rule rules[] = {match_rule::isolated, match_rule::removed,
                                        match_rule::merged_with_previous,
                                        match_rule::merged_with_next, match_rule::contiguous};
        const uint32_t rule = in.choice("behavior", {"Isolated", "Removed", "MergedWithPrevious",
                                                     "MergedWithNext", "Contiguous"});
        return add_split(in, R"([\p{P}$+<=>^`|~])", rules[rule], false, steps);
    }
    if (type == "Whitespace")
        return add_split(in, words_or_signs, match_rule::removed, /*invert=*/true, steps);
    if (type == "WhitespaceSplit") return add_split(in, R"(\s)", match_rule::removed, false, steps);
    word_step step;
    std::string delimiter;
    append_character(delimiter, in.character("delimiter"));
    if (auto where = kept(in, pattern::literal(delimiter)))
        step.split = splitter{std::move(*where), match_rule::removed, false};
    steps.push_back(std::move(step));
}

void read_decoder(const component_reader &in, int depth, std::vector<decoder_step> &steps) {
    using kind = decoder_step::kind;
    const std::string type =
        in.type({"Sequence", "ByteLevel", "Metaspace", "ByteFallback", "Fuse", "Replace", "Strip"});
    if (type == "Sequence")
        return read_sequence(in, "decoders", depth, [&](const component_reader &element) {
            read_decoder(element, depth + 1, steps);
        });
    decoder_step step;
    if (type == "ByteLevel") {
        step.what = kind::byte_level;
    } else if (type == "Metaspace") {
        step.what = kind::metaspace;
        step.character = in.character("replacement");
        step.prepended = read_prepend(in) != prepend_rule::never;
    } else if (type == "ByteFallback") {
        step.what = kind::byte_fallback;
    } else if (type == "Replace") {
        step.what = kind::replace;
        if (auto where = read_pattern(in))
            step.where = std::make_shared<const pattern>(std::move(*where));
        step.content = replacement_text(in);
    } else if (type == "Strip") {
        step.what = kind::strip;
        step.character = in.character("content");
        step.start = in.number("start", 0);
        step.stop = in.number("stop", 0);
    }
    steps.push_back(std::move(step));
}

// Reads the template of a single text: special tokens around $A.
void read_template(const component_reader &in, uint32_t size, text_frame &frame) {
    std::vector<int32_t> sides[2];
    int side = 0;
    for (const component_reader &piece : in.list("single")) {
        if (in.failed()) return;
        if (piece.find("Sequence")) {
            if (piece.object("Sequence").text("id") != "A" || side == 1)
                return piece.refuse("the template of a single text has to name \"A\" once");
            side = 1;
            continue;
        }
        const std::string id = piece.object("SpecialToken").text("id");
        if (in.failed()) return;
        const component_reader token = in.object("special_tokens").object(id.c_str());
        const tokenizer_json *ids = token.find("ids");
        if (!ids || !ids->is_array()) return token.refuse("ids has to be a list");
        for (const tokenizer_json &one : *ids) {
            if (!one.is_number_unsigned() || one.get<uint64_t>() >= size)
                return token.refuse(format("ids have to be whole numbers below {}", size));
            sides[side].push_back(one.get<int32_t>());
        }
    }
    if (side == 0 && !in.failed())
        return in.refuse("the template of a single text has to name \"A\" once");
    frame.prefix.insert(frame.prefix.begin(), sides[0].begin(), sides[0].end());
    frame.suffix.insert(frame.suffix.end(), sides[1].begin(), sides[1].end());
}

void read_post_processor(const component_reader &in, uint32_t size, int depth, text_frame &frame) {
    const std::string type = in.type({"Sequence", "TemplateProcessing", "ByteLevel"});
    if (type == "Sequence")
        read_sequence(in, "processors", depth, [&](const component_reader &element) {
            read_post_processor(element, size, depth + 1, frame);
        });
    else if (type == "TemplateProcessing")
        read_template(in, size, frame);
    // ByteLevel trims offsets, which are not needed here.
}

}  // namespace

void read_normalizer(const component_reader &in, std::vector<normalizer_step> &steps) {
    read_normalizer(in, 0, steps);
}
void read_pre_tokenizer(const component_reader &in, std::vector<word_step> &steps) {
    read_pre_tokenizer(in, 0, steps);
}
void read_decoder(const component_reader &in, std::vector<decoder_step> &steps) {
    read_decoder(in, 0, steps);
}
void read_post_processor(const component_reader &in, uint32_t size, text_frame &frame) {
    read_post_processor(in, size, 0, frame);
}

}  // namespace moorage::core
