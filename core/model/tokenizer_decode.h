// tokenizer_decode.h - from tokens back to text: a chain of stages that hand on text as soon as it
// is certain.
//
//   decode_chain chain(steps);
//   for (const std::string &token : tokens) shown += chain.push(token);
//   shown += chain.finish();
//
// Each stage does to a list of tokens what the reference does; some make one token of many, and the
// stages behind them see its text in pieces.
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
    kind what = kind::fuse;
    char32_t character = 0;                // metaspace, strip
    bool prepended = true;                 // metaspace: the first token loses its replacements
    uint32_t start = 0, stop = 0;          // strip: characters at most
    std::shared_ptr<const pattern> where;  // replace; shared with the chains at work
    std::string content;                   // replace
};

class decode_stage;

// Replacements may make the text longer, but not beyond grown_bytes_max() of all that was pushed:
// what would go further stays as it is.
class decode_chain {
public:
    // No steps: tokens with a space between them, as the reference does without a decoder.
    explicit decode_chain(std::span<const decoder_step> steps);
    ~decode_chain();
    decode_chain(decode_chain &&) noexcept;

    // The text that is certain now. Requires: `token` is valid UTF-8.
    std::string push(std::string_view token);
    std::string finish();  // nothing may be pushed afterwards

private:
    struct shared_state;
    std::unique_ptr<shared_state> shared_;  // of the stages; where it stays when moved
    std::vector<std::unique_ptr<decode_stage>> stages_;
};

}  // namespace moorage::core
