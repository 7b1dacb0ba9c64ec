// words.h - converts a tokenizer between the kinds of files.
//
// The result is read back and cuts a list of test texts. If it cuts any of them differently from
// the source, it is refused. GGUF has no patterns, but a name for each known way to cut texts into
// words. The first name that cuts the texts like the source is used.
#pragma once

#include <filesystem>
#include <string>

#include "core/base/result.h"
#include "tools/convert/gguf_writer.h"
#include "core/model/gguf.h"
#include "core/model/model.h"

namespace moorage::core {

// Writes the keys for a directory's tokenizer.json and the texts beside it. A directory without a
// tokenizer has "none". `model`: the model in the directory.
status put_tokenizer(const model &model, gguf_keys &keys);
// The tokenizer.json for a GGUF file; empty: it has no tokenizer.
result<std::string> tokenizer_json_of(const gguf_files &files);

}  // namespace moorage::core
