// recipe.h - which tensors of a GGUF file get which format, under llama.cpp's names of mixtures.
//
//   const recipe *wanted = find_recipe("q4_k_m");
//   chosen_type of = choose_type(*wanted, model, "blk.3.attn_v.weight", {1024, 4096});
//
// What is sensitive gets more bits: the head, values, downward matrices of some layers. Vectors,
// norms and routers stay float32. The rules are facts about llama.cpp's files
// (src/llama-quant.cpp), without importance matrices.
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
    none  // whatever the role
};

struct recipe {
    const char *name;
    weight_type base;
    mixture mix;
    uint32_t file_type;  // general.file_type
};
std::span<const recipe> recipes();
const recipe *find_recipe(std::string_view name);  // null: no such one

// What the rules ask of a model.
struct recipe_model {
    uint32_t layers = 0, experts = 0;
    uint32_t queries_of_key = 1;  // heads that share a key
    bool tied = false;            // the embedding is the head
};
struct chosen_type {
    weight_type type;    // fits the row
    weight_type wanted;  // the same, or what would be there if its blocks divided the row
};
// `shape`: the length of a row last. Where a block does not divide it, the type is, as llama.cpp
// has it, a near one with blocks of 32, or f16.
chosen_type choose_type(const recipe &of, const recipe_model &model, std::string_view name,
                        const std::vector<uint64_t> &shape);

}  // namespace moorage::core
