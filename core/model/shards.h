// shards.h - the safetensors files of a model directory: a single one, or several with an index.
//
//   auto opened = shards::open("models/demo");
//   const stored_tensor *found = opened->find("model.norm.weight");
//
// Files are mapped and their headers checked; no weight is read.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/base/mapped_file.h"
#include "core/base/result.h"
#include "core/base/safetensors.h"

namespace moorage::core {

struct stored_tensor {
    const tensor *entry;
    const std::string *file;  // its path, for messages
    bool used = false;        // set by the reader of the tensor
    bool listed = true;       // by the index, if there is one
};

class shards {
public:
    // Opens model.safetensors. Otherwise the files that model.safetensors.index.json names, which
    // must be in the directory itself. Otherwise numbered shards, if all are present.
    static result<shards> open(const std::filesystem::path &directory);

    // Null: no such tensor. If the index lists it but no file has it, check_found() will report
    // that.
    stored_tensor *find(std::string_view name);
    // Fails if find() was called for a tensor that the index lists and its file lacks. Requires:
    // all needed tensors were looked up. Warns if index and files disagree.
    status check_found() const;
    // Ordered by file, then by their bytes.
    const std::vector<stored_tensor> &tensors() const { return tensors_; }
    uint32_t file_count() const { return static_cast<uint32_t>(files_.size()); }
    // The place in errors about a missing tensor: the single file, or the index.
    const std::string &error_path() const { return error_path_; }

private:
    struct file {
        std::string path;
        mapped_file mapped;
        safetensors header;
    };
    status add(const std::filesystem::path &path);
    using weight_map = std::map<std::string, std::string>;  // tensor to file
    status add_indexed(const std::filesystem::path &directory);
    void add_tensors(const weight_map &index);
    void note_absent(const weight_map &index);
    status add_numbered(const std::filesystem::path &directory);
    void index_all_tensors();

    std::vector<std::unique_ptr<file>> files_;  // pointers, so that files do not move
    std::vector<stored_tensor> tensors_;
    std::unordered_map<std::string_view, size_t> indices_;
    // Tensors that the index lists but its files lack, with the reason.
    std::map<std::string, std::string, std::less<>> absent_;
    std::string first_missing_;  // the first of them that was looked up
    std::string error_path_;
};

}  // namespace moorage::core
