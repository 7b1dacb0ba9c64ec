// words.h - a tokenizer from one kind of file to the other.
//
// What is written is read back and cuts a list of texts; where any is cut otherwise than by the
// source, it is refused. GGUF has a name for each known way to cut texts into words and no pattern:
// the name is the first under which the texts are cut alike.
#pragma once

#include <filesystem>
#include <string>

#include "core/base/result.h"
#include "core/convert/gguf_writer.h"
#include "core/model/gguf.h"
#include "core/model/model.h"

namespace moorage::core {

// Keys of a directory's tokenizer.json and of the texts beside it; a directory without one has
// "none". `of`: the model in the directory.
status put_words(const model &of, gguf_keys &keys);
// tokenizer.json of a GGUF file; empty: it has no tokenizer.
result<std::string> words_of(const gguf_files &of);

}  // namespace moorage::core
