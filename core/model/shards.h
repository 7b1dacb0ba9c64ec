// shards.h - the safetensors files of a model directory: one, or several behind an index.
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
    const tensor *what;
    const std::string *file;  // its path, for messages
    bool used = false;        // set by who reads it
    bool listed = true;       // by the index, where there is one
};

class shards {
public:
    // model.safetensors, or else the files that model.safetensors.index.json names, which have to
    // lie in the directory itself; or else numbered shards that are all there.
    static result<shards> open(const std::filesystem::path &directory);

    // Null: no such tensor. One that the index promises in vain is remembered for check_found().
    stored_tensor *find(std::string_view name);
    // Fails where somebody looked for a tensor that the index has and its file does not. Requires:
    // all that is needed was looked for. Warns of what index and files disagree in.
    status check_found() const;
    // In the order of files and of their bytes.
    const std::vector<stored_tensor> &tensors() const { return tensors_; }
    uint32_t file_count() const { return static_cast<uint32_t>(files_.size()); }
    // What an error about a missing tensor calls the place: the one file, or the index.
    const std::string &place() const { return place_; }

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
    void number_all();

    std::vector<std::unique_ptr<file>> files_;  // stay where they are: others point into them
    std::vector<stored_tensor> tensors_;
    std::unordered_map<std::string_view, size_t> numbers_;
    // What the index says and its files do not hold: tensor to the reason.
    std::map<std::string, std::string, std::less<>> absent_;
    std::string wanted_;  // the first of them that somebody looked for
    std::string place_;
};

}  // namespace moorage::core
