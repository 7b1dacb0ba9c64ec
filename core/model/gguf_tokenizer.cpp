// gguf_tokenizer.cpp - translates the tokenizer of a GGUF file into the terms of a tokenizer.json.
//
// The names of pre-tokenizers and their patterns are those of llama.cpp (src/llama-vocab.cpp).
#include "core/model/gguf_tokenizer.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <numeric>
#include <unordered_set>
#include <utility>

#include "core/base/json.h"
#include "core/base/safetensors.h"
#include "core/base/text.h"
#include "core/model/gguf_reader.h"
#include "core/model/tokenizer_parts.h"
#include "core/model/tokenizer_reader.h"
#include "core/model/unicode.h"

namespace moorage::core {

namespace {

enum token_kind : uint8_t { normal = 1, unknown, control, user_defined, unused, byte };

// Parts of the patterns.
#define MOORAGE_ENDINGS "(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])"
#define MOORAGE_LINES R"(\s*[\r\n]+|\s+(?!\S)|\s+)"
constexpr const char *gpt2_words =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S))";
constexpr const char *llama3_words = MOORAGE_ENDINGS
    R"(|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|)" MOORAGE_LINES;
constexpr const char *qwen2_words =
    MOORAGE_ENDINGS R"(|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|)" MOORAGE_LINES;
constexpr const char *gpt4o_words =
    R"([^\r\n\p{L}\p{N}]?((?=[\p{L}])([^a-z]))*((?=[\p{L}])([^A-Z]))+)" MOORAGE_ENDINGS
    R"(?|[^\r\n\p{L}\p{N}]?((?=[\p{L}])([^a-z]))+((?=[\p{L}])([^A-Z]))*)" MOORAGE_ENDINGS
    R"(?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|)" MOORAGE_LINES;
constexpr const char *tekken_words =
    R"([^\r\n\p{L}\p{N}]?((?=[\p{L}])([^a-z]))*((?=[\p{L}])([^A-Z]))+)"
    R"(|[^\r\n\p{L}\p{N}]?((?=[\p{L}])([^a-z]))+((?=[\p{L}])([^A-Z]))*)"
    R"(|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|)" MOORAGE_LINES;
#undef MOORAGE_ENDINGS
#undef MOORAGE_LINES
// Letters with upper and lower case, as DeepSeek-V2 lists them.
constexpr const char *deepseek_letters =
    "\\s?["
    "A-Za-z\u00B5\u00C0-\u00D6\u00D8-\u00F6\u00F8-\u01BA\u01BC-\u01BF\u01C4-\u0293\u0295-"
    "\u02AF\u0370-\u0373\u0376\u0377\u037B-\u037D\u037F\u0386\u0388-\u038A\u038C\u038E-"
    "\u03A1\u03A3-\u03F5\u03F7-\u0481\u048A-\u052F\u0531-\u0556\u10A0-\u10C5\u13A0-\u13F5"
    "\u13F8-\u13FD\u1C90-\u1CBA\u1CBD-\u1CBF\u1D00-\u1D2B\u1D6B-\u1D77\u1D79-\u1D9A\u1E00"
    "-\u1F15\u1F18-\u1F1D\u1F20-\u1F45\u1F48-\u1F4D\u1F50-\u1F57\u1F59\u1F5B\u1F5D\u1F5F-"
    "\u1F7D\u1F80-\u1FB4\u1FB6-\u1FBC\u1FBE\u1FC2-\u1FC4\u1FC6-\u1FCC\u1FD0-\u1FD3\u1FD6-"
    "\u1FDB\u1FE0-\u1FEC\u1FF2-\u1FF4\u1FF6-\u1FFC\u2102\u2107\u210A-\u2113\u2115\u2119-"
    "\u211D\u2124\u2126\u2128\u212A-\u212D\u212F-\u2134\u2139\u213C-\u213F\u2145-\u2149"
    "\u214E\u2183\u2184\u2C00-\u2C7B\u2C7E-\u2CE4\u2CEB-\u2CEE\u2CF2\u2CF3\uA640-\uA66D"
    "\uA680-\uA69B\uA722-\uA76F\uA771-\uA787\uA78B-\uA78E\uAB70-\uABBF\uFB00-\uFB06\uFB13"
    "-\uFB17\uFF21-\uFF3A\uFF41-\uFF5A\U00010400-\U0001044F\U000104B0-\U000104D3"
    "\U000104D8-\U000104FB\U00010C80-\U00010CB2\U00010CC0-\U00010CF2\U000118A0-\U000118DF"
    "\U0001E900-\U0001E943"
    "]+";
constexpr const char *deepseek_signs =
    "\\s?[!-/:-~\uFF01-\uFF0F\uFF1A-\uFF5E\u2018-\u201F\u3000-\u3002]+";
constexpr const char *deepseek_han = "[\u4E00-\u9FA5\u0800-\u4E00\uAC00-\uD7FF]+";
constexpr const char *deepseek3_words =
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+)"
    R"(| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

struct pre_tokenizer {
    const char *names;  // separated by spaces
    std::vector<const char *> patterns;
    bool keeps_whole_words = false;  // a word that is itself a token is not split
    bool adds_begin_token = false;   // a text begins with the begin token, if no key says otherwise
};
const std::vector<pre_tokenizer> &pre_tokenizers() {
    static const std::vector<pre_tokenizer> table = {
        {" default ", {R"([\p{P}\$\+<=>\^~\|]+)", gpt2_words, R"(\p{N}+)", "[0-9][0-9][0-9]"}},
        {" llama3 llama-v3 llama-bpe falcon3 falcon-h1 pixtral midm-2.0 lfm2 ",
         {llama3_words},
         true,
         true},
        {" dbrx smaug-bpe glm4 chatglm-bpe ", {llama3_words}},
        {" qwen2 deepseek-r1-qwen stablelm2 hunyuan megrez solar-open ", {qwen2_words}},
        {" gpt-2 phi-2 jina-es jina-de gigachat jina-v2-es jina-v2-de a.x-4.0 mellum mpt olmo jais "
         "trillion granite-docling roberta-bpe ",
         {gpt2_words}},
        {" starcoder refact command-r smollm codeshell exaone minerva-7b ",
         {R"(\p{N})", gpt2_words}},
        {" falcon ", {R"([\p{P}\$\+<=>\^~\|`]+)", gpt2_words, "[0-9][0-9][0-9]"}},
        {" deepseek-llm ",
         {R"([\r\n])", deepseek_letters, deepseek_signs, R"(\s+\z)", deepseek_han, R"(\p{N}+)"}},
        {" deepseek-coder ",
         {R"([\r\n])", R"(\s?\p{L}+)", R"(\s?\p{P}+)", deepseek_han, R"(\p{N})"}},
        {" deepseek-v3 hunyuan-dense joyai-llm ",
         {R"(\p{N}{1,3})", "[\u4E00-\u9FA5\u3040-\u309F\u30A0-\u30FF]+", deepseek3_words}},
        {" gpt-4o llama4 kanana2 minimax-m2 ", {gpt4o_words}},
        {" tekken ", {tekken_words}, true, true},
    };
    return table;
}

const pre_tokenizer *find_pre_tokenizer(std::string_view name) {
    const std::string wanted = format(" {} ", name);
    for (const pre_tokenizer &entry : pre_tokenizers())
        if (std::string_view(entry.names).find(wanted) != std::string_view::npos) return &entry;
    return nullptr;
}

class tokenizer_builder {
public:
    explicit tokenizer_builder(const gguf_files &files)
        : files_(files), keys_(files.metadata()), reader_(files, "tokenizer.ggml.") {}

    result<tokenizer_parts> build(std::string_view model) {
        if (const status done = read_tokens(); !done) return done.failure();
        if (model == "t5") return build_unigram();
        const bool scored = model == "llama";
        tokenizer_json root = tokenizer_json::object();
        root["added_tokens"] = added_tokens();
        result<bpe> encoder = scored ? build_bpe_by_score(root) : build_bpe_by_rank(root);
        if (!encoder) return encoder.failure();
        result<tokenizer_parts> parts =
            make_tokenizer(root, files_.first_path(), std::move(*encoder));
        if (!parts) return parts;
        if (const status done = add_frame(scored, /*ends=*/false, *parts); !done)
            return done.failure();
        return parts;
    }

    // As a tokenizer.json, whose merges are in the order of their ranks.
    result<tokenizer_json> describe(std::string_view model) {
        if (const status done = read_tokens(); !done) return done.failure();
        const bool scored = model == "llama";
        tokenizer_json root = {{"version", "1.0"}, {"added_tokens", added_tokens()}};
        stores_merges_ = true;
        result<bpe> encoder = scored ? build_bpe_by_score(root) : build_bpe_by_rank(root);
        if (!encoder) return encoder.failure();
        tokenizer_json token_ids = tokenizer_json::object(), merges = tokenizer_json::array();
        for (size_t id = 0; id < tokens_.size(); ++id) token_ids.emplace(tokens_[id], id);
        for (const auto &[left, right] : merges_)
            if (token_ids.contains(left) && token_ids.contains(right) &&
                token_ids.contains(left + right))
                merges.push_back({left, right});
        root["model"] = {{"type", "BPE"},
                         {"fuse_unk", rules_.fuse_unknown},
                         {"byte_fallback", rules_.byte_fallback},
                         {"ignore_merges", rules_.ignore_merges},
                         {"vocab", std::move(token_ids)},
                         {"merges", std::move(merges)}};
        if (!rules_.unknown_token.empty()) root["model"]["unk_token"] = rules_.unknown_token;
        tokenizer_parts frame{.model = std::move(*encoder)};
        if (const status done = add_frame(scored, /*ends=*/false, frame); !done)
            return done.failure();
        describe_frame(frame.prefix, frame.suffix, root);
        return root;
    }

private:
    void describe_frame(const std::vector<int32_t> &prefix, const std::vector<int32_t> &suffix,
                        tokenizer_json &root) const {
        if (prefix.empty() && suffix.empty()) return;
        tokenizer_json single = tokenizer_json::array(), tokens = tokenizer_json::object();
        const auto add = [&](int32_t id) {
            const std::string text(tokens_[static_cast<size_t>(id)]);
            single.push_back({{"SpecialToken", {{"id", text}, {"type_id", 0u}}}});
            tokens[text] = {{"id", text}, {"ids", {id}}, {"tokens", {text}}};
        };
        for (const int32_t id : prefix) add(id);
        single.push_back({{"Sequence", {{"id", "A"}, {"type_id", 0u}}}});
        for (const int32_t id : suffix) add(id);
        root["post_processor"] = {{"type", "TemplateProcessing"},
                                  {"single", single},
                                  {"pair", single},
                                  {"special_tokens", tokens}};
    }

    error key_error(std::string_view key, const std::string &problem) const {
        return error{format("{}: tokenizer.ggml.{} {}", files_.first_path(), key, problem)};
    }

    status read_tokens() {
        const auto found = keys_.find("tokenizer.ggml.tokens");
        const auto *texts =
            found == keys_.end() ? nullptr : std::get_if<gguf_texts>(&found->second);
        if (texts == nullptr) return key_error("tokens", "is missing, or no list of texts");
        if (texts->size() >= vocabulary::ids_max)
            return key_error("tokens", format("has {} entries; fewer than {} are supported",
                                              texts->size(), vocabulary::ids_max));
        if (texts->empty()) return key_error("tokens", "has no entries");
        tokens_ = *texts;
        for (size_t id = 0; id < tokens_.size(); ++id)
            if (!is_valid_utf8(tokens_[id]))
                return key_error("tokens", format("holds at {} what is no UTF-8", id));
        kinds_.assign(tokens_.size(), normal);
        const auto kinds = keys_.find("tokenizer.ggml.token_type");
        if (kinds == keys_.end()) return success();
        const auto *numbers = std::get_if<gguf_numbers>(&kinds->second);
        if (numbers == nullptr || numbers->count != tokens_.size())
            return key_error("token_type", "is no list of a number for each token");
        for (size_t id = 0; id < tokens_.size(); ++id)
            kinds_[id] = static_cast<uint8_t>(std::clamp(numbers->at(id), 0.0, 255.0));
        return success();
    }

    tokenizer_json added_tokens() const {
        tokenizer_json added = tokenizer_json::array();
        for (size_t id = 0; id < tokens_.size(); ++id) {
            const uint8_t kind = kinds_[id];
            if (kind != control && kind != unknown && kind != user_defined) continue;
            if (tokens_[id].empty()) continue;
            added.push_back({{"id", id},
                             {"content", tokens_[id]},
                             {"special", kind != user_defined},
                             {"normalized", false}});
        }
        return added;
    }

    // If several tokens have the same spelling, the first one is used.
    result<vocabulary> make_vocabulary() const {
        std::vector<std::pair<std::string, uint32_t>> entries;
        entries.reserve(tokens_.size() + hidden_.size());
        for (const gguf_texts *list : {&tokens_, &hidden_})
            for (const std::string_view text : *list)
                entries.emplace_back(text, static_cast<uint32_t>(entries.size()));
        return vocabulary::make(std::move(entries));
    }

    result<std::vector<double>> read_scores() const {
        const auto found = keys_.find("tokenizer.ggml.scores");
        const auto *scores =
            found == keys_.end() ? nullptr : std::get_if<gguf_numbers>(&found->second);
        if (scores == nullptr || scores->count != tokens_.size())
            return key_error("scores", "is missing, or no list of a number for each token");
        std::vector<double> values(tokens_.size());
        for (size_t id = 0; id < values.size(); ++id) {
            values[id] = scores->at(id);
            if (!std::isfinite(values[id]))
                return key_error("scores", format("holds {} at {}", values[id], id));
        }
        return values;
    }

    // Converts the text's bytes to GPT-2's alphabet and cuts it with the patterns.
    result<bpe> build_bpe_by_rank(tokenizer_json &root) {
        const std::string_view name = reader_.text("pre").value_or("default");
        if (reader_.failed()) return reader_.failure();
        pre_tokenizer_ = find_pre_tokenizer(name);
        if (pre_tokenizer_ == nullptr)
            return key_error("pre", format("is {}; supported are {}", printable(name),
                                           fmt::join(known_pre_tokenizers(), ", ")));
        tokenizer_json steps = tokenizer_json::array();
        for (const char *pattern : pre_tokenizer_->patterns)
            steps.push_back({{"type", "Split"},
                             {"pattern", {{"Regex", pattern}}},
                             {"behavior", "Isolated"},
                             {"invert", false}});
        steps.push_back({{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}});
        root["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", std::move(steps)}};
        root["decoder"] = {{"type", "ByteLevel"}};

        const auto found = keys_.find("tokenizer.ggml.merges");
        const auto *texts =
            found == keys_.end() ? nullptr : std::get_if<gguf_texts>(&found->second);
        if (texts == nullptr) return key_error("merges", "is missing, or no list of texts");
        bpe::merge_list merges;
        merges.reserve(texts->size());
        for (const std::string_view text : *texts) {
            const size_t space = text.find(' ', 1);
            if (space == std::string_view::npos)
                return key_error("merges", format("holds {}; two tokens with a space between are "
                                                  "needed",
                                                  printable(text)));
            merges.emplace_back(text.substr(0, space), text.substr(space + 1));
        }
        bpe_rules rules;
        rules.ignore_merges = pre_tokenizer_->keeps_whole_words;
        return make_bpe(merges, std::move(rules), {});
    }

    // Any two neighbours whose joined spelling is a token may merge. The highest score merges
    // first.
    result<bpe> build_bpe_by_score(tokenizer_json &root) {
        const result<std::vector<double>> scores = read_scores();
        if (!scores) return scores.failure();
        std::map<double, uint32_t, std::greater<>> ranks;
        for (const double score : *scores) ranks[score] = 0;
        uint32_t next = 0;
        for (auto &[score, rank] : ranks) rank = next++;

        // Characters within tokens can merge even if they are no tokens themselves.
        std::unordered_set<std::string_view> known(tokens_.begin(), tokens_.end());
        const auto each_character = [&](std::string_view token, auto &&body) {
            if (token.size() > piece_bytes_max) return;
            for (size_t position = 0; position < token.size();) {
                const size_t begin = position;
                next_character(token, position);
                body(begin, position);
            }
        };
        for (const std::string_view token : tokens_)
            each_character(token, [&](size_t begin, size_t end) {
                if (known.insert(token.substr(begin, end - begin)).second)
                    hidden_.push_back(token.substr(begin, end - begin));
            });
        bpe::merge_list merges;
        std::vector<uint32_t> merge_ranks;
        for (size_t id = 0; id < tokens_.size(); ++id) {
            const std::string_view token = tokens_[id];
            each_character(token, [&](size_t, size_t end) {
                if (end == token.size() || !known.contains(token.substr(0, end)) ||
                    !known.contains(token.substr(end)))
                    return;
                merges.emplace_back(token.substr(0, end), token.substr(end));
                merge_ranks.push_back(ranks[(*scores)[id]]);
            });
        }
        const bool prefix = reader_.flag("add_space_prefix").value_or(true);
        describe_spaces(prefix, root);
        bpe_rules rules;
        rules.byte_fallback = true;
        rules.fuse_unknown = true;
        rules.hidden_from = static_cast<int32_t>(tokens_.size());
        const int32_t unknown_id = reader_.id("unknown_token_id", tokens_.size()).value_or(0);
        if (reader_.failed()) return reader_.failure();
        rules.unknown_token = tokens_[static_cast<size_t>(unknown_id)];
        return make_bpe(merges, std::move(rules), merge_ranks);
    }

    // A unigram model spells each text between special tokens as a whole.
    result<tokenizer_parts> build_unigram() {
        const result<std::vector<double>> scores = read_scores();
        if (!scores) return scores.failure();
        unigram_rules rules;
        rules.space_before = reader_.flag("add_space_prefix").value_or(false);
        rules.merge_spaces = reader_.flag("remove_extra_whitespaces").value_or(false);
        rules.unknown_id = reader_.id("unknown_token_id", tokens_.size())
                               .value_or(std::min<int32_t>(2, int32_t(tokens_.size()) - 1));
        if (reader_.failed()) return reader_.failure();
        std::vector<unigram_piece> pieces;
        double least = 0;
        for (size_t id = 0; id < tokens_.size(); ++id) {
            const uint8_t kind = kinds_[id];
            if (kind == byte) add_byte(static_cast<int32_t>(id), rules);
            if (kind == normal) least = std::min(least, (*scores)[id]);
            if (kind == normal || kind == user_defined || kind == unused)
                pieces.push_back(
                    {tokens_[id], static_cast<int32_t>(id), (*scores)[id], kind == user_defined});
        }
        rules.unknown_score = least - 10;
        const auto map = keys_.find("tokenizer.ggml.precompiled_charsmap");
        const auto *bytes = map == keys_.end() ? nullptr : std::get_if<gguf_numbers>(&map->second);
        if (map != keys_.end() && bytes == nullptr)
            return key_error("precompiled_charsmap", "is no list of numbers");
        result<unigram> model = unigram::make(
            pieces, rules, bytes == nullptr ? std::span<const std::byte>() : bytes->bytes);
        if (!model) return key_error("precompiled_charsmap", model.failure().text);
        tokenizer_json root = tokenizer_json::object();
        root["added_tokens"] = added_tokens();
        describe_spaces(rules.space_before || rules.merge_spaces, root);
        root.erase("normalizer");
        result<bpe> known = make_bpe({}, {}, {});
        if (!known) return known.failure();
        result<tokenizer_parts> parts =
            make_tokenizer(root, files_.first_path(), std::move(*known));
        if (!parts) return parts;
        parts->pieces = std::move(*model);
        if (const status done = add_frame(/*scored=*/false, /*ends=*/true, *parts); !done)
            return done.failure();
        return parts;
    }

    // "<0x0A>"
    void add_byte(int32_t id, unigram_rules &rules) const {
        constexpr std::string_view begin = "<0x", end = ">";
        const std::string_view text = tokens_[static_cast<size_t>(id)];
        if (text.size() != begin.size() + 2 + end.size() || !text.starts_with(begin)) return;
        const char *const digits = text.data() + begin.size();
        uint8_t value = 0;
        const auto [stop, wrong] = std::from_chars(digits, digits + 2, value, 16);
        if (wrong != std::errc() || stop != digits + 2) return;
        rules.byte_ids.resize(256, -1);
        rules.byte_ids[value] = id;
    }

    static void describe_spaces(bool prefix, tokenizer_json &root) {
        constexpr const char *mark = "\u2581";
        tokenizer_json steps = tokenizer_json::array();
        if (prefix) steps.push_back({{"type", "Prepend"}, {"prepend", mark}});
        steps.push_back({{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", mark}});
        root["normalizer"] = {{"type", "Sequence"}, {"normalizers", std::move(steps)}};
        tokenizer_json back = tokenizer_json::array();
        back.push_back({{"type", "Replace"}, {"pattern", {{"String", mark}}}, {"content", " "}});
        back.push_back({{"type", "ByteFallback"}});
        back.push_back({{"type", "Fuse"}});
        if (prefix)
            back.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1u}, {"stop", 0u}});
        root["decoder"] = {{"type", "Sequence"}, {"decoders", std::move(back)}};
    }

    result<bpe> make_bpe(const bpe::merge_list &merges, bpe_rules rules,
                         const std::vector<uint32_t> &ranks) const {
        if (tokens_.size() + hidden_.size() >= vocabulary::ids_max)
            return key_error(
                "tokens", format("are of more than {} characters and tokens", vocabulary::ids_max));
        if (stores_merges_) store_merges(merges, rules, ranks);
        result<vocabulary> words = make_vocabulary();
        if (!words) return key_error("tokens", words.failure().text);
        result<bpe> model = bpe::make(std::move(*words), merges, std::move(rules), ranks);
        if (!model) return key_error("merges", model.failure().text);
        warn_of_hidden(*model, format("{}: tokenizer.ggml", files_.first_path()));
        return model;
    }

    void store_merges(const bpe::merge_list &merges, const bpe_rules &rules,
                      const std::vector<uint32_t> &ranks) const {
        rules_ = rules;
        std::vector<size_t> order(merges.size());
        std::iota(order.begin(), order.end(), size_t{0});
        if (!ranks.empty()) std::ranges::stable_sort(order, {}, [&](size_t i) { return ranks[i]; });
        merges_.clear();
        for (const size_t i : order) merges_.push_back(merges[i]);
    }

    // Adds the tokens around every text.
    status add_frame(bool scored, bool ends, tokenizer_parts &parts) {
        const auto add = [&](const char *flag, bool default_value, const char *key,
                             std::vector<int32_t> &ids) {
            if (!reader_.flag(flag).value_or(default_value)) return;
            if (const auto id = reader_.id(key, tokens_.size()))
                ids.push_back(*id);
            else
                reader_.fail(key, format("is no token, and {} asks for it", flag));
        };
        const bool begins =
            scored || (pre_tokenizer_ != nullptr && pre_tokenizer_->adds_begin_token);
        add("add_bos_token", begins, "bos_token_id", parts.prefix);
        add("add_eos_token", ends, "eos_token_id", parts.suffix);
        if (reader_.failed()) return reader_.failure();
        return success();
    }

    static constexpr size_t piece_bytes_max = 1024;
    const gguf_files &files_;
    const gguf_metadata &keys_;
    gguf_reader reader_;
    gguf_texts tokens_;
    gguf_texts hidden_;  // characters that can merge but are no tokens
    std::vector<uint8_t> kinds_;
    const pre_tokenizer *pre_tokenizer_ = nullptr;
    bool stores_merges_ = false;
    mutable bpe::merge_list merges_;  // in the order of their ranks
    mutable bpe_rules rules_;
};

}  // namespace

result<std::unique_ptr<tokenizer>> open_gguf_tokenizer(const gguf_files &files) {
    gguf_reader reader(files, "tokenizer.ggml.");
    const auto model = reader.text("model");
    if (reader.failed()) return reader.failure();
    if (!model || *model == "none" || *model == "no_vocab") return std::unique_ptr<tokenizer>();
    if (*model != "gpt2" && *model != "llama" && *model != "t5")
        return error{
            format("{}: tokenizer.ggml.model is {}; gpt2, llama, t5 and none are supported",
                   files.first_path(), printable(*model))};
    result<tokenizer_parts> parts = tokenizer_builder(files).build(*model);
    if (!parts) return parts.failure();
    return tokenizer::make(std::move(*parts));
}

result<tokenizer_json> describe_gguf_tokenizer(const gguf_files &files) {
    const auto model = gguf_text(files.metadata(), "tokenizer.ggml.model");
    if (!model || *model == "none" || *model == "no_vocab") return tokenizer_json();
    if (*model != "gpt2" && *model != "llama")
        return error{
            format("{}: tokenizer.ggml.model is {}; as a tokenizer.json gpt2 and llama are "
                   "supported",
                   files.first_path(), printable(*model))};
    return tokenizer_builder(files).describe(*model);
}

std::vector<std::string> distinct_pre_tokenizers() {
    std::vector<std::string> names;
    for (const pre_tokenizer &entry : pre_tokenizers()) names.push_back(split(entry.names, ' ')[1]);
    return names;
}

std::vector<std::string> known_pre_tokenizers() {
    std::vector<std::string> names;
    for (const pre_tokenizer &entry : pre_tokenizers())
        for (const std::string &name : split(entry.names, ' '))
            if (!name.empty()) names.push_back(name);
    std::ranges::sort(names);
    return names;
}

}  // namespace moorage::core
