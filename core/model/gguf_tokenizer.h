// gguf_tokenizer.h - the tokenizer inside a GGUF file.
//
//   auto words = open_gguf_tokenizer(files);   // null: the file has none
//
// Byte-level BPE, whose way to cut texts into words has a name in the file (`tokenizer.ggml.pre`),
// and the BPE of SentencePiece, which merges by scores. The rules are llama.cpp's, which gives the
// names their meaning. So are those of unigram models ("t5").
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/base/json_fwd.h"
#include "core/base/result.h"
#include "core/model/gguf.h"
#include "core/model/tokenizer.h"

namespace moorage::core {

result<std::unique_ptr<tokenizer>> open_gguf_tokenizer(const gguf_files &of);
std::vector<std::string> known_pre_tokenizers();
// One name for each way to cut texts.
std::vector<std::string> distinct_pre_tokenizers();
// The same tokenizer as a tokenizer.json; null: the file has none. Unigram models are refused.
result<nlohmann::json> describe_gguf_tokenizer(const gguf_files &of);

}  // namespace moorage::core
