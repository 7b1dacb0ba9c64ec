// recipe.cpp - the table of mixtures, and the rules by role.
#include "core/convert/recipe.h"

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

role role_of(std::string_view name) {
    role made{name.substr(0, name.rfind('.')), 0};
    if (!name.starts_with("blk.")) return made;
    const size_t dot = name.find('.', 4);
    if (dot == std::string_view::npos || dot + 1 > made.part.size()) return made;
    std::from_chars(name.data() + 4, name.data() + dot, made.layer);
    made.part = made.part.substr(dot + 1);
    return made;
}

bool any_of(std::string_view part, std::initializer_list<std::string_view> names) {
    return std::ranges::find(names, part) != names.end();
}

// The first and the last eighth of the layers, and every third layer between.
bool more_bits(uint32_t layer, uint32_t layers) {
    const uint32_t eighth = layers / 8;
    return layer < eighth || layer >= 7 * layers / 8 || (layer - eighth) % 3 == 2;
}

weight_type of_values(const recipe &of, const recipe_model &model, uint32_t layer) {
    constexpr uint32_t few_experts = 8;  // with this few, values and keys are a small part
    if (model.experts == few_experts) return q8_0;
    const bool shared = model.queries_of_key >= 4;
    if (of.base == q2_k) return shared ? q4_k : q3_k;
    if (of.base == q3_k && of.mix == mixture::medium) return layer < 2 ? q5_k : q4_k;
    if (of.base == q3_k && of.mix == mixture::large) return q5_k;
    if ((of.base == iq4_nl || of.base == iq4_xs) && shared) return q5_k;
    if (of.mix == mixture::medium && more_bits(layer, model.layers)) return q6_k;
    if (of.base == q4_k && of.mix == mixture::small && layer < 4) return q5_k;
    return of.base;
}

weight_type of_down(const recipe &of, const recipe_model &model, uint32_t layer) {
    if (of.base == q2_k) return q3_k;
    if (of.base == q3_k && of.mix == mixture::medium)
        return layer < model.layers / 16 ? q5_k : q4_k;
    if (of.base == q3_k && of.mix == mixture::large) return q5_k;
    if (of.mix == mixture::medium && more_bits(layer, model.layers)) return q6_k;
    const bool first = layer < model.layers / 8;
    const bool raised =
        of.base == iq4_nl || of.base == iq4_xs || (of.base == q4_k && of.mix == mixture::small);
    return first && raised ? q5_k : of.base;
}

weight_type of_output(const recipe &of, const recipe_model &model) {
    constexpr uint32_t few_experts = 8;
    const bool low = of.base == q2_k || of.base == iq4_nl || of.base == iq4_xs ||
                     (of.base == q3_k && of.mix != mixture::large) || of.base == q4_k;
    if (model.experts == few_experts) return low ? q5_k : of.base;
    if (of.base == q2_k) return q3_k;
    if (of.base == q3_k && of.mix == mixture::medium) return q4_k;
    if (of.base == q3_k && of.mix == mixture::large) return q5_k;
    return of.base;
}

weight_type of_head(const recipe &of, uint64_t columns) {
    if (of.mix == mixture::experts || columns % format_of(of.base).block != 0) return q8_0;
    return of.base == q8_0 ? q8_0 : q6_k;
}

weight_type by_role(const recipe &of, const recipe_model &model, std::string_view name,
                    const std::vector<uint64_t> &shape) {
    if (of.mix == mixture::none) return of.base;
    const role own = role_of(name);
    if (own.part == "output" || (model.tied && own.part == "token_embd"))
        return of_head(of, shape.back());
    if (of.mix == mixture::experts)
        return shape.size() > 2 && own.part.ends_with("_exps") ? of.base : q8_0;
    if (any_of(own.part, {"attn_v", "attn_qkv", "attn_kv_b"}))
        return of_values(of, model, own.layer);
    if (own.part == "attn_k" && model.experts == 8) return q8_0;
    if (any_of(own.part, {"ffn_down", "ffn_down_exps", "ffn_down_shexp"}))
        return of_down(of, model, own.layer);
    if (own.part == "attn_output") return of_output(of, model);
    return of.base;
}

weight_type fitting(weight_type type, uint64_t columns) {
    if (columns % format_of(type).block == 0) return type;
    const weight_type near = type == q4_k   ? q5_0
                             : type == q5_k ? q5_1
                             : type == q6_k ? q8_0
                                            : iq4_nl;
    const bool wide = format_of(type).block == 256;
    return wide && columns % format_of(near).block == 0 ? near : f16;
}

}  // namespace

std::span<const recipe> recipes() { return table; }

const recipe *find_recipe(std::string_view name) {
    const auto *found =
        std::ranges::find_if(table, [&](const recipe &one) { return name == one.name; });
    return found == std::end(table) ? nullptr : found;
}

chosen_type choose_type(const recipe &of, const recipe_model &model, std::string_view name,
                        const std::vector<uint64_t> &shape) {
    const bool kept = shape.size() < 2 || !name.ends_with("weight") ||
                      name.ends_with("_norm.weight") || name.ends_with("ffn_gate_inp.weight");
    if (kept) return {f32, f32};
    if (format_of(of.base).block == 1) return {of.base, of.base};
    const weight_type wanted = by_role(of, model, name, shape);
    return {fitting(wanted, shape.back()), wanted};
}

}  // namespace moorage::core
