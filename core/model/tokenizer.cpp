// tokenizer.cpp - passes a text through the parts of a tokenizer, and back.
#include "core/model/tokenizer.h"

#include "core/base/mapped_file.h"
#include "core/base/text.h"
#include "core/model/gguf_tokenizer.h"
#include "core/model/tokenizer_parts.h"

namespace moorage::core {

namespace {

constexpr size_t text_bytes_max = size_t{1} << 30;
constexpr size_t file_bytes_max = size_t{1} << 28;

}  // namespace

tokenizer::tokenizer(std::unique_ptr<tokenizer_parts> parts) : parts_(std::move(parts)) {}
tokenizer::~tokenizer() = default;

result<std::unique_ptr<tokenizer>> tokenizer::open(const std::filesystem::path &file) {
    const result<mapped_file> mapped = mapped_file::open(file);
    if (!mapped) return mapped.failure();
    const std::span<const std::byte> bytes = mapped->bytes();
    if (bytes.size() > file_bytes_max)
        return error{
            format("{}: {} bytes, {} is the limit", file.string(), bytes.size(), file_bytes_max)};
    return parse({reinterpret_cast<const char *>(bytes.data()), bytes.size()}, file.string());
}

result<std::unique_ptr<tokenizer>> tokenizer::parse(std::string_view json,
                                                    const std::string &name) {
    result<tokenizer_parts> parts = parse_tokenizer(json, name);
    if (!parts) return parts.failure();
    return make(std::move(parts).value());
}

result<std::unique_ptr<tokenizer>> tokenizer::open_for_model(const std::filesystem::path &model) {
    if (is_gguf(model)) {
        const result<gguf_files> files = gguf_files::open(model);
        if (!files) return files.failure();
        return open_gguf_tokenizer(*files);
    }
    const std::filesystem::path file = model / "tokenizer.json";
    std::error_code code;
    if (!std::filesystem::exists(file, code)) return std::unique_ptr<tokenizer>();
    return open(file);
}

const char *tokenizer_place(const std::filesystem::path &model) {
    return is_gguf(model) ? "tokenizer.ggml.model" : "tokenizer.json";
}

std::unique_ptr<tokenizer> tokenizer::make(tokenizer_parts parts) {
    return std::unique_ptr<tokenizer>(
        new tokenizer(std::make_unique<tokenizer_parts>(std::move(parts))));
}

// `text`: between two added tokens that were found in the raw text. `first`: at the beginning.
status tokenizer::encode_part(std::string_view text, bool first, const encode_options &options,
                              std::vector<int32_t> &ids) const {
    result<std::string> done = normalize(parts_->normalizers, std::string(text));
    if (!done) return done.failure();
    const std::string &clean = *done;
    const size_t bytes_max = grown_bytes_max(text.size());
    bpe::workspace memory;
    for (const auto &[begin, end, id] :
         parts_->added_normalized.find(clean, options.parse_special)) {
        if (id >= 0) {
            ids.push_back(id);
            continue;
        }
        if (begin == end) continue;
        text_words words{clean.substr(begin, end - begin), {{0, end - begin, first && begin == 0}}};
        for (const word_step &step : parts_->word_steps)
            if (status applied = apply_step(step, words, bytes_max); !applied) return applied;
        for (const text_words::word &word : words.words) {
            const std::string_view word_text =
                std::string_view(words.text).substr(word.begin, word.end - word.begin);
            if (parts_->pieces) {
                parts_->pieces->encode(word_text, ids);
                continue;
            }
            if (status encoded = parts_->model.encode(word_text, memory, ids); !encoded)
                return encoded;
        }
    }
    return success();
}

result<std::vector<int32_t>> tokenizer::encode(std::string_view text,
                                               const encode_options &options) const {
    if (text.size() > text_bytes_max)
        return error{format("{}: a text of {} bytes to encode, {} is the limit", parts_->name,
                            text.size(), text_bytes_max)};
    std::string valid_text;
    if (!is_valid_utf8(text)) text = valid_text = to_valid_utf8(text);
    std::vector<int32_t> ids;
    if (options.add_special) ids = parts_->prefix;
    for (const auto &[begin, end, id] : parts_->added_raw.find(text, options.parse_special)) {
        if (id >= 0) {
            ids.push_back(id);
            continue;
        }
        const status done = encode_part(text.substr(begin, end - begin), begin == 0, options, ids);
        if (!done) return error{format("{}: {}", parts_->name, done.failure().text)};
    }
    if (options.add_special) ids.insert(ids.end(), parts_->suffix.begin(), parts_->suffix.end());
    return ids;
}

std::string tokenizer::decode(std::span<const int32_t> ids, const decode_options &options) const {
    text_stream stream(*this, options);
    std::string text;
    for (const int32_t id : ids) text += stream.push(id);
    text += stream.finish();
    return text;
}

uint32_t tokenizer::size() const { return parts_->size; }

int32_t tokenizer::id_of(std::string_view token) const {
    const auto added = parts_->added_ids.find(std::string(token));
    if (added != parts_->added_ids.end()) return added->second;
    const int32_t id = parts_->model.words().id_of(token);
    return id < static_cast<int32_t>(parts_->size) ? id : -1;
}

std::string_view tokenizer::token_of(int32_t id) const {
    if (id >= static_cast<int32_t>(parts_->size)) return {};
    if (const std::string *token = parts_->model.words().token_of(id)) return *token;
    const auto added = parts_->added.find(id);
    return added != parts_->added.end() ? added->second.content : std::string_view();
}

bool tokenizer::is_special(int32_t id) const {
    const auto added = parts_->added.find(id);
    return added != parts_->added.end() && added->second.special;
}

text_stream::text_stream(const tokenizer &tokenizer, const decode_options &options)
    : tokenizer_(tokenizer),
      options_(options),
      chain_(std::make_unique<decode_chain>(tokenizer.parts_->decoders)) {}
text_stream::~text_stream() = default;
text_stream::text_stream(text_stream &&) noexcept = default;

std::string text_stream::push(int32_t id) {
    const std::string_view token = tokenizer_.token_of(id);
    if (token.empty() || (options_.skip_special && tokenizer_.is_special(id))) return "";
    return chain_->push(token);
}

std::string text_stream::finish() {
    std::string text = chain_->finish();
    chain_ = std::make_unique<decode_chain>(tokenizer_.parts_->decoders);
    return text;
}

}  // namespace moorage::core
