// tokenizer.h - text to token ids and back, as a Hugging Face tokenizer.json says.
//
//   auto opened = tokenizer::open("models/demo/tokenizer.json");
//   std::vector<int32_t> ids = *(*opened)->encode("To be", {});
//   std::string text = (*opened)->decode(ids, {});
//
// Byte-level BPE (GPT-2, Llama 3, Qwen, DeepSeek, OLMo) and the metaspace BPE of Llama 2, Mistral
// and Phi-3, with normalisers, split patterns, added tokens, byte fallback and the post-processor's
// begin and end tokens. A component it does not know is an error that names it. The file's
// truncation and padding do not apply.
//
// decode(encode(x)) is x, for any UTF-8, where the tokenizer is byte-level and x is what its
// normaliser makes of it (without one: any x; with NFC: x in NFC), without added tokens that take
// space along, and with special tokens not skipped or not parsed.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.h"

namespace moorage::core {

struct tokenizer_parts;
class decode_chain;

struct encode_options {
    bool add_special = true;    // what the post-processor adds around a text
    bool parse_special = true;  // special tokens written in the text count as such
};
struct decode_options {
    bool skip_special = true;
};

// Where a model has its tokenizer: "tokenizer.json", or "tokenizer.ggml.model" of a GGUF file.
const char *tokenizer_place(const std::filesystem::path &model);

class tokenizer {
public:
    static result<std::unique_ptr<tokenizer>> open(const std::filesystem::path &file);
    // Of a model: a directory's tokenizer.json, or what a GGUF file holds. Null: it has none.
    static result<std::unique_ptr<tokenizer>> of_model(const std::filesystem::path &model);
    static std::unique_ptr<tokenizer> make(tokenizer_parts parts);
    // `name` stands for the file in messages. For tests and the fuzz target.
    static result<std::unique_ptr<tokenizer>> parse(std::string_view json, const std::string &name);
    ~tokenizer();

    // Any bytes, 1 GiB at most; those that are not UTF-8 are encoded as what U+FFFD stands for (one
    // for each maximal part of a character, as Python's "replace"). Thread-safe. Errors: the
    // vocabulary lacks what the text needs and has no unknown token; a pattern of the file that
    // gives up on the text.
    result<std::vector<int32_t>> encode(std::string_view text, const encode_options &options) const;
    // Ids that are no token's are left out. Bytes that are no complete UTF-8 become U+FFFD.
    // Thread-safe.
    std::string decode(std::span<const int32_t> ids, const decode_options &options) const;

    uint32_t size() const;                        // ids are below it
    int32_t id_of(std::string_view token) const;  // as written in the vocabulary; -1: none
    std::string_view token_of(int32_t id) const;  // likewise; empty: none
    bool special(int32_t id) const;

private:
    friend class text_stream;
    explicit tokenizer(std::unique_ptr<tokenizer_parts> made);
    status encode_part(std::string_view text, bool first, const encode_options &options,
                       std::vector<int32_t> &ids) const;
    std::unique_ptr<tokenizer_parts> parts_;
};

// Decodes a stream of ids token by token and hands out text as soon as it is certain: never half a
// character. All pieces together are what decode() makes of all ids.
class text_stream {
public:
    text_stream(const tokenizer &of, const decode_options &options);  // borrowed
    ~text_stream();
    text_stream(text_stream &&) noexcept;
    std::string push(int32_t id);
    std::string finish();  // what is left, incomplete characters as U+FFFD; then begins anew

private:
    const tokenizer &tokenizer_;
    decode_options options_;
    std::unique_ptr<decode_chain> chain_;
};

}  // namespace moorage::core
