// recipe.cpp - the table of mixtures, and the rules by role.
#include "tools/convert/recipe.h"

#include <algorithm>
#include <charconv>

namespace moorage::core {

namespace {

using enum weight_type;

constexpr recipe table[] = {
    {"f32", f32, mixture::plain, 0},        {"f16", f16, mixture::plain, 1},
    {"bf16", bf16, mixture::plain, 32},     {"q8_0", q8_0, mixture::plain, 7},
    {"q4_0", q4_0, mixture::plain, 2},      {"q4_1", q4_1, mixture::plain, 3},
    {"q5_0", q5_0, mixture::plain, 8},      {"q5_1", q5_1, mixture::plain, 9},
    {"q2_k", q2_k, mixture::plain, 10},     {"q3_k_s", q3_k, mixture::small, 11},
    {"q3_k_m", q3_k, mixture::medium, 12},  {"q3_k_l", q3_k, mixture::large, 13},
    {"q4_k_s", q4_k, mixture::small, 14},   {"q4_k_m", q4_k, mixture::medium, 15},
    {"q5_k_s", q5_k, mixture::small, 16},   {"q5_k_m", q5_k, mixture::medium, 17},
    {"q6_k", q6_k, mixture::plain, 18},     {"iq4_nl", iq4_nl, mixture::plain, 25},
    {"iq4_xs", iq4_xs, mixture::plain, 30}, {"mxfp4", mxfp4_gguf, mixture::experts, 38},
};

struct role {
    std::string_view part;  // "attn_v" of "blk.3.attn_v.weight"
    uint32_t layer = 0;
};

role parse_role(std::string_view name) {
    role parsed{name.substr(0, name.rfind('.')), 0};
    if (!name.starts_with("blk.")) return parsed;
    const size_t dot = name.find('.', 4);
    if (dot == std::string_view::npos || dot + 1 > parsed.part.size()) return parsed;
    std::from_chars(name.data() + 4, name.data() + dot, parsed.layer);
    parsed.part = parsed.part.substr(dot + 1);
    return parsed;
}

bool is_any_of(std::string_view part, std::initializer_list<std::string_view> names) {
    return std::ranges::find(names, part) != names.end();
}

// The first and the last eighth of the layers, and every third layer between.
bool gets_more_bits(uint32_t layer, uint32_t layers) {
    const uint32_t eighth = layers / 8;
    return layer < eighth || layer >= 7 * layers / 8 || (layer - eighth) % 3 == 2;
}

weight_type type_of_values(const recipe &recipe, const recipe_model &model, uint32_t layer) {
    constexpr uint32_t few_experts = 8;  // with this few, values and keys are a small part
    if (model.experts == few_experts) return q8_0;
    const bool shared = model.queries_of_key >= 4;
    if (recipe.base == q2_k) return shared ? q4_k : q3_k;
    if (recipe.base == q3_k && recipe.mix == mixture::medium) return layer < 2 ? q5_k : q4_k;
    if (recipe.base == q3_k && recipe.mix == mixture::large) return q5_k;
    if ((recipe.base == iq4_nl || recipe.base == iq4_xs) && shared) return q5_k;
    if (recipe.mix == mixture::medium && gets_more_bits(layer, model.layers)) return q6_k;
    if (recipe.base == q4_k && recipe.mix == mixture::small && layer < 4) return q5_k;
    return recipe.base;
}

weight_type type_of_down(const recipe &recipe, const recipe_model &model, uint32_t layer) {
    if (recipe.base == q2_k) return q3_k;
    if (recipe.base == q3_k && recipe.mix == mixture::medium)
        return layer < model.layers / 16 ? q5_k : q4_k;
    if (recipe.base == q3_k && recipe.mix == mixture::large) return q5_k;
    if (recipe.mix == mixture::medium && gets_more_bits(layer, model.layers)) return q6_k;
    const bool first = layer < model.layers / 8;
    const bool raised = recipe.base == iq4_nl || recipe.base == iq4_xs ||
                        (recipe.base == q4_k && recipe.mix == mixture::small);
    return first && raised ? q5_k : recipe.base;
}

weight_type type_of_output(const recipe &recipe, const recipe_model &model) {
    constexpr uint32_t few_experts = 8;
    const bool has_few_bits =
        recipe.base == q2_k || recipe.base == iq4_nl || recipe.base == iq4_xs ||
        (recipe.base == q3_k && recipe.mix != mixture::large) || recipe.base == q4_k;
    if (model.experts == few_experts) return has_few_bits ? q5_k : recipe.base;
    if (recipe.base == q2_k) return q3_k;
    if (recipe.base == q3_k && recipe.mix == mixture::medium) return q4_k;
    if (recipe.base == q3_k && recipe.mix == mixture::large) return q5_k;
    return recipe.base;
}

weight_type type_of_head(const recipe &recipe, uint64_t columns) {
    if (recipe.mix == mixture::experts || columns % format_of(recipe.base).block != 0) return q8_0;
    return recipe.base == q8_0 ? q8_0 : q6_k;
}

weight_type type_by_role(const recipe &recipe, const recipe_model &model, std::string_view name,
                         const std::vector<uint64_t> &shape) {
    if (recipe.mix == mixture::none) return recipe.base;
    const role tensor_role = parse_role(name);
    if (tensor_role.part == "output" || (model.is_tied && tensor_role.part == "token_embd"))
        return type_of_head(recipe, shape.back());
    if (recipe.mix == mixture::experts)
        return shape.size() > 2 && tensor_role.part.ends_with("_exps") ? recipe.base : q8_0;
    if (is_any_of(tensor_role.part, {"attn_v", "attn_qkv", "attn_kv_b"}))
        return type_of_values(recipe, model, tensor_role.layer);
    if (tensor_role.part == "attn_k" && model.experts == 8) return q8_0;
    if (is_any_of(tensor_role.part, {"ffn_down", "ffn_down_exps", "ffn_down_shexp"}))
        return type_of_down(recipe, model, tensor_role.layer);
    if (tensor_role.part == "attn_output") return type_of_output(recipe, model);
    return recipe.base;
}

weight_type fitting_type(weight_type type, uint64_t columns) {
    if (columns % format_of(type).block == 0) return type;
    const weight_type similar = type == q4_k   ? q5_0
                                : type == q5_k ? q5_1
                                : type == q6_k ? q8_0
                                               : iq4_nl;
    const bool has_wide_blocks = format_of(type).block == 256;
    return has_wide_blocks && columns % format_of(similar).block == 0 ? similar : f16;
}

}  // namespace

std::span<const recipe> recipes() { return table; }

const recipe *find_recipe(std::string_view name) {
    const auto *found =
        std::ranges::find_if(table, [&](const recipe &entry) { return name == entry.name; });
    return found == std::end(table) ? nullptr : found;
}

chosen_type choose_type(const recipe &recipe, const recipe_model &model, std::string_view name,
                        const std::vector<uint64_t> &shape) {
    const bool stays_float = shape.size() < 2 || !name.ends_with("weight") ||
                             name.ends_with("_norm.weight") ||
                             name.ends_with("ffn_gate_inp.weight");
    if (stays_float) return {f32, f32};
    if (format_of(recipe.base).block == 1) return {recipe.base, recipe.base};
    const weight_type wanted = type_by_role(recipe, model, name, shape);
    return {fitting_type(wanted, shape.back()), wanted};
}

}  // namespace moorage::core
