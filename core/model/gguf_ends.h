// gguf_ends.h - tokens of a GGUF file that end a text, known by their names.
#pragma once

#include <cstdint>
#include <vector>

#include "core/model/gguf.h"

namespace moorage::core {

// A file's keys name up to three end tokens. Many files name one, the end of a text, while the
// model ends its turns with another. Control tokens and those of the user's own count, words of the
// vocabulary do not. In rising order, each below `vocabulary`.
std::vector<int32_t> named_ends_of(const gguf_metadata &keys, uint32_t vocabulary);

}  // namespace moorage::core
