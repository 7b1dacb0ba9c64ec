// gguf_ends.h - finds the tokens of a GGUF file that end a text, by their names.
#pragma once

#include <cstdint>
#include <vector>

#include "core/model/gguf.h"

namespace moorage::core {

// A file's keys name up to three end tokens. Many files name only the end of a text, while the
// model ends its turns with another token. Control tokens and user-defined tokens are searched,
// ordinary words are not. In ascending order, each below `vocabulary`.
std::vector<int32_t> named_ends_of(const gguf_metadata &keys, uint32_t vocabulary);

}  // namespace moorage::core
