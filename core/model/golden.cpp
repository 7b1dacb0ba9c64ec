// golden.cpp - reads and checks golden.safetensors.
#include "core/model/golden.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>

#include "core/base/finite.h"
#include "core/base/mapped_file.h"
#include "core/base/safetensors.h"
#include "core/base/text.h"
#include "core/model/gguf.h"

namespace moorage::core {
namespace {

struct reader {
    const safetensors &file;
    const std::string &name;

    // `shape`: 0 means any length.
    template <class Value>
    result<std::vector<Value>> values(const char *tensor_name, dtype type,
                                      std::vector<uint64_t> shape) const {
        const tensor *found = file.find(tensor_name);
        if (found == nullptr)
            return error{
                format("{}: tensor {} is missing; a golden file has input_ids, logits, "
                       "hidden_states and greedy",
                       name, tensor_name)};
        bool fits = found->type == type && found->shape.size() == shape.size();
        for (size_t i = 0; fits && i < shape.size(); ++i)
            fits = shape[i] == 0 || shape[i] == found->shape[i];
        if (!fits)
            return error{format("{}: tensor {}: {} of shape {}, {} of shape {} is needed{}", name,
                                tensor_name, name_of(found->type), shape_text(found->shape),
                                name_of(type), shape_text(shape),
                                shape.size() == 1 ? " (0: any)" : "")};
        if (const std::string odd = non_finite_text(*found); !odd.empty())
            return error{format("{}: {}", name, odd)};
        std::vector<Value> elements(found->elements());
        if (!elements.empty())
            std::memcpy(elements.data(), found->bytes.data(), found->bytes.size());
        return elements;
    }

    result<std::vector<int32_t>> ids(const char *tensor_name, uint32_t vocabulary) const {
        auto read = values<int32_t>(tensor_name, dtype::i32, {0});
        if (!read) return read;
        for (const int32_t id : *read)
            if (id < 0 || static_cast<uint32_t>(id) >= vocabulary)
                return error{format("{}: tensor {}: id {} is outside the model's vocabulary of {}",
                                    name, tensor_name, id, vocabulary)};
        return read;
    }
};

}  // namespace

namespace {

// "mixtral.ref.safetensors" for "mixtral.gguf" and for "mixtral-00001-of-00002.gguf".
std::filesystem::path golden_path(const std::filesystem::path &model) {
    if (!is_gguf(model)) return model / "golden.safetensors";
    constexpr size_t part = std::string_view("-00001-of-00002").size();
    const bool ended = model.extension() == ".gguf";
    std::string stem = (ended ? model.stem() : model.filename()).string();
    if (stem.size() > part && stem.substr(stem.size() - part).starts_with("-00001-of-"))
        stem.resize(stem.size() - part);
    return model.parent_path() / (stem + ".ref.safetensors");
}

// The first of `names` that the file has; null: none of them.
const char *first_present(const safetensors &file, std::initializer_list<const char *> names) {
    for (const char *name : names)
        if (file.find(name) != nullptr) return name;
    return nullptr;
}

}  // namespace

result<golden_data> read_golden(const std::filesystem::path &directory,
                                const model_config &config) {
    const std::filesystem::path path = golden_path(directory);
    const std::string name = path.string();
    std::error_code unused;
    if (!std::filesystem::exists(path, unused))
        return error{
            format("{}: no such file; it holds the results to compare with (input_ids, logits, "
                   "hidden_states, greedy): write it with the model's reference implementation",
                   name)};
    const auto mapped = mapped_file::open(path);
    if (!mapped) return mapped.failure();
    const auto parsed = parse_safetensors(mapped->bytes(), name);
    if (!parsed) return parsed.failure();
    const reader golden{*parsed, name};
    auto input = golden.ids("input_ids", config.vocabulary);
    if (!input) return input.failure();
    const char *logits_name =
        first_present(*parsed, {"published_float64_logits", "float64_logits", "logits"});
    const bool published = logits_name == std::string_view("published_float64_logits");
    // The published model's logits do not give the continuation of the file's makers, so it is not
    // read with them.
    const char *greedy_name = first_present(*parsed, {"float64_greedy", "greedy"});
    result<std::vector<int32_t>> greedy = std::vector<int32_t>();
    if (!published)
        greedy = golden.ids(greedy_name != nullptr ? greedy_name : "greedy", config.vocabulary);
    if (!greedy) return greedy.failure();
    const uint64_t count = input->size();
    if (count < golden_prompt)
        return error{format("{}: tensor input_ids: {} ids, at least {} are needed", name, count,
                            golden_prompt)};
    const bool one_file = is_gguf(directory);
    // It is written with or without its prompt.
    const auto prompt = input->begin() + golden_prompt;
    if (!one_file && greedy->size() >= golden_prompt &&
        std::equal(input->begin(), prompt, greedy->begin()))
        greedy->erase(greedy->begin(), greedy->begin() + golden_prompt);
    auto logits = golden.values<float>(logits_name != nullptr ? logits_name : "logits", dtype::f32,
                                       {count, config.vocabulary});
    if (!logits) return logits.failure();
    result<std::vector<float>> hidden = std::vector<float>();
    if (parsed->find("hidden_states") != nullptr)
        hidden = golden.values<float>("hidden_states", dtype::f32,
                                      {config.layers + uint64_t{1}, count, config.hidden});
    if (!hidden) return hidden.failure();
    return golden_data{std::move(*input), std::move(*greedy), std::move(*logits),
                       std::move(*hidden), one_file ? static_cast<uint32_t>(count) : golden_prompt};
}

double relative_error(std::span<const float> actual, std::span<const float> expected) {
    assert(actual.size() == expected.size());
    double largest_difference = 0, largest_expected = 0;
    for (size_t i = 0; i < actual.size(); ++i) {
        if (!std::isfinite(actual[i])) return std::numeric_limits<double>::infinity();
        largest_difference =
            std::max(largest_difference, std::abs(static_cast<double>(actual[i]) - expected[i]));
        largest_expected = std::max(largest_expected, std::abs(static_cast<double>(expected[i])));
    }
    return largest_difference == 0 ? 0 : largest_difference / largest_expected;
}

}  // namespace moorage::core
