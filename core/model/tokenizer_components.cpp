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
std::optional<pattern> keep_pattern(const component_reader &reader, result<pattern> compiled) {
    if (compiled) return std::move(compiled).value();
    reader.refuse(compiled.failure().text);
    return std::nullopt;
}

// {"String": text} or {"Regex": text}.
std::optional<pattern> read_pattern(const component_reader &reader) {
    const component_reader pattern_reader = reader.object("pattern");
    if (pattern_reader.failed()) return std::nullopt;
    if (pattern_reader.find("String"))
        return keep_pattern(pattern_reader, pattern::literal(pattern_reader.text("String")));
    return keep_pattern(pattern_reader, pattern::regex(pattern_reader.text("Regex")));
}

// Refuses $1 in the replacement text of a regular expression. Releases of the reference differ on
// whether it is a group.
std::string replacement_text(const component_reader &reader) {
    std::string content = reader.text("content");
    const tokenizer_json *held = reader.find("pattern");
    if (held && held->is_object() && held->contains("Regex") && content.find('$') != content.npos)
        reader.refuse("content with $ beside a Regex is not supported");
    return content;
}

void add_split(const component_reader &reader, const char *text, match_rule rule, bool invert,
               std::vector<word_step> &steps) {
    word_step step;
    if (auto compiled = keep_pattern(reader, pattern::regex(text)))
        step.split = splitter{std::move(*compiled), rule, invert};
    steps.push_back(std::move(step));
}

void read_split(const component_reader &reader, std::vector<word_step> &steps) {
    word_step step;
    auto compiled = read_pattern(reader);
    if (!reader.find("behavior")) reader.refuse("behavior is missing");
    const uint32_t rule = reader.choice(
        "behavior", {"Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"});
    const bool invert = reader.flag("invert", false);
    if (compiled)
        step.split = splitter{std::move(*compiled), static_cast<match_rule>(rule), invert};
    steps.push_back(std::move(step));
}

void read_byte_level(const component_reader &reader, std::vector<word_step> &steps) {
    word_step step;
    step.operation = word_step::kind::byte_level;
    step.prefix_space = reader.flag("add_prefix_space", true);
    if (reader.flag("use_regex", true))
        if (auto compiled = keep_pattern(reader, pattern::regex(word_pattern)))
            step.split = splitter{std::move(*compiled), match_rule::isolated, false};
    steps.push_back(std::move(step));
}

// Old files have add_prefix_space, new ones prepend_scheme.
prepend_rule read_prepend(const component_reader &reader) {
    const auto rule =
        static_cast<prepend_rule>(reader.choice("prepend_scheme", {"always", "first", "never"}));
    if (reader.flag("add_prefix_space", true)) return rule;
    if (reader.find("prepend_scheme") && rule != prepend_rule::never)
        reader.refuse("add_prefix_space is false, but prepend_scheme is not \"never\"");
    return prepend_rule::never;
}

void read_metaspace(const component_reader &reader, std::vector<word_step> &steps) {
    word_step step;
    step.operation = word_step::kind::metaspace;
    append_character(step.replacement, reader.character("replacement"));
    step.prepend = read_prepend(reader);
    if (reader.flag("split", true))
        if (auto compiled = keep_pattern(reader, pattern::literal(step.replacement)))
            step.split = splitter{std::move(*compiled), match_rule::merged_with_next, false};
    steps.push_back(std::move(step));
}

// Calls `read` for each element of a Sequence's list.
template <class Read>
void read_sequence(const component_reader &reader, const char *key, int depth, Read read) {
    if (depth == sequence_depth_max)
        return reader.refuse(format("sequences deeper than {}", sequence_depth_max));
    for (const component_reader &element : reader.list(key)) {
        if (reader.failed()) return;
        read(element);
    }
}

void read_normalizer(const component_reader &reader, int depth,
                     std::vector<normalizer_step> &steps) {
    using kind = normalizer_step::kind;
    const std::string type =
        reader.type({"Sequence", "NFC", "NFD", "NFKC", "NFKD", "Lowercase", "Prepend", "Replace",
                     "Strip", "StripAccents", "ByteLevel"});
    if (type == "Sequence")
        return read_sequence(reader, "normalizers", depth, [&](const component_reader &element) {
            read_normalizer(element, depth + 1, steps);
        });
    normalizer_step step;
    if (type == "NFC" || type == "NFD" || type == "NFKC" || type == "NFKD") {
        const bool compose = type.back() == 'C', compatible = type.size() == 4;
        step.form = compose      ? compatible ? normal_form::nfkc : normal_form::nfc
                    : compatible ? normal_form::nfkd
                                 : normal_form::nfd;
    } else if (type == "Lowercase") {
        step.operation = kind::lower_case;
    } else if (type == "Prepend") {
        step.operation = kind::prepend;
        step.content = reader.text("prepend");
    } else if (type == "Replace") {
        step.operation = kind::replace;
        step.match_pattern = read_pattern(reader);
        step.content = replacement_text(reader);
    } else if (type == "Strip") {
        step.operation = kind::strip;
        step.left = reader.flag("strip_left", true);
        step.right = reader.flag("strip_right", true);
    } else if (type == "StripAccents") {
        step.operation = kind::strip_accents;
    } else {
        step.operation = kind::byte_level;
    }
    steps.push_back(std::move(step));
}

void read_pre_tokenizer(const component_reader &reader, int depth, std::vector<word_step> &steps) {
    const std::string type =
        reader.type({"Sequence", "ByteLevel", "Split", "Metaspace", "Digits", "Punctuation",
                     "Whitespace", "WhitespaceSplit", "CharDelimiterSplit"});
    if (type == "Sequence")
        return read_sequence(reader, "pretokenizers", depth, [&](const component_reader &element) {
            read_pre_tokenizer(element, depth + 1, steps);
        });
    if (type == "ByteLevel") return read_byte_level(reader, steps);
    if (type == "Split") return read_split(reader, steps);
    if (type == "Metaspace") return read_metaspace(reader, steps);
    if (type == "Digits")
        return add_split(
            reader, R"(\p{N})",
            reader.flag("individual_digits", false) ? match_rule::isolated : match_rule::contiguous,
            false, steps);
    if (type == "Punctuation") {
        // A missing behavior means Isolated, the first of this list.
        constexpr match_rule rules[] = {match_rule::isolated, match_rule::removed,
                                        match_rule::merged_with_previous,
                                        match_rule::merged_with_next, match_rule::contiguous};
        const uint32_t rule = reader.choice(
            "behavior",
            {"Isolated", "Removed", "MergedWithPrevious", "MergedWithNext", "Contiguous"});
        return add_split(reader, R"([\p{P}$+<=>^`|~])", rules[rule], false, steps);
    }
    if (type == "Whitespace")
        return add_split(reader, words_or_signs, match_rule::removed, /*invert=*/true, steps);
    if (type == "WhitespaceSplit")
        return add_split(reader, R"(\s)", match_rule::removed, false, steps);
    word_step step;
    std::string delimiter;
    append_character(delimiter, reader.character("delimiter"));
    if (auto compiled = keep_pattern(reader, pattern::literal(delimiter)))
        step.split = splitter{std::move(*compiled), match_rule::removed, false};
    steps.push_back(std::move(step));
}

void read_decoder(const component_reader &reader, int depth, std::vector<decoder_step> &steps) {
    using kind = decoder_step::kind;
    const std::string type = reader.type(
        {"Sequence", "ByteLevel", "Metaspace", "ByteFallback", "Fuse", "Replace", "Strip"});
    if (type == "Sequence")
        return read_sequence(reader, "decoders", depth, [&](const component_reader &element) {
            read_decoder(element, depth + 1, steps);
        });
    decoder_step step;
    if (type == "ByteLevel") {
        step.operation = kind::byte_level;
    } else if (type == "Metaspace") {
        step.operation = kind::metaspace;
        step.character = reader.character("replacement");
        step.prepended = read_prepend(reader) != prepend_rule::never;
    } else if (type == "ByteFallback") {
        step.operation = kind::byte_fallback;
    } else if (type == "Replace") {
        step.operation = kind::replace;
        if (auto compiled = read_pattern(reader))
            step.match_pattern = std::make_shared<const pattern>(std::move(*compiled));
        step.content = replacement_text(reader);
    } else if (type == "Strip") {
        step.operation = kind::strip;
        step.character = reader.character("content");
        step.start = reader.number("start", 0);
        step.stop = reader.number("stop", 0);
    }
    steps.push_back(std::move(step));
}

// Reads the template of a single text: special tokens around $A.
void read_template(const component_reader &reader, uint32_t size, text_frame &frame) {
    std::vector<int32_t> sides[2];
    int side = 0;
    for (const component_reader &piece : reader.list("single")) {
        if (reader.failed()) return;
        if (piece.find("Sequence")) {
            if (piece.object("Sequence").text("id") != "A" || side == 1)
                return piece.refuse("the template of a single text has to name \"A\" once");
            side = 1;
            continue;
        }
        const std::string id = piece.object("SpecialToken").text("id");
        if (reader.failed()) return;
        const component_reader token = reader.object("special_tokens").object(id.c_str());
        const tokenizer_json *ids = token.find("ids");
        if (!ids || !ids->is_array()) return token.refuse("ids has to be a list");
        for (const tokenizer_json &element : *ids) {
            if (!element.is_number_unsigned() || element.get<uint64_t>() >= size)
                return token.refuse(format("ids have to be whole numbers below {}", size));
            sides[side].push_back(element.get<int32_t>());
        }
    }
    if (side == 0 && !reader.failed())
        return reader.refuse("the template of a single text has to name \"A\" once");
    frame.prefix.insert(frame.prefix.begin(), sides[0].begin(), sides[0].end());
    frame.suffix.insert(frame.suffix.end(), sides[1].begin(), sides[1].end());
}

void read_post_processor(const component_reader &reader, uint32_t size, int depth,
                         text_frame &frame) {
    const std::string type = reader.type({"Sequence", "TemplateProcessing", "ByteLevel"});
    if (type == "Sequence")
        read_sequence(reader, "processors", depth, [&](const component_reader &element) {
            read_post_processor(element, size, depth + 1, frame);
        });
    else if (type == "TemplateProcessing")
        read_template(reader, size, frame);
    // ByteLevel trims offsets, which are not needed here.
}

}  // namespace

void read_normalizer(const component_reader &reader, std::vector<normalizer_step> &steps) {
    read_normalizer(reader, 0, steps);
}
void read_pre_tokenizer(const component_reader &reader, std::vector<word_step> &steps) {
    read_pre_tokenizer(reader, 0, steps);
}
void read_decoder(const component_reader &reader, std::vector<decoder_step> &steps) {
    read_decoder(reader, 0, steps);
}
void read_post_processor(const component_reader &reader, uint32_t size, text_frame &frame) {
    read_post_processor(reader, size, 0, frame);
}

}  // namespace moorage::core
