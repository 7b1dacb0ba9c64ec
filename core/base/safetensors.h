// safetensors.h - the checked header of a safetensors file: tensors by name, and metadata.
//
//   auto parsed = parse_safetensors(bytes, "demo.safetensors");
//   if (!parsed) return parsed.failure();
//   const tensor *found = parsed->find("experts");
//
// The parser is as strict as the format. It checks the 8-byte little-endian header length, a JSON
// object from the first byte, string metadata, known types, shapes whose product fits, and data
// offsets that cover the rest of the file without overlap or gap. The caller checks the values of
// the tensors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "core/base/result.h"

namespace moorage::core {

enum class dtype : uint8_t {
    boolean,
    u8,
    i8,
    f8_e5m2,
    f8_e4m3,
    u16,
    i16,
    f16,
    bf16,
    u32,
    i32,
    f32,
    u64,
    i64,
    f64,
    // Types that nothing here computes with.
    f4,
    f6_e2m3,
    f6_e3m2,
    f8_e8m0,
    f8_e4m3fnuz,
    f8_e5m2fnuz,
    c64
};
uint64_t bits_of(dtype type);     // of one element
uint64_t bytes_of(dtype type);    // of one element; F4 and F6, which may share a byte: 1
const char *name_of(dtype type);  // "U8", as in the file

struct tensor {
    std::string name;
    dtype type = dtype::u8;
    std::vector<uint64_t> shape;       // empty: a scalar
    std::span<const std::byte> bytes;  // borrowed from the file; not aligned to the element size
    uint64_t elements() const { return bytes.size() * 8 / bits_of(type); }
};

struct safetensors {
    std::vector<tensor> tensors;  // in the order of their bytes in the file
    std::map<std::string, std::string> metadata;
    const tensor *find(const std::string &name) const;  // null: no such tensor
};

// Longest accepted header, as in the format's reference reader.
inline constexpr uint64_t header_bytes_max = 100'000'000;

// `file`: the whole file. `name`: its name in errors.
result<safetensors> parse_safetensors(std::span<const std::byte> file, const std::string &name);

// "[3, 4]"
std::string shape_text(std::span<const uint64_t> shape);
// For messages: a text from a file, cut at 60 bytes, with control characters replaced.
std::string printable(std::string_view text);

}  // namespace moorage::core
