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

std::vector<std::pair<std::string, uint32_t>> read_vocabulary(const component_reader &in) {
    std::vector<std::pair<std::string, uint32_t>> entries;
    const tokenizer_json *held = in.find("vocab");
    if (!held || !held->is_object()) {
        in.refuse("vocab has to be an object of tokens and ids");
        return entries;
    }
    entries.reserve(held->size());
    for (const auto &[token, id] : held->items()) {
        if (!id.is_number_unsigned() || id.get<uint64_t>() >= id_limit) {
            in.refuse(format("vocab: the id of \"{}\" has to be a whole number below {}", token,
                             id_limit));
            return entries;
        }
        entries.emplace_back(token, id.get<uint32_t>());
    }
    return entries;
}

// ["a", "b"] or, in older files, "a b".
std::optional<std::pair<std::string, std::string>> read_merge(const tokenizer_json &held) {
    if (held.is_array()) {
        if (held.size() != 2 || !held[0].is_string() || !held[1].is_string()) return std::nullopt;
        return std::pair{held[0].get<std::string>(), held[1].get<std::string>()};
    }
    if (!held.is_string()) return std::nullopt;
    const auto &text = held.get_ref<const std::string &>();
    const size_t space = text.find(' ');
    if (space == text.npos || text.find(' ', space + 1) != text.npos) return std::nullopt;
    return std::pair{text.substr(0, space), text.substr(space + 1)};
}

bpe::merge_list read_merges(const component_reader &in) {
    bpe::merge_list merges;
    const tokenizer_json *held = in.find("merges");
    if (!held || !held->is_array()) {
        in.refuse("merges has to be a list");
        return merges;
    }
    merges.reserve(held->size());
    for (const tokenizer_json &one : *held) {
        if (one.is_string() && one.get_ref<const std::string &>().starts_with("#version")) continue;
        auto merge = read_merge(one);
        if (!merge) {
            in.refuse(format("merges[{}] is neither [\"a\", \"b\"] nor \"a b\"", merges.size()));
            return merges;
        }
        merges.push_back(std::move(*merge));
    }
    return merges;
}

std::optional<bpe> read_model(const component_reader &in) {
    if (in.find("type"))
        in.type({"BPE"});
    else if (!in.find("merges"))
        in.refuse("type is missing");
    for (const char *key : {"continuing_subword_prefix", "end_of_word_suffix"})
        if (!in.text(key, "").empty()) in.refuse(format("{} is not supported", key));
    if (const auto *dropout = in.find("dropout"); dropout && *dropout != 0)
        in.refuse("dropout is not supported: the same text has to give the same ids");
    bpe_rules rules;
    rules.unknown_token = in.text("unk_token", "");
    rules.fuse_unknown = in.flag("fuse_unk", false);
    rules.byte_fallback = in.flag("byte_fallback", false);
    rules.ignore_merges = in.flag("ignore_merges", false);
    auto entries = read_vocabulary(in);
    const bpe::merge_list merges = in.failed() ? bpe::merge_list{} : read_merges(in);
    if (in.failed()) return std::nullopt;
    result<vocabulary> words = vocabulary::make(std::move(entries));
    if (!words) {
        in.refuse("vocab: " + words.failure().text);
        return std::nullopt;
    }
    result<bpe> made = bpe::make(std::move(words).value(), merges, std::move(rules));
    if (!made) {
        in.refuse(made.failure().text);
        return std::nullopt;
    }
    warn_of_hidden(*made, in.place());
    return std::move(made).value();
}

added_token read_added_token(const component_reader &in) {
    added_token token;
    token.content = in.text("content");
    const tokenizer_json *id = in.find("id");
    if (!id || !id->is_number_unsigned() || id->get<uint64_t>() >= id_limit)
        in.refuse(format("id has to be a whole number below {}", id_limit));
    else
        token.id = id->get<int32_t>();
    token.single_word = in.flag("single_word", false);
    token.strip_left = in.flag("lstrip", false);
    token.strip_right = in.flag("rstrip", false);
    token.special = in.flag("special", false);
    token.normalized = in.flag("normalized", !token.special);
    return token;
}

// Registers a token. As in the reference, it keeps the vocabulary's id if it has one.
void add_token(const component_reader &in, added_token token, tokenizer_parts &to) {
    if (token.content.empty() || to.added_ids.contains(token.content)) return;
    if (const int32_t id = to.model.words().id_of(token.content);
        id >= 0 && static_cast<uint32_t>(id) < to.model.tokens())
        token.id = id;
    const std::string *other = to.model.words().token_of(token.id);
    const auto same_id = to.added.find(token.id);
    if (same_id != to.added.end()) other = &same_id->second.content;
    if (other && *other != token.content)
        return in.refuse(format("\"{}\" has the id {} of \"{}\"", token.content, token.id, *other));
    std::string text = token.content;
    if (token.normalized) {
        result<std::string> done = normalize(to.normalizers, std::move(text));
        if (!done) return in.refuse(done.failure().text);
        text = std::move(done).value();
    }
    if (!text.empty()) (token.normalized ? to.added_normalized : to.added_raw).add(text, token);
    to.size = std::max(to.size, static_cast<uint32_t>(token.id) + 1);
    to.added_ids.emplace(token.content, token.id);
    to.added.emplace(token.id, std::move(token));
}

void read_added_tokens(const component_reader &in, tokenizer_parts &to) {
    // Special tokens are searched first: of two with the same text, only one is found.
    std::vector<std::pair<component_reader, added_token>> tokens;
    for (const component_reader &element : in.list("added_tokens"))
        tokens.emplace_back(element, read_added_token(element));
    for (const bool special : {true, false})
        for (auto &[element, token] : tokens)
            if (!in.failed() && token.special == special) add_token(element, token, to);
}

// `place`: within `name`, empty for the file itself. `made`: the model; none: the file has it.
std::optional<tokenizer_parts> read_parts(const tokenizer_json &root, const std::string &name,
                                          std::optional<bpe> made, std::optional<error> &problem) {
    const component_reader in(root, name, problem);
    const auto part = [&](const char *key) -> std::optional<component_reader> {
        if (problem || !in.find(key)) return std::nullopt;
        return component_reader(*in.find(key), format("{}: {}", name, key), problem);
    };
    const auto model = part("model");
    if (!model && !made) {
        in.refuse("model is missing");
        return std::nullopt;
    }
    if (!made)
        if (std::optional<bpe> read = read_model(*model)) made.emplace(std::move(*read));
    if (!made) return std::nullopt;
    tokenizer_parts parts{.name = name, .model = std::move(*made)};
    parts.size = parts.model.tokens();
    if (const auto held = part("normalizer")) read_normalizer(*held, parts.normalizers);
    if (!problem && in.find("added_tokens")) read_added_tokens(in, parts);
    if (const auto held = part("pre_tokenizer")) read_pre_tokenizer(*held, parts.word_steps);
    text_frame frame;
    if (const auto held = part("post_processor")) read_post_processor(*held, parts.size, frame);
    parts.prefix = std::move(frame.prefix);
    parts.suffix = std::move(frame.suffix);
    if (const auto held = part("decoder")) read_decoder(*held, parts.decoders);
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
