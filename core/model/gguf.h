// gguf.h - the checked header of a GGUF file, and a model's files opened: tensors by name,
// metadata.
//
//   auto opened = gguf_files::open("model-00001-of-00003.gguf");   // or the one file
//   const gguf_tensor *found = opened->find("blk.0.attn_q.weight");
//   opened->metadata().find("general.architecture")
//
// Files are mapped; no weight is read. Every count, length, offset and alignment is checked before
// it is used. The format: github.com/ggml-org/ggml, docs/gguf.md, version 3 (and 2, which has the
// same layout).
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

// Of values and of the elements of arrays.
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

// Numbers of an array as they lie in the file, or texts.
struct gguf_numbers {
    uint32_t type;  // of an element, as the file says it
    std::span<const std::byte> bytes;
    uint64_t count;
    double at(uint64_t index) const;
};
using gguf_texts = std::vector<std::string_view>;
// Lists of an array, checked and passed over: no key that is read holds any.
struct gguf_lists {
    uint64_t count;
};
// Whole numbers of any width are int64_t (those of 64 bits without a sign uint64_t).
using gguf_value = std::variant<bool, int64_t, uint64_t, double, std::string_view, gguf_numbers,
                                gguf_texts, gguf_lists>;
using gguf_metadata = std::map<std::string, gguf_value, std::less<>>;

struct gguf_tensor {
    std::string name;
    weight_type type = usual_weights;
    // "26 (I32)", where nothing here computes with the type; only a part that needs it objects.
    std::string other_type = {};
    std::vector<uint64_t> shape;  // the length of a row last, as elsewhere
    uint64_t offset_bytes = 0;    // from where the data begins
    uint64_t stored_bytes = 0;
    std::span<const std::byte> bytes;   // as many; none where only headers were read
    const std::string *file = nullptr;  // its path, for messages
    bool used = false;                  // set by who reads it
    uint64_t values() const;
    // By ggml's number: 0 is the length of a row. Files leave out last extents of 1.
    uint64_t extent(size_t dimension) const {
        return dimension < shape.size() ? shape[shape.size() - 1 - dimension] : 1;
    }
};
// Whether they differ by extents of 1 alone that a file may leave out.
bool is_same_shape(std::span<const uint64_t> one, std::span<const uint64_t> other);
// "F32, F16, Q4_0 and ...": the types that a part may have.
std::string supported_gguf_types();

// A key as it lies in the file: the number of its type, then its value.
struct gguf_key {
    std::string name;
    std::span<const std::byte> bytes;
};

struct gguf_header {
    gguf_metadata metadata;
    std::vector<gguf_key> keys;  // in the order of the file
    std::vector<gguf_tensor> tensors;
    uint64_t data_offset = 0;  // in the file
};
// What of a file is wanted: its weights; or its sizes alone, for which the file may end behind its
// header and every format's bytes have to be known.
enum class gguf_reading : uint8_t { weights, sizes };
// `file` is the whole file, borrowed; `name` is what errors call it.
result<gguf_header> parse_gguf(std::span<const std::byte> file, const std::string &name,
                               gguf_reading what = gguf_reading::weights);

// Whether the path is that of a file with GGUF's first four bytes, or ends in .gguf and is no
// directory.
bool is_gguf(const std::filesystem::path &path);

class gguf_files {
public:
    // The file, or the first of a split model whose others lie beside it.
    static result<gguf_files> open(const std::filesystem::path &path,
                                   gguf_reading what = gguf_reading::weights);
    // One file in memory, borrowed, under a name for messages. For tests and the fuzz target.
    static result<gguf_files> parse(std::span<const std::byte> bytes, const std::string &name,
                                    gguf_reading what = gguf_reading::weights);

    // Of the first file, which alone has all of it.
    const gguf_metadata &metadata() const { return metadata_; }
    const std::vector<gguf_key> &keys() const { return keys_; }
    gguf_tensor *find(std::string_view name);  // null: no such tensor
    const gguf_tensor *find(std::string_view name) const;
    const std::vector<gguf_tensor> &tensors() const { return tensors_; }
    uint32_t file_count() const { return static_cast<uint32_t>(files_.size()); }
    const std::string &place() const { return files_.front()->path; }

private:
    struct file {
        std::string path;
        mapped_file mapped;
    };
    result<gguf_header> add(const std::filesystem::path &path);
    result<gguf_header> add(std::span<const std::byte> bytes);
    status add_others(const std::filesystem::path &path);
    status index();

    gguf_reading what_ = gguf_reading::weights;

    std::vector<std::unique_ptr<file>> files_;  // stay where they are: others point into them
    gguf_metadata metadata_;
    std::vector<gguf_key> keys_;
    std::vector<gguf_tensor> tensors_;
    std::map<std::string_view, size_t> numbers_;
};

// The value of a key as a number, a text, ...; none: another type, or no such key. gguf_reader.h
// tells the two apart.
std::optional<double> gguf_number(const gguf_metadata &of, std::string_view key);
std::optional<uint64_t> gguf_count(const gguf_metadata &of, std::string_view key);
std::optional<std::string_view> gguf_text(const gguf_metadata &of, std::string_view key);

}  // namespace moorage::core
