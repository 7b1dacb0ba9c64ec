// shards.cpp - finds, maps and indexes the safetensors files of a directory.
#include "core/model/shards.h"

#include <algorithm>
#include <set>
#include <utility>

#include "core/base/json.h"
#include "core/base/log.h"
#include "core/base/text.h"
#include "core/model/shard_names.h"

namespace moorage::core {

namespace {

namespace fs = std::filesystem;

constexpr const char *single_name = "model.safetensors",
                     *index_name = "model.safetensors.index.json";
constexpr uint64_t index_bytes_max = 64u << 20;  // DeepSeek-V3's has 9 MB
constexpr size_t files_max = 10'000;

// Is it the name of a file in the directory itself?
bool stays_inside(const std::string &name) {
    return !name.empty() && name != "." && name != ".." && name.find('/') == std::string::npos &&
           name.find('\\') == std::string::npos && name.find('\0') == std::string::npos;
}

// Uses the library's sorted objects. With objects that keep the order of keys, the time grows with
// the square of their number.
result<std::map<std::string, std::string>> read_index(const fs::path &path) {
    const result<mapped_file> mapped = mapped_file::open(path);
    if (!mapped) return mapped.failure();
    const std::string name = path.string();
    if (mapped->bytes().size() > index_bytes_max)
        return error{format("{}: {} bytes are more than the {} that an index may have", name,
                            mapped->bytes().size(), index_bytes_max)};
    const char *text = reinterpret_cast<const char *>(mapped->bytes().data());
    const auto read = read_json_as<nlohmann::json>({text, mapped->bytes().size()});
    if (!read) return error{format("{}: not valid JSON: {}", name, read.failure().text)};
    const nlohmann::json &root = *read;
    if (!root.is_object() || !root.contains("weight_map") || !root["weight_map"].is_object())
        return error{format("{}: weight_map, an object from tensors to files, is missing", name)};
    std::map<std::string, std::string> files;  // tensor to file
    for (const auto &[tensor, file] : root["weight_map"].items()) {
        if (!file.is_string() || !stays_inside(file.get<std::string>()))
            return error{format(
                "{}: tensor {} is placed in {}, which is no name of a file in "
                "this directory",
                name, printable(tensor),
                printable(file.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)))};
        files.emplace(tensor, file.get<std::string>());
    }
    return files;
}

}  // namespace

status shards::add(const fs::path &path) {
    auto opened = std::make_unique<file>();
    opened->path = path.string();
    result<mapped_file> mapped = mapped_file::open(path);
    if (!mapped) return mapped.failure();
    opened->mapped = std::move(*mapped);
    result<safetensors> header = parse_safetensors(opened->mapped.bytes(), opened->path);
    if (!header) return header.failure();
    opened->header = std::move(*header);
    files_.push_back(std::move(opened));
    return success();
}

status shards::add_indexed(const fs::path &directory) {
    const result<weight_map> index = read_index(directory / index_name);
    if (!index) return index.failure();
    std::set<std::string> names;
    for (const auto &[tensor, name] : *index) {
        names.insert(name);
        if (names.size() > files_max)
            return error{format("{}: names more than {} files", error_path_, files_max)};
    }
    std::error_code code;
    for (const std::string &name : names) {
        if (!fs::exists(directory / name, code)) continue;
        if (const status added = add(directory / name); !added)
            return error{format("{} (named by {})", added.failure().text, index_name)};
    }
    add_tensors(*index);
    note_absent(*index);
    return success();
}

// If the index omits a tensor, the file that has it is used, provided that only one has it.
void shards::add_tensors(const weight_map &index) {
    for (const auto &shard : files_)
        for (const tensor &held : shard->header.tensors) {
            const auto entry = index.find(held.name);
            const bool listed = entry != index.end();
            if (listed && fs::path(shard->path).filename() == entry->second)
                indices_.emplace(held.name, tensors_.size());
            if (!listed && !indices_.emplace(held.name, tensors_.size()).second)
                absent_.emplace(held.name,
                                format("is in {} and in another file, and the index names neither",
                                       printable(fs::path(shard->path).filename().string())));
            tensors_.push_back({&held, &shard->path, false, listed});
        }
    for (const auto &[name, reason] : absent_) indices_.erase(name);
}

void shards::note_absent(const weight_map &index) {
    std::set<std::string> present_files;
    for (const auto &shard : files_)
        present_files.insert(fs::path(shard->path).filename().string());
    for (const auto &[tensor, name] : index)
        if (!indices_.contains(tensor))
            absent_.emplace(tensor,
                            format("is placed in {}, which {}", printable(name),
                                   present_files.contains(name) ? "does not hold it"
                                                                : "is not in this directory"));
}

void shards::index_all_tensors() {
    for (const auto &shard : files_)
        for (const tensor &held : shard->header.tensors) {
            indices_.emplace(held.name, tensors_.size());
            tensors_.push_back({&held, &shard->path});
        }
}

status shards::add_numbered(const fs::path &directory) {
    const result<std::vector<std::string>> names = numbered_shards(directory);
    if (!names) return names.failure();
    for (const std::string &name : *names)
        if (const status added = add(directory / name); !added) return added;
    std::map<std::string_view, const std::string *> holders;
    for (const auto &shard : files_)
        for (const tensor &held : shard->header.tensors)
            if (const auto [earlier, fresh] = holders.emplace(held.name, &shard->path); !fresh)
                return error{
                    format("{}: tensor {} is in {}, too, and there is no {} that says which "
                           "counts",
                           shard->path, printable(held.name), *earlier->second, index_name)};
    index_all_tensors();
    log_warning(format("{}: has no {}; all of its {} numbered shards are read", directory.string(),
                       index_name, names->size()));
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
        opened.error_path_ = single.string();
        if (const status added = opened.add(single); !added) return added.failure();
        opened.index_all_tensors();
        return opened;
    }
    const bool indexed = fs::exists(directory / index_name, code);
    opened.error_path_ = (indexed ? directory / index_name : directory).string();
    const status added = indexed ? opened.add_indexed(directory) : opened.add_numbered(directory);
    if (!added) return added.failure();
    return opened;
}

stored_tensor *shards::find(std::string_view name) {
    const auto found = indices_.find(name);
    if (found != indices_.end()) return &tensors_[found->second];
    if (first_missing_.empty() && absent_.contains(name)) first_missing_ = name;
    return nullptr;
}

status shards::check_found() const {
    if (!first_missing_.empty())
        return error{format("{}: tensor {} {}", error_path_, printable(first_missing_),
                            absent_.find(first_missing_)->second)};
    if (!absent_.empty())
        log_warning(
            format("{}: {} of the tensors that no part needs {} not where it says, for "
                   "example {} {}",
                   error_path_, absent_.size(), absent_.size() == 1 ? "is" : "are",
                   printable(absent_.begin()->first), absent_.begin()->second));
    const auto unlisted = [](const stored_tensor &tensor) { return tensor.used && !tensor.listed; };
    if (const auto first = std::ranges::find_if(tensors_, unlisted); first != tensors_.end())
        log_warning(
            format("{}: leaves out {} of the tensors that are needed and there, for "
                   "example {} in {}",
                   error_path_, std::ranges::count_if(tensors_, unlisted),
                   printable(first->entry->name), *first->file));
    return success();
}

}  // namespace moorage::core
