// words.cpp - vocabulary, merges or scores, and the tokens around a text, checked with test texts.
#include "tools/convert/words.h"

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "core/base/json.h"
#include "core/base/log.h"
#include "core/base/mapped_file.h"
#include "core/base/safetensors.h"
#include "core/base/text.h"
#include "core/model/gguf_tokenizer.h"
#include "core/model/tokenizer.h"

namespace moorage::core {

namespace {

namespace fs = std::filesystem;
using words_json = nlohmann::json;

// Everything that patterns distinguish: cases, contractions, numbers, signs, line ends, scripts,
// emoji.
constexpr const char *texts[] = {
    "Hello World, I'm HERE and they've gone; it'LL DO. We'RE O'Neill's",
    "1 12 123 1234 12345678 3.14159 1,000,000 0x1F v2.0-rc1",
    "  two  spaces   and\ttabs \t mixed\n\n\nlines\r\n \n  x",
    "def f(x):\n    return x**2 + y[3]  # sum_of_squares != 0\n\n\t{\"a\": [1, 2]}",
    "na\u00efve caf\u00e9 \u00dcber stra\u00dfe \u041f\u0440\u0438\u0432\u0435\u0442 "
    "\u043c\u0438\u0440 "
    "\u0393\u03b5\u03b9\u03ac \u0645\u0631\u062d\u0628\u0627",
    "\u4f60\u597d\u4e16\u754c\uff0c\u4eca\u5929123\u3002 \u65e5\u672c\u8a9e\u306e\u30c6\u30ad\u30b9"
    "\u30c8 \ud55c\uad6d\uc5b4",
    "\U0001F600\U0001F468\u200D\U0001F469\u200D\U0001F467 !!! ... -- \u2014 \u201cquoted\u201d "
    "$5.00 "
    "<b>x</b> a+b=c ~^` @me #tag 50%",
    "camelCase HTTPServer snake_case_NAME ABCdef aBC \u0663\u0664 \u2167 \u00bd",
    " leading",
    "trailing ",
    "a",
    "\n",
    "word\nword word\n word  \n",
    "The quick brown fox jumps over the lazy dog 1999's",
};

std::vector<std::vector<int32_t>> encode_texts(const tokenizer &tokenizer) {
    std::vector<std::vector<int32_t>> encoded;
    for (const char *text : texts) {
        const auto ids = tokenizer.encode(text, {});
        encoded.push_back(ids ? *ids : std::vector<int32_t>{-1});
    }
    return encoded;
}

result<std::string> read_all(const fs::path &path) {
    const result<mapped_file> file = mapped_file::open(path);
    if (!file) return file.failure();
    return std::string(reinterpret_cast<const char *>(file->bytes().data()), file->bytes().size());
}

enum token_kind : int32_t { normal = 1, unknown, control, user_defined, unused, byte };

// The content of tokenizer.json, by ids.
struct word_list {
    std::vector<std::string> tokens;
    std::vector<int32_t> kinds;
    std::vector<std::string> merges;  // "a b"
    std::vector<std::string> added;
    std::vector<float> scores;  // by the first merge that makes the token
    bool is_scored = false;     // works on characters, not bytes
};

// "<0x41>"
bool is_byte(std::string_view token) {
    return token.size() == 6 && token.starts_with("<0x") && token.ends_with(">");
}

// null means false, as for the reader.
bool is_true(const words_json &object, const char *key) {
    const auto found = object.find(key);
    return found != object.end() && found->is_boolean() && found->get<bool>();
}

void read_merges(const words_json &merges, word_list &list) {
    std::map<std::string, size_t, std::less<>> first;
    for (const words_json &merge : merges) {
        std::string left, right;
        if (merge.is_array()) {
            left = merge[0].get<std::string>();
            right = merge[1].get<std::string>();
        } else {
            const auto &text = merge.get_ref<const std::string &>();
            if (text.starts_with("#version")) continue;
            const size_t space = text.find(' ', 1);
            left = text.substr(0, space);
            right = text.substr(space + 1);
        }
        first.emplace(left + right, first.size());
        list.merges.push_back(left + ' ' + right);
    }
    if (!list.is_scored) return;
    // Tokens that no merge makes come last.
    const auto last = static_cast<float>(first.size());
    for (size_t id = 0; id < list.tokens.size(); ++id) {
        const auto found = first.find(list.tokens[id]);
        list.scores.push_back(found == first.end() ? (list.kinds[id] == normal ? -last : 0.0F)
                                                   : -static_cast<float>(found->second));
    }
}

// The file was already read as a tokenizer, so its parts have the right types.
word_list read_word_list(const words_json &root, uint32_t vocabulary) {
    word_list list;
    const words_json &model = root.at("model");
    list.is_scored = is_true(model, "byte_fallback");
    const auto place = [&](size_t id, const std::string &token, int32_t kind) {
        for (size_t next = list.tokens.size(); next <= id; ++next) {
            list.tokens.push_back(format("[PAD{}]", next));
            list.kinds.push_back(unused);
        }
        list.tokens[id] = token;
        list.kinds[id] = kind;
    };
    for (const auto &[token, id] : model.at("vocab").items())
        place(id.get<size_t>(), token, list.is_scored && is_byte(token) ? byte : normal);
    const words_json none = words_json::array();
    for (const words_json &added : root.contains("added_tokens") ? root["added_tokens"] : none) {
        list.added.push_back(added.at("content").get<std::string>());
        place(added.at("id").get<size_t>(), list.added.back(),
              is_true(added, "special") ? control : user_defined);
    }
    if (list.tokens.size() < vocabulary)
        place(vocabulary - 1, format("[PAD{}]", vocabulary - 1), unused);
    if (model.contains("unk_token") && model["unk_token"].is_string()) {
        const std::string unknown_token = model["unk_token"].get<std::string>();
        for (size_t id = 0; id < list.tokens.size(); ++id)
            if (list.tokens[id] == unknown_token) list.kinds[id] = unknown;
    }
    read_merges(model.at("merges"), list);
    return list;
}

// Ids put around every text.
struct text_frame_ids {
    std::vector<int32_t> prefix, suffix;
};
text_frame_ids frame_of(const tokenizer &tokenizer) {
    const auto whole = tokenizer.encode("a", {}),
               bare = tokenizer.encode("a", {.add_special = false});
    text_frame_ids frame;
    if (!whole || !bare) return frame;
    const auto inner = std::search(whole->begin(), whole->end(), bare->begin(), bare->end());
    if (inner == whole->end()) return frame;
    frame.prefix.assign(whole->begin(), inner);
    frame.suffix.assign(inner + static_cast<std::ptrdiff_t>(bare->size()), whole->end());
    return frame;
}

// The token behind every text is also an end token. Tokens without a GGUF key are omitted.
void put_ends(const text_frame_ids &frame, const generation_config &ends, gguf_keys &keys) {
    const int32_t begin = frame.prefix.empty() ? ends.begin_id : frame.prefix.front();
    if (begin >= 0) keys.number("tokenizer.ggml.bos_token_id", static_cast<uint32_t>(begin));
    std::vector<int32_t> end_ids = frame.suffix;
    for (const int32_t id : ends.end_ids)
        if (std::ranges::find(end_ids, id) == end_ids.end()) end_ids.push_back(id);
    const char *names[] = {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                           "tokenizer.ggml.eom_token_id"};
    for (size_t i = 0; i < std::min(std::size(names), end_ids.size()); ++i)
        keys.number(names[i], static_cast<uint32_t>(end_ids[i]));
}

void put_list(const word_list &list, const text_frame_ids &frame, const generation_config &ends,
              gguf_keys &keys) {
    keys.text("tokenizer.ggml.model", list.is_scored ? "llama" : "gpt2");
    keys.texts("tokenizer.ggml.tokens", list.tokens);
    keys.numbers("tokenizer.ggml.token_type", list.kinds);
    if (list.is_scored)
        keys.reals("tokenizer.ggml.scores", list.scores);
    else
        keys.texts("tokenizer.ggml.merges", list.merges);
    put_ends(frame, ends, keys);
    const auto unknown_at = std::ranges::find(list.kinds, int32_t{unknown});
    if (unknown_at != list.kinds.end())
        keys.number("tokenizer.ggml.unknown_token_id",
                    static_cast<uint32_t>(unknown_at - list.kinds.begin()));
    keys.flag("tokenizer.ggml.add_bos_token", !frame.prefix.empty());
    keys.flag("tokenizer.ggml.add_eos_token", !frame.suffix.empty());
}

void put_template(const fs::path &directory, gguf_keys &keys) {
    constexpr const char *key = "tokenizer.chat_template";
    if (const auto text = read_all(directory / "chat_template.jinja")) {
        keys.text(key, *text);
        return;
    }
    const auto settings = read_all(directory / "tokenizer_config.json");
    if (!settings) return;
    const result<json> root = read_json(*settings);
    if (!root || !root->is_object()) return;
    const auto held = root->find("chat_template");
    if (held != root->end() && held->is_string()) keys.text(key, held->get<std::string>());
}

// Null: it does not cut like `wanted`.
std::unique_ptr<tokenizer> open_if_alike(const gguf_keys &keys,
                                         const std::vector<std::vector<int32_t>> &wanted) {
    const std::string header = lay_out(keys, {}).header;
    const auto files = gguf_files::parse(std::as_bytes(std::span(header)), "the tokenizer made");
    if (!files) return nullptr;
    auto opened = open_gguf_tokenizer(*files);
    if (!opened || *opened == nullptr || encode_texts(**opened) != wanted) return nullptr;
    return std::move(*opened);
}

bool encodes_alike(const tokenizer &source, const tokenizer &converted, const std::string &text) {
    const auto wanted = source.encode(text, {}), actual = converted.encode(text, {});
    return wanted && actual && *wanted == *actual;
}

// Warns of rules that most tokenizers have and that no GGUF key expresses. They seldom change how a
// text is cut.
void warn_of_differences(const std::string &place, const tokenizer &source,
                         const tokenizer &converted, const std::vector<std::string> &added) {
    if (!encodes_alike(source, converted, "cafe\u0301 A\u030a \u1112\u1161\u11ab"))
        log_warning(
            format("{}: texts are normalised, which GGUF files cannot say; characters in several "
                   "parts (e and U+0301) are cut otherwise there",
                   place));
    std::vector<std::string> differing;
    for (const std::string &token : added)
        if (!encodes_alike(source, converted, "a  " + token + "  a") ||
            !encodes_alike(source, converted, "a" + token + "a"))
            differing.push_back(token);
    if (!differing.empty())
        log_warning(
            format("{}: beside {} of its added tokens, {} for example, texts are cut as GGUF "
                   "files cannot say (lstrip, rstrip, single_word)",
                   place, differing.size(), printable(differing.front())));
}

}  // namespace

status put_tokenizer(const model &model, gguf_keys &keys) {
    const fs::path path = model.directory() / "tokenizer.json";
    std::error_code code;
    if (!fs::exists(path, code)) {
        keys.text("tokenizer.ggml.model", "none");
        put_ends({}, model.generation(), keys);
        return success();
    }
    const auto source = tokenizer::open(path);
    if (!source) return source.failure();
    const result<std::string> text = read_all(path);
    if (!text) return text.failure();
    const auto root = read_json_as<words_json>(*text);
    if (!root) return error{format("{}: not valid JSON: {}", path.string(), root.failure().text)};
    const word_list list = read_word_list(*root, model.config().vocabulary);
    if (list.tokens.size() > model.config().vocabulary)
        return error{format("{}: has {} tokens; the model has {}", path.string(),
                            list.tokens.size(), model.config().vocabulary)};
    const text_frame_ids frame = frame_of(**source);
    if (frame.prefix.size() > 1 || frame.suffix.size() > 1)
        return error{format("{}: puts {} tokens before a text and {} behind; GGUF knows one each",
                            path.string(), frame.prefix.size(), frame.suffix.size())};
    const std::vector<std::vector<int32_t>> wanted = encode_texts(**source);
    const bool prefixes[] = {true, false};
    std::vector<std::string> names = distinct_pre_tokenizers();
    if (list.is_scored) names = {"default", "default"};
    for (size_t i = 0; i < names.size(); ++i) {
        gguf_keys candidate;
        put_list(list, frame, model.generation(), candidate);
        candidate.text("tokenizer.ggml.pre", names[i]);
        if (list.is_scored) candidate.flag("tokenizer.ggml.add_space_prefix", prefixes[i]);
        const std::unique_ptr<tokenizer> reopened = open_if_alike(candidate, wanted);
        if (reopened == nullptr) continue;
        warn_of_differences(path.string(), **source, *reopened, list.added);
        put_template(model.directory(), candidate);
        keys.append_keys(candidate);
        return success();
    }
    return error{format("{}: cuts texts otherwise than any tokenizer that GGUF has a name for ({})",
                        path.string(), fmt::join(names, ", "))};
}

result<std::string> tokenizer_json_of(const gguf_files &files) {
    const auto description = describe_gguf_tokenizer(files);
    if (!description) return description.failure();
    if (description->is_null()) return std::string();
    const auto source = open_gguf_tokenizer(files);
    if (!source) return source.failure();
    std::string text = description->dump();
    const auto reopened = tokenizer::parse(text, "tokenizer.json");
    if (!reopened) return error{format("{}: {}", files.first_path(), reopened.failure().text)};
    if (encode_texts(**source) != encode_texts(**reopened))
        return error{format("{}: its tokenizer cuts texts otherwise than a tokenizer.json can say",
                            files.first_path())};
    return text;
}

}  // namespace moorage::core
