// shard_names.cpp - sorts the files of a directory by their names.
#include "core/model/shard_names.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>

#include "core/base/safetensors.h"
#include "core/base/text.h"

namespace moorage::core {

namespace {

namespace fs = std::filesystem;

constexpr std::string_view shard_ending = ".safetensors";
constexpr size_t number_digits = 5, shown_max = 3, names_max = 100'000;
constexpr uint32_t shards_max = 10'000;

// "model-00002-of-00003.safetensors"
struct shard_name {
    std::string stem;
    uint32_t number, count;
};

std::optional<uint32_t> parse_number(std::string_view digits) {
    uint32_t value = 0;
    const char *const end = digits.data() + digits.size();
    const auto [stop, wrong] = std::from_chars(digits.data(), end, value);
    if (digits.size() != number_digits || wrong != std::errc() || stop != end) return std::nullopt;
    return value;
}

std::optional<shard_name> parse_shard_name(std::string_view name) {
    constexpr std::string_view between = "-of-";
    if (!name.ends_with(shard_ending)) return std::nullopt;
    name.remove_suffix(shard_ending.size());
    constexpr size_t tail = 1 + number_digits + between.size() + number_digits;
    if (name.size() <= tail) return std::nullopt;
    const std::string_view stem = name.substr(0, name.size() - tail);
    name.remove_prefix(stem.size());
    if (name[0] != '-' || name.substr(1 + number_digits, between.size()) != between)
        return std::nullopt;
    const auto number = parse_number(name.substr(1, number_digits)),
               count = parse_number(name.substr(tail - number_digits));
    if (!number || !count || *number == 0 || *number > *count || *count > shards_max)
        return std::nullopt;
    return shard_name{std::string(stem), *number, *count};
}

std::string list_some(const std::vector<std::string> &names) {
    std::vector<std::string> first;
    for (size_t i = 0; i < std::min(names.size(), shown_max); ++i)
        first.push_back(printable(names[i]));
    if (names.size() > shown_max)
        first.push_back(format("{} further files", names.size() - shown_max));
    return listed(first, "and");
}

// The shards of one model, by number.
using shard_set = std::map<uint32_t, std::string>;

result<std::vector<std::string>> list_whole_set(const fs::path &directory, const shard_set &shards,
                                                uint32_t count) {
    std::vector<std::string> names;
    std::string missing;
    for (uint32_t number = 1; number <= count; ++number)
        if (const auto found = shards.find(number); found != shards.end())
            names.push_back(found->second);
        else if (missing.empty())
            missing = format("{:05}", number);
    if (missing.empty()) return names;
    return error{format("{}: holds {} of {} shards, among them {}; number {} is missing",
                        directory.string(), names.size(), count, printable(names.front()),
                        missing)};
}

}  // namespace

result<std::vector<std::string>> numbered_shards(const fs::path &directory) {
    std::map<std::pair<std::string, uint32_t>, shard_set> sets;  // by stem and count
    std::vector<std::string> gguf, safetensors, others;
    std::error_code code;
    size_t names = 0;
    for (fs::directory_iterator entry(directory, code), end;
         !code && entry != end && names < names_max; entry.increment(code), ++names) {
        const std::string name = entry->path().filename().string();
        const std::string kind = entry->path().extension().string();
        if (const auto shard = parse_shard_name(name))
            sets[{shard->stem, shard->count}][shard->number] = name;
        else if (kind == ".gguf")
            gguf.push_back(name);
        else if (kind == shard_ending)
            safetensors.push_back(name);
        else if (kind == ".bin" || kind == ".pt" || kind == ".pth" || kind == ".ckpt")
            others.push_back(name);
    }
    for (auto *list : {&gguf, &safetensors, &others}) std::ranges::sort(*list);
    const auto usual =
        std::ranges::find_if(sets, [](const auto &set) { return set.first.first == "model"; });
    if (usual != sets.end()) return list_whole_set(directory, usual->second, usual->first.second);
    if (sets.size() == 1)
        return list_whole_set(directory, sets.begin()->second, sets.begin()->first.second);
    const std::string place = directory.string();
    if (!gguf.empty())
        return error{format("{}: holds {}; name the file: {}", place, list_some(gguf),
                            (directory / gguf.front()).string())};
    std::string hint;
    if (sets.size() > 1)
        hint = format("; it holds {} sets of shards, and one is needed", sets.size());
    else if (!safetensors.empty())
        hint = format("; it holds {}, and the weights are to be model.safetensors",
                      list_some(safetensors));
    else if (!others.empty())
        hint = format("; it holds {}, which have to be converted to safetensors first",
                      list_some(others));
    else
        hint = ", nor other weights";
    return error{format("{}: holds neither model.safetensors nor model.safetensors.index.json{}",
                        place, hint)};
}

}  // namespace moorage::core
