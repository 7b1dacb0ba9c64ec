// tokenizer.h - text to token ids and back, following a Hugging Face tokenizer.json.
//
//   auto opened = tokenizer::open("models/demo/tokenizer.json");
//   std::vector<int32_t> ids = *(*opened)->encode("To be", {});
//   std::string text = (*opened)->decode(ids, {});
//
// Supports byte-level BPE (GPT-2, Llama 3, Qwen, DeepSeek, OLMo) and the metaspace BPE of Llama 2,
// Mistral and Phi-3. Both come with normalisers, split patterns, added tokens, byte fallback and
// the post-processor's begin and end tokens. An unknown component is an error that names it. The
// file's truncation and padding are ignored.
//
// decode(encode(x)) is x for any UTF-8 if all of these hold: the tokenizer is byte-level; its
// normaliser does not change x (no normaliser: any x; NFC: x in NFC); no added token strips white
// space; special tokens are not skipped, or not parsed.
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
    bool add_special = true;    // adds what the post-processor puts around a text
    bool parse_special = true;  // recognises special tokens written in the text
};
struct decode_options {
    bool skip_special = true;
};

// The place of a model's tokenizer: "tokenizer.json", or "tokenizer.ggml.model" of a GGUF file.
const char *tokenizer_place(const std::filesystem::path &model);

class tokenizer {
public:
    static result<std::unique_ptr<tokenizer>> open(const std::filesystem::path &file);
    // The tokenizer of a model: a directory's tokenizer.json, or that of a GGUF file. Null: none.
    static result<std::unique_ptr<tokenizer>> open_for_model(const std::filesystem::path &model);
    static std::unique_ptr<tokenizer> make(tokenizer_parts parts);
    // `name` stands for the file in messages. For tests and the fuzz target.
    static result<std::unique_ptr<tokenizer>> parse(std::string_view json, const std::string &name);
    ~tokenizer();

    // Encodes any bytes, at most 1 GiB. Bytes that are not UTF-8 are encoded as U+FFFD: one for
    // each maximal part of a character, as Python's "replace" does. Thread-safe. Errors: the
    // vocabulary lacks a needed token and has no unknown token; a pattern of the file gives up on
    // the text.
    result<std::vector<int32_t>> encode(std::string_view text, const encode_options &options) const;
    // Ids without a token are skipped. Bytes that are not complete UTF-8 become U+FFFD.
    // Thread-safe.
    std::string decode(std::span<const int32_t> ids, const decode_options &options) const;

    uint32_t size() const;                        // all ids are below it
    int32_t id_of(std::string_view token) const;  // as written in the vocabulary; -1: none
    std::string_view token_of(int32_t id) const;  // as written in the vocabulary; empty: none
    bool is_special(int32_t id) const;

private:
    friend class text_stream;
    explicit tokenizer(std::unique_ptr<tokenizer_parts> parts);
    status encode_part(std::string_view text, bool first, const encode_options &options,
                       std::vector<int32_t> &ids) const;
    std::unique_ptr<tokenizer_parts> parts_;
};

// Decodes a stream of ids token by token. It returns text as soon as it is certain and never half a
// character. All pieces together equal decode() of all ids.
class text_stream {
public:
    text_stream(const tokenizer &tokenizer, const decode_options &options);  // borrowed
    ~text_stream();
    text_stream(text_stream &&) noexcept;
    std::string push(int32_t id);
    std::string finish();  // returns the rest, with incomplete characters as U+FFFD; then starts
                           // anew

private:
    const tokenizer &tokenizer_;
    decode_options options_;
    std::unique_ptr<decode_chain> chain_;
};

}  // namespace moorage::core
