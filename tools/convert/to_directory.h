// to_directory.h - writes a model from any kind of file as a directory in Hugging Face layout.
#pragma once

#include "tools/convert/convert.h"
#include "core/model/weight_types.h"

namespace moorage::core {

// `type`: bf16, f16, f32 or fp8.
result<convert_report> convert_to_directory(const convert_request &request, weight_type type,
                                            thread_pool &pool);

}  // namespace moorage::core
