// tokenizer_decode.h - from tokens back to text, with a chain of stages. Each passes on text as
// soon as it is certain.
//
//   decode_chain chain(steps);
//   for (const std::string &token : tokens) shown += chain.push(token);
//   shown += chain.finish();
//
// Each stage does the same as the reference does with a list of tokens. Some stages join many
// tokens into one; the stages after them get its text in pieces.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/model/tokenizer_pattern.h"

namespace moorage::core {

struct decoder_step {
    enum class kind : uint8_t { byte_level, metaspace, byte_fallback, fuse, replace, strip };
    kind operation = kind::fuse;
    char32_t character = 0;        // metaspace, strip
    bool prepended = true;         // metaspace: removes replacements in the first token
    uint32_t start = 0, stop = 0;  // strip: maximum numbers of characters
    std::shared_ptr<const pattern> match_pattern;  // replace; shared with the chains in use
    std::string content;                           // replace
};

class decode_stage;

// Replacements may make the text longer, up to grown_bytes_max() of all pushed text. Text beyond
// that stays unchanged.
class decode_chain {
public:
    // Without steps: tokens with a space between them, as the reference does without a decoder.
    explicit decode_chain(std::span<const decoder_step> steps);
    ~decode_chain();
    decode_chain(decode_chain &&) noexcept;

    // Returns the text that is now certain. Requires: `token` is valid UTF-8.
    std::string push(std::string_view token);
    std::string finish();  // nothing may be pushed afterwards

private:
    struct shared_state;
    std::unique_ptr<shared_state> shared_;  // of the stages; a pointer, so that it does not move
    std::vector<std::unique_ptr<decode_stage>> stages_;
};

}  // namespace moorage::core
