// convert.h - a model from one kind of file to another: directories and GGUF files, in any format
// that can be written.
//
//   auto done = convert_model({.in = "models/demo", .out = "demo.gguf", .format = "q4_k_m"}, pool);
//   if (!done) return done.failure();
//
// Where the source ends in a file of the same format, its bytes are copied. Nothing larger than a
// part of a tensor is held in memory; what is written appears only when it is whole, and the same
// bytes come out for any number of threads. What the other kind of file cannot say of a model is
// refused by name before any matrix is written.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>

#include "core/base/result.h"
#include "core/execute/cpu/thread_pool.h"

namespace moorage::core {

struct convert_request {
    std::filesystem::path in;
    std::filesystem::path out;  // FILE.gguf, or else a directory that is not there yet
    std::string format;         // a recipe (recipe.h); of directories bf16, f16, f32, fp8
    bool pure = false;          // of a GGUF file: all matrices alike, the head and what else is
                                // sensitive too
};

struct convert_count {
    uint64_t tensors = 0, bytes = 0;
};
struct convert_report {
    std::map<std::string, convert_count> formats;  // by name
    uint64_t bytes = 0;                            // of all weights written
    uint64_t replaced = 0;  // matrices whose rows are no whole blocks of the recipe's format
};
result<convert_report> convert_model(const convert_request &what, thread_pool &pool);

}  // namespace moorage::core
