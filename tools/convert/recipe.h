// recipe.h - chooses the format of each tensor of a GGUF file, by llama.cpp's names of mixtures.
//
//   const recipe *wanted = find_recipe("q4_k_m");
//   chosen_type type = choose_type(*wanted, model, "blk.3.attn_v.weight", {1024, 4096});
//
// Sensitive tensors get more bits: the head, values, and the down matrices of some layers. Vectors,
// norms and routers stay float32. The rules describe llama.cpp's files (src/llama-quant.cpp)
// without importance matrices.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/model/weight_types.h"

namespace moorage::core {

enum class mixture : uint8_t {
    plain,
    small,
    medium,
    large,
    experts,
    none  // the role does not matter
};

struct recipe {
    const char *name;
    weight_type base;
    mixture mix;
    uint32_t file_type;  // general.file_type
};
std::span<const recipe> recipes();
const recipe *find_recipe(std::string_view name);  // null: no such recipe

// Properties of a model that the rules depend on.
struct recipe_model {
    uint32_t layers = 0, experts = 0;
    uint32_t queries_of_key = 1;  // query heads that share a key head
    bool is_tied = false;         // the embedding is the head
};
struct chosen_type {
    weight_type type;    // fits the row
    weight_type wanted;  // the same, or the type that would be used if its blocks divided the row
};
// `shape`: the length of a row comes last. If a block does not divide it, a similar type with
// blocks of 32 is used, or f16, as in llama.cpp.
chosen_type choose_type(const recipe &recipe, const recipe_model &model, std::string_view name,
                        const std::vector<uint64_t> &shape);

}  // namespace moorage::core
