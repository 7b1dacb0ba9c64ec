// gguf_tokenizer.h - the tokenizer inside a GGUF file.
//
//   auto tokenizer = open_gguf_tokenizer(files);   // null: the file has none
//
// Byte-level BPE, with the rule for cutting texts into words named in the file
// (`tokenizer.ggml.pre`), and the BPE of SentencePiece, which merges by scores. Unigram models
// ("t5") are read, too. All rules are llama.cpp's, which defines these names.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/base/json_fwd.h"
#include "core/base/result.h"
#include "core/model/gguf.h"
#include "core/model/tokenizer.h"

namespace moorage::core {

result<std::unique_ptr<tokenizer>> open_gguf_tokenizer(const gguf_files &files);
std::vector<std::string> known_pre_tokenizers();
// One name for each distinct rule for cutting texts.
std::vector<std::string> distinct_pre_tokenizers();
// The tokenizer as a tokenizer.json; null: the file has none. Fails for unigram models.
result<nlohmann::json> describe_gguf_tokenizer(const gguf_files &files);

}  // namespace moorage::core
