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

namespace moorage::core {
namespace {

struct reader {
    const safetensors &file;
    const std::string &name;

    // `shape`: 0 stands for any length.
    template <class Value>
    result<std::vector<Value>> values(const char *of, dtype type,
                                      std::vector<uint64_t> shape) const {
        const tensor *found = file.find(of);
        if (found == nullptr)
            return error{
                format("{}: tensor {} is missing; a golden file has input_ids, logits, "
                       "hidden_states and greedy",
                       name, of)};
        bool fits = found->type == type && found->shape.size() == shape.size();
        for (size_t i = 0; fits && i < shape.size(); ++i)
            fits = shape[i] == 0 || shape[i] == found->shape[i];
        if (!fits)
            return error{format("{}: tensor {}: {} of shape {}, {} of shape {} is needed{}", name,
                                of, name_of(found->type), shape_text(found->shape), name_of(type),
                                shape_text(shape), shape.size() == 1 ? " (0: any)" : "")};
        if (const std::string odd = odd_value(*found); !odd.empty())
            return error{format("{}: {}", name, odd)};
        std::vector<Value> out(found->elements());
        if (!out.empty()) std::memcpy(out.data(), found->bytes.data(), found->bytes.size());
        return out;
    }

    result<std::vector<int32_t>> ids(const char *of, uint32_t vocabulary) const {
        auto read = values<int32_t>(of, dtype::i32, {0});
        if (!read) return read;
        for (const int32_t id : *read)
            if (id < 0 || static_cast<uint32_t>(id) >= vocabulary)
                return error{format("{}: tensor {}: id {} is outside the model's vocabulary of {}",
                                    name, of, id, vocabulary)};
        return read;
    }
};

}  // namespace

result<golden_data> read_golden(const std::filesystem::path &directory,
                                const model_config &config) {
    const std::filesystem::path path = directory / "golden.safetensors";
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
    const reader from{*parsed, name};
    auto input = from.ids("input_ids", config.vocabulary);
    if (!input) return input.failure();
    auto greedy = from.ids("greedy", config.vocabulary);
    if (!greedy) return greedy.failure();
    const uint64_t count = input->size();
    if (count < golden_prompt)
        return error{format("{}: tensor input_ids: {} ids, at least {} are needed", name, count,
                            golden_prompt)};
    // Written with its prompt in front, or without.
    const auto prompt = input->begin() + golden_prompt;
    if (greedy->size() >= golden_prompt && std::equal(input->begin(), prompt, greedy->begin()))
        greedy->erase(greedy->begin(), greedy->begin() + golden_prompt);
    auto logits = from.values<float>("logits", dtype::f32, {count, config.vocabulary});
    if (!logits) return logits.failure();
    auto hidden = from.values<float>("hidden_states", dtype::f32,
                                     {config.layers + uint64_t{1}, count, config.hidden});
    if (!hidden) return hidden.failure();
    return golden_data{std::move(*input), std::move(*greedy), std::move(*logits),
                       std::move(*hidden)};
}

double relative_error(std::span<const float> is, std::span<const float> expected) {
    assert(is.size() == expected.size());
    double apart = 0, largest = 0;
    for (size_t i = 0; i < is.size(); ++i) {
        if (!std::isfinite(is[i])) return std::numeric_limits<double>::infinity();
        apart = std::max(apart, std::abs(static_cast<double>(is[i]) - expected[i]));
        largest = std::max(largest, std::abs(static_cast<double>(expected[i])));
    }
    return apart == 0 ? 0 : apart / largest;
}

}  // namespace moorage::core
