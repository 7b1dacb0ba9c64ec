// shards.cpp - finds, maps and indexes the safetensors files of a directory.
#include "core/model/shards.h"

#include <map>
#include <utility>

#include "core/base/json.h"
#include "core/base/text.h"

namespace moorage::core {

namespace {

namespace fs = std::filesystem;

constexpr const char *single_name = "model.safetensors",
                     *index_name = "model.safetensors.index.json";
constexpr uint64_t index_bytes_max = 64u << 20;  // DeepSeek-V3's has 9 MB
constexpr size_t files_max = 10'000;

using weight_map = std::map<std::string, std::string>;  // tensor to file

// A name of a file in the directory itself.
bool stays_inside(const std::string &name) {
    return !name.empty() && name != "." && name != ".." && name.find('/') == std::string::npos &&
           name.find('\\') == std::string::npos && name.find('\0') == std::string::npos;
}

// The library's sorted objects: with those that keep the order of keys, reading takes a time that
// grows with the square of their number.
result<weight_map> read_index(const fs::path &path) {
    const result<mapped_file> mapped = mapped_file::open(path);
    if (!mapped) return mapped.failure();
    const std::string name = path.string();
    if (mapped->bytes().size() > index_bytes_max)
        return error{format("{}: {} bytes are more than the {} that an index may have", name,
                            mapped->bytes().size(), index_bytes_max)};
    const char *text = reinterpret_cast<const char *>(mapped->bytes().data());
    const nlohmann::json root =
        nlohmann::json::parse(text, text + mapped->bytes().size(), nullptr, false);
    if (root.is_discarded()) return error{format("{}: not valid JSON", name)};
    if (!root.is_object() || !root.contains("weight_map") || !root["weight_map"].is_object())
        return error{format("{}: weight_map, an object from tensors to files, is missing", name)};
    weight_map files;
    for (const auto &[tensor, file] : root["weight_map"].items()) {
        if (!file.is_string() || !stays_inside(file.get<std::string>()))
            return error{
                format("{}: tensor {} is placed in {}, which is no name of a file in "
                       "this directory",
                       name, shown(tensor),
                       shown(file.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)))};
        files.emplace(tensor, file.get<std::string>());
    }
    return files;
}

}  // namespace

status shards::add(const fs::path &path) {
    auto made = std::make_unique<file>();
    made->path = path.string();
    result<mapped_file> mapped = mapped_file::open(path);
    if (!mapped) return mapped.failure();
    made->mapped = std::move(*mapped);
    result<safetensors> header = parse_safetensors(made->mapped.bytes(), made->path);
    if (!header) return header.failure();
    made->header = std::move(*header);
    files_.push_back(std::move(made));
    return success();
}

status shards::add_indexed(const fs::path &directory) {
    const result<weight_map> index = read_index(directory / index_name);
    if (!index) return index.failure();
    std::map<std::string, size_t> numbers;  // of files, by name
    for (const auto &[tensor, name] : *index) {
        if (!numbers.emplace(name, 0).second) continue;
        if (numbers.size() > files_max)
            return error{format("{}: names more than {} files", place_, files_max)};
    }
    for (auto &[name, number] : numbers) {
        number = files_.size();
        if (const status added = add(directory / name); !added)
            return error{format("{} (named by {})", added.failure().text, index_name)};
    }
    for (const auto &one : files_)
        for (const tensor &what : one->header.tensors) {
            const auto listed = index->find(what.name);
            if (listed != index->end() && files_[numbers[listed->second]].get() == one.get())
                numbers_.emplace(what.name, tensors_.size());
            tensors_.push_back({&what, &one->path});
        }
    for (const auto &[tensor, name] : *index)
        if (!numbers_.contains(tensor))
            return error{format("{}: tensor {} is placed in {}, which does not hold it", place_,
                                shown(tensor), shown(name))};
    return success();
}

result<shards> shards::open(const fs::path &directory) {
    shards opened;
    std::error_code code;
    if (fs::exists(directory, code) && !fs::is_directory(directory, code))
        return error{
            format("{}: is a file; a model is a directory with its config.json and "
                   "safetensors files, or a .gguf file",
                   directory.string())};
    if (!fs::is_directory(directory, code))
        return error{format("{}: there is no such directory", directory.string())};
    const fs::path single = directory / single_name;
    if (fs::exists(single, code)) {
        opened.place_ = single.string();
        if (const status added = opened.add(single); !added) return added.failure();
        for (const tensor &what : opened.files_[0]->header.tensors) {
            opened.numbers_.emplace(what.name, opened.tensors_.size());
            opened.tensors_.push_back({&what, &opened.files_[0]->path});
        }
        return opened;
    }
    if (!fs::exists(directory / index_name, code))
        return error{
            format("{}: holds neither {} nor {}; other formats have to be converted to "
                   "safetensors first",
                   directory.string(), single_name, index_name)};
    opened.place_ = (directory / index_name).string();
    if (const status added = opened.add_indexed(directory); !added) return added.failure();
    return opened;
}

stored_tensor *shards::find(std::string_view name) {
    const auto found = numbers_.find(name);
    return found == numbers_.end() ? nullptr : &tensors_[found->second];
}

}  // namespace moorage::core
