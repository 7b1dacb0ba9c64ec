// model_files.h - copies of small model directories, for tests to edit and damage.
#pragma once

#include <unistd.h>

#include <cstddef>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <span>
#include <string>
#include <vector>

#include "core/base/json.h"
#include "core/base/safetensors.h"
#include "tests/unit/trace_file.h"

namespace moorage::test {

inline std::string read_file(const std::filesystem::path &path) {
    std::ifstream input(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(input), {}};
}
inline void write_file(const std::filesystem::path &path, const std::string &content) {
    std::ofstream output(path, std::ios::binary | std::ios::trunc);
    output.write(content.data(), static_cast<std::streamsize>(content.size()));
}
inline void write_file(const std::filesystem::path &path, const std::vector<std::byte> &content) {
    write_file(path, std::string(reinterpret_cast<const char *>(content.data()), content.size()));
}

inline std::filesystem::path golden_directory(const std::string &name) {
    return std::filesystem::path(MOORAGE_SOURCE_DIR) / "tests/golden" / name;
}

// A directory that is removed with the object.
class scratch_directory {
public:
    scratch_directory() {
        std::string name = (std::filesystem::temp_directory_path() / "moorage-XXXXXX").string();
        path_ = ::mkdtemp(name.data()) == nullptr ? "" : name;
    }
    // Has the files of a model, except golden.safetensors.
    explicit scratch_directory(const std::filesystem::path &source) : scratch_directory() {
        for (const auto &file : std::filesystem::directory_iterator(source))
            if (file.path().filename() != "golden.safetensors")
                std::filesystem::copy_file(file.path(), path_ / file.path().filename());
    }
    scratch_directory(const scratch_directory &) = delete;
    ~scratch_directory() {
        std::error_code code;
        if (!path_.empty()) std::filesystem::remove_all(path_, code);
    }
    const std::filesystem::path &path() const { return path_; }

    // Replaces some keys of config.json; null removes one.
    void edit_config(const core::json &changes) const {
        core::json config = core::parse_json(read_file(path_ / "config.json"));
        for (const auto &[key, value] : changes.items()) {
            config.erase(key);
            if (!value.is_null()) config[key] = value;
        }
        write_file(path_ / "config.json", config.dump());
    }
    // model.safetensors as parts to edit, and back.
    raw_file read_weights() const {
        const std::string content = read_file(path_ / "model.safetensors");
        const auto parsed = core::parse_safetensors(
            std::as_bytes(std::span(content.data(), content.size())), "model.safetensors");
        raw_file file;
        for (const core::tensor &tensor : parsed->tensors)
            file.tensors.push_back({tensor.name,
                                    core::name_of(tensor.type),
                                    core::shape_text(tensor.shape),
                                    {tensor.bytes.begin(), tensor.bytes.end()}});
        return file;
    }
    void write_weights(const raw_file &file) const {
        write_file(path_ / "model.safetensors", file.build());
    }

private:
    std::filesystem::path path_;
};

}  // namespace moorage::test
