// unread_keys.h - keys of a GGUF file that nothing has read. Keys that need other arithmetic are
// refused by name; unknown keys give a warning.
#pragma once

#include "core/model/architectures.h"
#include "core/model/gguf_reader.h"

namespace moorage::core {

// Call it after all keys that the model uses were read from `reader`. Errors go to `reader`.
void refuse_unread_keys(gguf_reader &reader, const architecture &arch);

}  // namespace moorage::core
