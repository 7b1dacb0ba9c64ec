// gguf.h - reads and checks the header of a GGUF file, and opens a model's files: tensors by name,
// metadata.
//
//   auto opened = gguf_files::open("model-00001-of-00003.gguf");   // or the one file
//   const gguf_tensor *found = opened->find("blk.0.attn_q.weight");
//   opened->metadata().find("general.architecture")
//
// Files are mapped, and no weight is read. Every count, length, offset and alignment is checked
// before it is used. The format is in github.com/ggml-org/ggml, docs/gguf.md, version 3. Version 2
// has the same layout.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "core/base/mapped_file.h"
#include "core/base/result.h"
#include "core/model/weight_types.h"

namespace moorage::core {

// The type of a value, or of an array's elements.
enum class gguf_type : uint32_t {
    u8,
    i8,
    u16,
    i16,
    u32,
    i32,
    f32,
    boolean,
    text,
    array,
    u64,
    i64,
    f64
};

// The numbers of an array, in the file's own layout.
struct gguf_numbers {
    uint32_t type;  // of an element, as in the file
    std::span<const std::byte> bytes;
    uint64_t count;
    double at(uint64_t index) const;
};
using gguf_texts = std::vector<std::string_view>;
// An array of arrays. It is checked and skipped: no key that is read has this type.
struct gguf_lists {
    uint64_t count;
};
// Integers of any width are int64_t, except unsigned ones of 64 bits, which are uint64_t.
using gguf_value = std::variant<bool, int64_t, uint64_t, double, std::string_view, gguf_numbers,
                                gguf_texts, gguf_lists>;
using gguf_metadata = std::map<std::string, gguf_value, std::less<>>;

struct gguf_tensor {
    std::string name;
    weight_type type = usual_weights;
    // "26 (I32)" for a type that nothing here computes with. It is an error only for a part that
    // needs the tensor.
    std::string other_type = {};
    std::vector<uint64_t> shape;  // the length of a row comes last, as elsewhere
    uint64_t offset_bytes = 0;    // from the beginning of the data
    uint64_t stored_bytes = 0;
    std::span<const std::byte> bytes;   // empty if only headers were read
    const std::string *file = nullptr;  // its path, for messages
    bool used = false;                  // set by the reader of the tensor
    uint64_t values() const;
    // In ggml's numbering: dimension 0 is the length of a row. Files omit last extents of 1.
    uint64_t extent(size_t dimension) const {
        return dimension < shape.size() ? shape[shape.size() - 1 - dimension] : 1;
    }
    // Without last extents of 1 in ggml's order: 1 for a vector, 2 for a matrix.
    size_t dimensions() const {
        size_t count = shape.size();
        while (count > 1 && extent(count - 1) == 1) --count;
        return count;
    }
};
// Are the shapes equal, apart from extents of 1 that a file may omit?
bool is_same_shape(std::span<const uint64_t> left, std::span<const uint64_t> right);
// "F32, F16, Q4_0 and ...": the types that a part of a model may have.
std::string supported_gguf_types();

// A key as in the file: the number of its type, then its value.
struct gguf_key {
    std::string name;
    std::span<const std::byte> bytes;
};

struct gguf_header {
    gguf_metadata metadata;
    std::vector<gguf_key> keys;  // in the order of the file
    std::vector<gguf_tensor> tensors;
    uint64_t data_offset = 0;  // from the beginning of the file
};
// The purpose of reading: the weights, or only the sizes. For sizes, the file may end after its
// header, but the bytes of every format must be known.
enum class gguf_reading : uint8_t { weights, sizes };
// `file`: the whole file, borrowed. `name`: its name in errors.
result<gguf_header> parse_gguf(std::span<const std::byte> file, const std::string &name,
                               gguf_reading reading = gguf_reading::weights);

// Does the file have GGUF's first four bytes? Also true for a path that ends in .gguf and is no
// directory.
bool is_gguf(const std::filesystem::path &path);

class gguf_files {
public:
    // A single file, or the first of a split model. The others must be beside it.
    static result<gguf_files> open(const std::filesystem::path &path,
                                   gguf_reading reading = gguf_reading::weights);
    // One file in memory, borrowed. `name` is its name in errors. For tests and the fuzz target.
    static result<gguf_files> parse(std::span<const std::byte> bytes, const std::string &name,
                                    gguf_reading reading = gguf_reading::weights);

    // Those of the first file, because only it has all keys.
    const gguf_metadata &metadata() const { return metadata_; }
    const std::vector<gguf_key> &keys() const { return keys_; }
    gguf_tensor *find(std::string_view name);  // null: no such tensor
    const gguf_tensor *find(std::string_view name) const;
    const std::vector<gguf_tensor> &tensors() const { return tensors_; }
    uint32_t file_count() const { return static_cast<uint32_t>(files_.size()); }
    const std::string &first_path() const { return files_.front()->path; }
    // "layer 3 has no tensor blk.3.nextn.*" if one of the last `mtp_layers` of `layers` layers is
    // not made to predict further tokens; "": all are.
    std::string find_non_mtp_layer(uint64_t layers, uint64_t mtp_layers) const;

private:
    struct file {
        std::string path;
        mapped_file mapped;
    };
    result<gguf_header> add(const std::filesystem::path &path);
    result<gguf_header> add(std::span<const std::byte> bytes);
    status add_split_parts(const std::filesystem::path &path);
    status index_tensors();

    gguf_reading reading_ = gguf_reading::weights;

    std::vector<std::unique_ptr<file>> files_;  // pointers, so that files do not move
    gguf_metadata metadata_;
    std::vector<gguf_key> keys_;
    std::vector<gguf_tensor> tensors_;
    std::map<std::string_view, size_t> indices_;
};

// The value of a key as a number, a text, ...; none: the key has another type or does not exist.
// gguf_reader.h distinguishes the two.
std::optional<double> gguf_number(const gguf_metadata &metadata, std::string_view key);
std::optional<uint64_t> gguf_count(const gguf_metadata &metadata, std::string_view key);
std::optional<std::string_view> gguf_text(const gguf_metadata &metadata, std::string_view key);

}  // namespace moorage::core
