// tokenizer_file.cpp - reads tokenizer.json from top to bottom: vocabulary, merges, added tokens,
// components.
#include <algorithm>
#include <utility>

#include "core/base/json.h"
#include "core/base/safetensors.h"
#include "core/base/text.h"
#include "core/model/tokenizer_components.h"
#include "core/model/tokenizer_parts.h"

namespace moorage::core {

namespace {

constexpr uint32_t id_limit = vocabulary::ids_max;

std::vector<std::pair<std::string, uint32_t>> read_vocabulary(const component_reader &reader) {
    std::vector<std::pair<std::string, uint32_t>> entries;
    const tokenizer_json *words = reader.find("vocab");
    if (!words || !words->is_object()) {
        reader.refuse("vocab has to be an object of tokens and ids");
        return entries;
    }
    entries.reserve(words->size());
    for (const auto &[token, id] : words->items()) {
        if (!id.is_number_unsigned() || id.get<uint64_t>() >= id_limit) {
            reader.refuse(format("vocab: the id of \"{}\" has to be a whole number below {}", token,
                                 id_limit));
            return entries;
        }
        entries.emplace_back(token, id.get<uint32_t>());
    }
    return entries;
}

// ["a", "b"] or, in older files, "a b".
std::optional<std::pair<std::string, std::string>> read_merge(const tokenizer_json &element) {
    if (element.is_array()) {
        if (element.size() != 2 || !element[0].is_string() || !element[1].is_string())
            return std::nullopt;
        return std::pair{element[0].get<std::string>(), element[1].get<std::string>()};
    }
    if (!element.is_string()) return std::nullopt;
    const auto &text = element.get_ref<const std::string &>();
    const size_t space = text.find(' ');
    if (space == text.npos || text.find(' ', space + 1) != text.npos) return std::nullopt;
    return std::pair{text.substr(0, space), text.substr(space + 1)};
}

bpe::merge_list read_merges(const component_reader &reader) {
    bpe::merge_list merges;
    const tokenizer_json *list = reader.find("merges");
    if (!list || !list->is_array()) {
        reader.refuse("merges has to be a list");
        return merges;
    }
    merges.reserve(list->size());
    for (const tokenizer_json &element : *list) {
        if (element.is_string() && element.get_ref<const std::string &>().starts_with("#version"))
            continue;
        auto merge = read_merge(element);
        if (!merge) {
            reader.refuse(
                format("merges[{}] is neither [\"a\", \"b\"] nor \"a b\"", merges.size()));
            return merges;
        }
        merges.push_back(std::move(*merge));
    }
    return merges;
}

std::optional<bpe> read_model(const component_reader &reader) {
    if (reader.find("type"))
        reader.type({"BPE"});
    else if (!reader.find("merges"))
        reader.refuse("type is missing");
    for (const char *key : {"continuing_subword_prefix", "end_of_word_suffix"})
        if (!reader.text(key, "").empty()) reader.refuse(format("{} is not supported", key));
    if (const auto *dropout = reader.find("dropout"); dropout && *dropout != 0)
        reader.refuse("dropout is not supported: the same text has to give the same ids");
    bpe_rules rules;
    rules.unknown_token = reader.text("unk_token", "");
    rules.fuse_unknown = reader.flag("fuse_unk", false);
    rules.byte_fallback = reader.flag("byte_fallback", false);
    rules.ignore_merges = reader.flag("ignore_merges", false);
    auto entries = read_vocabulary(reader);
    const bpe::merge_list merges = reader.failed() ? bpe::merge_list{} : read_merges(reader);
    if (reader.failed()) return std::nullopt;
    result<vocabulary> words = vocabulary::make(std::move(entries));
    if (!words) {
        reader.refuse("vocab: " + words.failure().text);
        return std::nullopt;
    }
    result<bpe> model = bpe::make(std::move(words).value(), merges, std::move(rules));
    if (!model) {
        reader.refuse(model.failure().text);
        return std::nullopt;
    }
    warn_of_hidden(*model, reader.place());
    return std::move(model).value();
}

added_token read_added_token(const component_reader &reader) {
    added_token token;
    token.content = reader.text("content");
    const tokenizer_json *id = reader.find("id");
    if (!id || !id->is_number_unsigned() || id->get<uint64_t>() >= id_limit)
        reader.refuse(format("id has to be a whole number below {}", id_limit));
    else
        token.id = id->get<int32_t>();
    token.single_word = reader.flag("single_word", false);
    token.strip_left = reader.flag("lstrip", false);
    token.strip_right = reader.flag("rstrip", false);
    token.special = reader.flag("special", false);
    token.normalized = reader.flag("normalized", !token.special);
    return token;
}

// Registers a token. As in the reference, it keeps the vocabulary's id if it has one.
void add_token(const component_reader &reader, added_token token, tokenizer_parts &parts) {
    if (token.content.empty() || parts.added_ids.contains(token.content)) return;
    if (const int32_t id = parts.model.words().id_of(token.content);
        id >= 0 && static_cast<uint32_t>(id) < parts.model.tokens())
        token.id = id;
    const std::string *existing = parts.model.words().token_of(token.id);
    const auto same_id = parts.added.find(token.id);
    if (same_id != parts.added.end()) existing = &same_id->second.content;
    if (existing && *existing != token.content)
        return reader.refuse(
            format("\"{}\" has the id {} of \"{}\"", token.content, token.id, *existing));
    std::string text = token.content;
    if (token.normalized) {
        result<std::string> done = normalize(parts.normalizers, std::move(text));
        if (!done) return reader.refuse(done.failure().text);
        text = std::move(done).value();
    }
    if (!text.empty())
        (token.normalized ? parts.added_normalized : parts.added_raw).add(text, token);
    parts.size = std::max(parts.size, static_cast<uint32_t>(token.id) + 1);
    parts.added_ids.emplace(token.content, token.id);
    parts.added.emplace(token.id, std::move(token));
}

void read_added_tokens(const component_reader &reader, tokenizer_parts &parts) {
    // Special tokens are searched first: of two with the same text, only one is found.
    std::vector<std::pair<component_reader, added_token>> tokens;
    for (const component_reader &element : reader.list("added_tokens"))
        tokens.emplace_back(element, read_added_token(element));
    for (const bool special : {true, false})
        for (auto &[element, token] : tokens)
            if (!reader.failed() && token.special == special) add_token(element, token, parts);
}

// `place`: within `name`, empty for the file itself. `model`: the model; none: the file has it.
std::optional<tokenizer_parts> read_parts(const tokenizer_json &root, const std::string &name,
                                          std::optional<bpe> model, std::optional<error> &problem) {
    const component_reader reader(root, name, problem);
    const auto part_reader = [&](const char *key) -> std::optional<component_reader> {
        if (problem || !reader.find(key)) return std::nullopt;
        return component_reader(*reader.find(key), format("{}: {}", name, key), problem);
    };
    const auto model_reader = part_reader("model");
    if (!model_reader && !model) {
        reader.refuse("model is missing");
        return std::nullopt;
    }
    if (!model)
        if (std::optional<bpe> read = read_model(*model_reader)) model.emplace(std::move(*read));
    if (!model) return std::nullopt;
    tokenizer_parts parts{.name = name, .model = std::move(*model)};
    parts.size = parts.model.tokens();
    if (const auto held = part_reader("normalizer")) read_normalizer(*held, parts.normalizers);
    if (!problem && reader.find("added_tokens")) read_added_tokens(reader, parts);
    if (const auto held = part_reader("pre_tokenizer")) read_pre_tokenizer(*held, parts.word_steps);
    text_frame frame;
    if (const auto held = part_reader("post_processor"))
        read_post_processor(*held, parts.size, frame);
    parts.prefix = std::move(frame.prefix);
    parts.suffix = std::move(frame.suffix);
    if (const auto held = part_reader("decoder")) read_decoder(*held, parts.decoders);
    if (problem) return std::nullopt;
    return parts;
}

}  // namespace

result<tokenizer_parts> parse_tokenizer(std::string_view text, const std::string &name) {
    const result<tokenizer_json> root = read_json_as<tokenizer_json>(text);
    if (!root) return error{format("{}: not valid JSON: {}", name, root.failure().text)};
    std::optional<error> problem;
    std::optional<tokenizer_parts> parts = read_parts(*root, name, std::nullopt, problem);
    if (problem) return *problem;
    return std::move(*parts);
}

result<tokenizer_parts> make_tokenizer(const tokenizer_json &root, const std::string &name,
                                       bpe model) {
    std::optional<error> problem;
    std::optional<tokenizer_parts> parts = read_parts(root, name, std::move(model), problem);
    if (problem) return *problem;
    return std::move(*parts);
}

}  // namespace moorage::core
