// convert.h - converts a model between directories and GGUF files, in any format that can be
// written.
//
//   auto done = convert_model({.source = "demo", .target = "demo.gguf", .format = "q4_k_m"}, pool);
//   if (!done) return done.failure();
//
// If source and target have the same format, the bytes are copied. Only part of a tensor is in
// memory at a time. The result appears only when it is complete. Its bytes do not depend on the
// number of threads. Facts about a model that the other kind of file cannot express are refused by
// name, before any matrix is written.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>

#include "core/base/result.h"
#include "core/execute/thread_pool.h"

namespace moorage::core {

struct convert_request {
    std::filesystem::path source;
    std::filesystem::path target;  // FILE.gguf, otherwise a new directory
    std::string format;            // a recipe (recipe.h); for directories bf16, f16, f32, fp8
    bool pure = false;             // GGUF only: all matrices get one format, including the head and
                                   // other sensitive ones
};

struct convert_count {
    uint64_t tensors = 0, bytes = 0;
};
struct convert_report {
    std::map<std::string, convert_count> formats;  // by name
    uint64_t bytes = 0;                            // of all written weights
    uint64_t replaced = 0;  // matrices whose rows do not divide into blocks of the recipe's format
};
result<convert_report> convert_model(const convert_request &request, thread_pool &pool);

}  // namespace moorage::core
