// gguf_writer.h - writes the header of a GGUF file: keys of every type, and the table of tensors.
//
//   gguf_keys keys;
//   keys.text("general.architecture", "llama").number("llama.block_count", 32);
//   const gguf_layout layout = lay_out(keys, tensors);   // header, offsets, total bytes
//
// Version 3: github.com/ggml-org/ggml, docs/gguf.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tools/convert/target.h"
#include "core/model/gguf.h"

namespace moorage::core {

class gguf_keys {
public:
    gguf_keys &text(std::string_view key, std::string_view value);
    gguf_keys &number(std::string_view key, uint32_t value);
    gguf_keys &real(std::string_view key, double value);  // as float32
    gguf_keys &flag(std::string_view key, bool value);
    gguf_keys &texts(std::string_view key, const std::vector<std::string> &values);
    gguf_keys &reals(std::string_view key, const std::vector<float> &values);
    gguf_keys &numbers(std::string_view key, const std::vector<int32_t> &values);
    gguf_keys &copy(const gguf_key &key);
    gguf_keys &append_keys(const gguf_keys &others);

    uint64_t count() const { return count_; }
    const std::string &bytes() const { return bytes_; }

private:
    gguf_keys &begin(std::string_view key, gguf_type type);
    gguf_keys &begin_array(std::string_view key, gguf_type type, uint64_t count);
    std::string bytes_;
    uint64_t count_ = 0;
};

struct gguf_layout {
    std::string header;             // up to the beginning of the data
    std::vector<uint64_t> offsets;  // of the tensors, from the beginning of the file
    uint64_t bytes = 0;             // of the file
};
gguf_layout lay_out(const gguf_keys &keys, const std::vector<target_tensor> &tensors);

}  // namespace moorage::core
