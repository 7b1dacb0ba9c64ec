// unread_keys.h - keys of a GGUF file that nothing has read: those that ask for other arithmetic
// are refused by name, those that nothing here knows are warned of.
#pragma once

#include "core/model/architectures.h"
#include "core/model/gguf_reader.h"

namespace moorage::core {

// `in` has read all keys that the model has a use for; what is wrong goes to it.
void refuse_unread_keys(gguf_reader &in, const architecture &row);

}  // namespace moorage::core
