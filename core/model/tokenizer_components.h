// tokenizer_components.h - reads the components of a tokenizer.json by their type. Has the tables
// of known types.
#pragma once

#include <vector>

#include "core/model/tokenizer_reader.h"
#include "core/model/tokenizer_steps.h"
#include "core/model/tokenizer_decode.h"

namespace moorage::core {

// Each appends the steps of one component, or of all components of a Sequence. Problems go to
// `reader`.
void read_normalizer(const component_reader &reader, std::vector<normalizer_step> &steps);
void read_pre_tokenizer(const component_reader &reader, std::vector<word_step> &steps);
void read_decoder(const component_reader &reader, std::vector<decoder_step> &steps);

// The tokens that a post-processor puts around a text. `size`: ids are below it.
struct text_frame {
    std::vector<int32_t> prefix, suffix;
};
void read_post_processor(const component_reader &reader, uint32_t size, text_frame &frame);

}  // namespace moorage::core
