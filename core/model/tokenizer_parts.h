// tokenizer_parts.h - the contents of a tokenizer.json, for tokenizer.cpp.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/base/json_fwd.h"
#include "core/base/result.h"
#include "core/model/bpe.h"
#include "core/model/tokenizer_added.h"
#include "core/model/tokenizer_decode.h"
#include "core/model/tokenizer_steps.h"
#include "core/model/unigram.h"

namespace moorage::core {

// Members are in the order in which a text passes through them.
struct tokenizer_parts {
    std::string name = {};  // of the file, for messages
    added_token_finder added_raw = {};
    std::vector<normalizer_step> normalizers = {};
    added_token_finder added_normalized = {};
    std::vector<word_step> word_steps = {};
    bpe model;
    std::optional<unigram> pieces = {};  // cuts texts instead of `model`, which has the words
    std::vector<int32_t> prefix = {}, suffix = {};  // from the post-processor
    std::vector<decoder_step> decoders = {};

    std::unordered_map<int32_t, added_token> added = {};  // by id
    std::unordered_map<std::string, int32_t> added_ids = {};
    uint32_t size = 0;  // ids are below it
};

// Errors name the file, the place in it, and the known values if one is unknown.
result<tokenizer_parts> parse_tokenizer(std::string_view text, const std::string &name);
// From a tokenizer.json without its model, which is given.
result<tokenizer_parts> make_tokenizer(const nlohmann::json &root, const std::string &name,
                                       bpe model);

}  // namespace moorage::core
