// gguf_reader.h - typed reads of the keys of a GGUF file with a prefix. The first failure is kept.
//
//   gguf_reader reader(files, "qwen3moe.");
//   const uint64_t layers = reader.count("block_count").value_or(0);
//   if (reader.failed()) return reader.failure();
//
// None means that the file has no such key. A key of another type is a failure that names its type.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.h"
#include "core/model/gguf.h"

namespace moorage::core {

class gguf_reader {
public:
    // `files` is borrowed.
    gguf_reader(const gguf_files &files, std::string prefix)
        : files_(files), prefix_(std::move(prefix)) {}

    // A finite number, or a list with the same number for each layer.
    std::optional<double> number(std::string_view key);
    std::optional<uint64_t> count(std::string_view key);
    std::optional<bool> flag(std::string_view key);
    std::optional<std::string_view> text(std::string_view key);
    // An id below `ids`. -1, which files write for "no token", is also none.
    std::optional<int32_t> id(std::string_view key, uint64_t ids);

    // Has one of the functions above asked for the key?
    bool has_read(std::string_view key) const { return read_keys_.contains(full_key(key)); }
    // All keys with the prefix; the prefix is removed.
    std::vector<std::string_view> prefixed_keys() const;
    const std::string &file_path() const { return files_.first_path(); }

    // Fails with "FILE: PREFIX.KEY WHAT", or "FILE: WHAT".
    void fail(std::string_view key, const std::string &problem);
    void fail(const std::string &problem);
    bool failed() const { return failure_.has_value(); }
    const error &failure() const { return *failure_; }

private:
    std::string full_key(std::string_view key) const { return prefix_ + std::string(key); }
    const gguf_value *read_key(std::string_view key);
    void fail_type(std::string_view key, const char *wanted_type);

    const gguf_files &files_;
    const std::string prefix_;
    std::set<std::string, std::less<>> read_keys_;
    std::optional<error> failure_;
};

}  // namespace moorage::core
