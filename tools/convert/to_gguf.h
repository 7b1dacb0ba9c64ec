// to_gguf.h - writes a model from any kind of file as a GGUF file.
#pragma once

#include "tools/convert/convert.h"
#include "tools/convert/recipe.h"

namespace moorage::core {

result<convert_report> convert_to_gguf(const convert_request &request, const recipe &recipe,
                                       thread_pool &pool);

}  // namespace moorage::core
