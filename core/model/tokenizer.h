// tokenizer.h - text to token ids and back, as a Hugging Face tokenizer.json says.
//
//   auto opened = tokenizer::open("models/demo/tokenizer.json");
//   std::vector<int32_t> ids = *(*opened)->encode("To be", {});
//   std::string text = (*opened)->decode(ids, {});
//
// Byte-level BPE (GPT-2, Llama 3, Qwen, DeepSeek, OLMo) and the metaspace BPE of Llama 2, Mistral
// and Phi-3, with normalisers, split patterns, added tokens, byte fallback and the post-processor's
// begin and end tokens. A component it does not know is an error that names it.
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

struct encode_options {
    bool add_special = true;    // what the post-processor adds around a text
    bool parse_special = true;  // special tokens written in the text count as such
};
struct decode_options {
    bool skip_special = true;
};

class tokenizer {
public:
    static result<std::unique_ptr<tokenizer>> open(const std::filesystem::path &file);
    // `name` stands for the file in messages. For tests and the fuzz target.
    static result<std::unique_ptr<tokenizer>> parse(std::string_view json, const std::string &name);
    ~tokenizer();

    // Any bytes; those that are not UTF-8 are encoded as what U+FFFD stands for, as the reference
    // does. Thread-safe. Errors: the vocabulary lacks what the text needs and has no unknown token.
    result<std::vector<int32_t>> encode(std::string_view text, const encode_options &options) const;
    // Ids that are out of range are left out. Bytes that are no complete UTF-8 become U+FFFD.
    std::string decode(std::span<const int32_t> ids, const decode_options &options) const;

    uint32_t size() const;                        // ids are below it
    int32_t id_of(std::string_view token) const;  // as written in the vocabulary; -1: none
    bool special(int32_t id) const;

private:
    struct parts;
    explicit tokenizer(std::unique_ptr<parts> made);
    std::unique_ptr<parts> parts_;
};

// Decodes a stream of ids token by token and hands out text as soon as it is certain: never half a
// character.
class text_stream {
public:
    text_stream(const tokenizer &of, const decode_options &options);  // borrowed
    std::string push(int32_t id);
    std::string finish();  // what is left, incomplete characters as U+FFFD

private:
    const tokenizer &tokenizer_;
    decode_options options_;
    std::vector<int32_t> ids_;
    size_t shown_ = 0;   // bytes of the window's text already handed out
    size_t window_ = 0;  // first id that may still change the text to come
};

}  // namespace moorage::core
