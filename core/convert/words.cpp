// words.cpp - vocabulary, merges or scores, and the tokens around a text, checked with test texts.
#include "core/convert/words.h"

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

std::vector<std::vector<int32_t>> cut_all(const tokenizer &by) {
    std::vector<std::vector<int32_t>> all;
    for (const char *text : texts) {
        const auto ids = by.encode(text, {});
        all.push_back(ids ? *ids : std::vector<int32_t>{-1});
    }
    return all;
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
    bool scored = false;        // works on characters, not bytes
};

// "<0x41>"
bool is_byte(std::string_view token) {
    return token.size() == 6 && token.starts_with("<0x") && token.ends_with(">");
}

// null means false, as for the reader.
bool flag(const words_json &of, const char *key) {
    const auto found = of.find(key);
    return found != of.end() && found->is_boolean() && found->get<bool>();
}

void read_merges(const words_json &merges, word_list &out) {
    std::map<std::string, size_t, std::less<>> first;
    for (const words_json &one : merges) {
        std::string left, right;
        if (one.is_array()) {
            left = one[0].get<std::string>();
            right = one[1].get<std::string>();
        } else {
            const auto &both = one.get_ref<const std::string &>();
            if (both.starts_with("#version")) continue;
            const size_t space = both.find(' ', 1);
            left = both.substr(0, space);
            right = both.substr(space + 1);
        }
        first.emplace(left + right, first.size());
        out.merges.push_back(left + ' ' + right);
    }
    if (!out.scored) return;
    // Tokens that no merge makes come last.
    const auto last = static_cast<float>(first.size());
    for (size_t id = 0; id < out.tokens.size(); ++id) {
        const auto found = first.find(out.tokens[id]);
        out.scores.push_back(found == first.end() ? (out.kinds[id] == normal ? -last : 0.0F)
                                                  : -static_cast<float>(found->second));
    }
}

// The file was already read as a tokenizer, so its parts have the right types.
word_list list_of(const words_json &root, uint32_t vocabulary) {
    word_list made;
    const words_json &model = root.at("model");
    made.scored = flag(model, "byte_fallback");
    const auto place = [&](size_t id, const std::string &token, int32_t kind) {
        for (size_t next = made.tokens.size(); next <= id; ++next) {
            made.tokens.push_back(format("[PAD{}]", next));
            made.kinds.push_back(unused);
        }
        made.tokens[id] = token;
        made.kinds[id] = kind;
    };
    for (const auto &[token, id] : model.at("vocab").items())
        place(id.get<size_t>(), token, made.scored && is_byte(token) ? byte : normal);
    const words_json none = words_json::array();
    for (const words_json &one : root.contains("added_tokens") ? root["added_tokens"] : none) {
        made.added.push_back(one.at("content").get<std::string>());
        place(one.at("id").get<size_t>(), made.added.back(),
              flag(one, "special") ? control : user_defined);
    }
    if (made.tokens.size() < vocabulary)
        place(vocabulary - 1, format("[PAD{}]", vocabulary - 1), unused);
    if (model.contains("unk_token") && model["unk_token"].is_string()) {
        const std::string unknown_token = model["unk_token"].get<std::string>();
        for (size_t id = 0; id < made.tokens.size(); ++id)
            if (made.tokens[id] == unknown_token) made.kinds[id] = unknown;
    }
    read_merges(model.at("merges"), made);
    return made;
}

// Ids put around every text.
struct text_frame_ids {
    std::vector<int32_t> prefix, suffix;
};
text_frame_ids frame_of(const tokenizer &by) {
    const auto whole = by.encode("a", {}), bare = by.encode("a", {.add_special = false});
    text_frame_ids made;
    if (!whole || !bare) return made;
    const auto inner = std::search(whole->begin(), whole->end(), bare->begin(), bare->end());
    if (inner == whole->end()) return made;
    made.prefix.assign(whole->begin(), inner);
    made.suffix.assign(inner + static_cast<std::ptrdiff_t>(bare->size()), whole->end());
    return made;
}

// The token behind every text is also an end token. Tokens without a GGUF key are omitted.
void put_ends(const text_frame_ids &frame, const generation_config &ends, gguf_keys &keys) {
    const int32_t begin = frame.prefix.empty() ? ends.begin_id : frame.prefix.front();
    if (begin >= 0) keys.number("tokenizer.ggml.bos_token_id", static_cast<uint32_t>(begin));
    std::vector<int32_t> all = frame.suffix;
    for (const int32_t id : ends.end_ids)
        if (std::ranges::find(all, id) == all.end()) all.push_back(id);
    const char *names[] = {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                           "tokenizer.ggml.eom_token_id"};
    for (size_t i = 0; i < std::min(std::size(names), all.size()); ++i)
        keys.number(names[i], static_cast<uint32_t>(all[i]));
}

void put_list(const word_list &of, const text_frame_ids &frame, const generation_config &ends,
              gguf_keys &keys) {
    keys.text("tokenizer.ggml.model", of.scored ? "llama" : "gpt2");
    keys.texts("tokenizer.ggml.tokens", of.tokens);
    keys.numbers("tokenizer.ggml.token_type", of.kinds);
    if (of.scored)
        keys.reals("tokenizer.ggml.scores", of.scores);
    else
        keys.texts("tokenizer.ggml.merges", of.merges);
    put_ends(frame, ends, keys);
    const auto unknown_at = std::ranges::find(of.kinds, int32_t{unknown});
    if (unknown_at != of.kinds.end())
        keys.number("tokenizer.ggml.unknown_token_id",
                    static_cast<uint32_t>(unknown_at - of.kinds.begin()));
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
std::unique_ptr<tokenizer> cutting_alike(const gguf_keys &keys,
                                         const std::vector<std::vector<int32_t>> &wanted) {
    const std::string header = lay_out(keys, {}).header;
    const auto files = gguf_files::parse(std::as_bytes(std::span(header)), "the tokenizer made");
    if (!files) return nullptr;
    auto words = open_gguf_tokenizer(*files);
    if (!words || *words == nullptr || cut_all(**words) != wanted) return nullptr;
    return std::move(*words);
}

bool cuts_alike(const tokenizer &is, const tokenizer &made, const std::string &text) {
    const auto wanted = is.encode(text, {}), own = made.encode(text, {});
    return wanted && own && *wanted == *own;
}

// Warns of rules that most tokenizers have and that no GGUF key expresses. They seldom change how a
// text is cut.
void warn_of_cuts(const std::string &place, const tokenizer &is, const tokenizer &made,
                  const std::vector<std::string> &added) {
    if (!cuts_alike(is, made, "cafe\u0301 A\u030a \u1112\u1161\u11ab"))
        log_warning(
            format("{}: texts are normalised, which GGUF files cannot say; characters in several "
                   "parts (e and U+0301) are cut otherwise there",
                   place));
    std::vector<std::string> apart;
    for (const std::string &token : added)
        if (!cuts_alike(is, made, "a  " + token + "  a") ||
            !cuts_alike(is, made, "a" + token + "a"))
            apart.push_back(token);
    if (!apart.empty())
        log_warning(
            format("{}: beside {} of its added tokens, {} for example, texts are cut as GGUF "
                   "files cannot say (lstrip, rstrip, single_word)",
                   place, apart.size(), shown(apart.front())));
}

}  // namespace

status put_words(const model &of, gguf_keys &keys) {
    const fs::path path = of.directory() / "tokenizer.json";
    std::error_code code;
    if (!fs::exists(path, code)) {
        keys.text("tokenizer.ggml.model", "none");
        put_ends({}, of.generation(), keys);
        return success();
    }
    const auto source = tokenizer::open(path);
    if (!source) return source.failure();
    const result<std::string> text = read_all(path);
    if (!text) return text.failure();
    const auto root = read_json_as<words_json>(*text);
    if (!root) return error{format("{}: not valid JSON: {}", path.string(), root.failure().text)};
    const word_list list = list_of(*root, of.config().vocabulary);
    if (list.tokens.size() > of.config().vocabulary)
        return error{format("{}: has {} tokens; the model has {}", path.string(),
                            list.tokens.size(), of.config().vocabulary)};
    const text_frame_ids frame = frame_of(**source);
    if (frame.prefix.size() > 1 || frame.suffix.size() > 1)
        return error{format("{}: puts {} tokens before a text and {} behind; GGUF knows one each",
                            path.string(), frame.prefix.size(), frame.suffix.size())};
    const std::vector<std::vector<int32_t>> wanted = cut_all(**source);
    const bool prefixes[] = {true, false};
    std::vector<std::string> names = distinct_pre_tokenizers();
    if (list.scored) names = {"default", "default"};
    for (size_t i = 0; i < names.size(); ++i) {
        gguf_keys made;
        put_list(list, frame, of.generation(), made);
        made.text("tokenizer.ggml.pre", names[i]);
        if (list.scored) made.flag("tokenizer.ggml.add_space_prefix", prefixes[i]);
        const std::unique_ptr<tokenizer> words = cutting_alike(made, wanted);
        if (words == nullptr) continue;
        warn_of_cuts(path.string(), **source, *words, list.added);
        put_template(of.directory(), made);
        keys.add(made);
        return success();
    }
    return error{format("{}: cuts texts otherwise than any tokenizer that GGUF has a name for ({})",
                        path.string(), fmt::join(names, ", "))};
}

result<std::string> words_of(const gguf_files &of) {
    const auto made = describe_gguf_tokenizer(of);
    if (!made) return made.failure();
    if (made->is_null()) return std::string();
    const auto source = open_gguf_tokenizer(of);
    if (!source) return source.failure();
    std::string text = made->dump();
    const auto again = tokenizer::parse(text, "tokenizer.json");
    if (!again) return error{format("{}: {}", of.place(), again.failure().text)};
    if (cut_all(**source) != cut_all(**again))
        return error{format("{}: its tokenizer cuts texts otherwise than a tokenizer.json can say",
                            of.place())};
    return text;
}

}  // namespace moorage::core
