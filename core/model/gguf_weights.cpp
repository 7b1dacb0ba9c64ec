// gguf_weights.cpp - the table of tensor names, and the layouts of experts and attention.
#include "core/model/gguf_weights.h"

#include <utility>

#include "core/base/finite.h"
#include "core/base/text.h"
#include "core/model/weight_values.h"

namespace moorage::core {

namespace {

// Pairs of the binding's name and the file's name, outside and inside a layer.
constexpr std::pair<std::string_view, std::string_view> outer_names[] = {
    {"model.embed_tokens", "token_embd"}, {"model.norm", "output_norm"}, {"lm_head", "output"}};
constexpr std::pair<std::string_view, std::string_view> layer_names[] = {
    {"input_layernorm", "attn_norm"},
    {"self_attn.q_proj", "attn_q"},
    {"self_attn.k_proj", "attn_k"},
    {"self_attn.v_proj", "attn_v"},
    {"self_attn.o_proj", "attn_output"},
    {"self_attn.q_norm", "attn_q_norm"},
    {"self_attn.k_norm", "attn_k_norm"},
    {"self_attn.q_a_proj", "attn_q_a"},
    {"self_attn.q_a_layernorm", "attn_q_a_norm"},
    {"self_attn.q_b_proj", "attn_q_b"},
    {"self_attn.kv_a_proj_with_mqa", "attn_kv_a_mqa"},
    {"self_attn.kv_a_layernorm", "attn_kv_a_norm"},
    {"self_attn.kv_b_proj", "attn_kv_b"},
    {"mlp.gate", "ffn_gate_inp"},
    {"mlp.router", "ffn_gate_inp"},
    {"block_sparse_moe.gate", "ffn_gate_inp"},
    {"block_sparse_moe.router.layer", "ffn_gate_inp"},
    {"mlp.gate_proj", "ffn_gate"},
    {"mlp.up_proj", "ffn_up"},
    {"mlp.down_proj", "ffn_down"},
    {"mlp.shared_expert.gate_proj", "ffn_gate_shexp"},
    {"mlp.shared_expert.up_proj", "ffn_up_shexp"},
    {"mlp.shared_expert.down_proj", "ffn_down_shexp"},
    {"mlp.shared_experts.gate_proj", "ffn_gate_shexp"},
    {"mlp.shared_experts.up_proj", "ffn_up_shexp"},
    {"mlp.shared_experts.down_proj", "ffn_down_shexp"},
    {"mlp.shared_expert_gate", "ffn_gate_inp_shexp"},
};
// Names without .weight or .bias.
constexpr std::pair<std::string_view, std::string_view> whole_names[] = {
    {"self_attn.sinks", "attn_sinks.weight"},
    {"mlp.gate.e_score_correction_bias", "exp_probs_b.bias"},
};
constexpr std::string_view layer_prefix = "model.layers.", norm_name = "post_attention_layernorm";

template <class Table>
std::string_view look_up(const Table &table, std::string_view name) {
    for (const auto &[wanted, gguf_name] : table)
        if (name == wanted) return gguf_name;
    return {};
}

}  // namespace

std::string gguf_block_name(std::string_view layer) {
    return "blk." + std::string(layer.substr(layer_prefix.size()));
}

std::string gguf_tensor_name(const std::string &wanted, const char *mlp_norm) {
    const std::string_view name = wanted;
    const size_t dot = name.rfind('.');
    if (!name.starts_with(layer_prefix))
        return std::string(look_up(outer_names, name.substr(0, dot))) +
               std::string(name.substr(dot));
    const size_t end = name.find('.', layer_prefix.size()) + 1;
    const std::string block = gguf_block_name(name.substr(0, end));
    if (const std::string_view whole = look_up(whole_names, name.substr(end)); !whole.empty())
        return block + std::string(whole);
    const std::string_view inner = name.substr(end, dot - end), ending = name.substr(dot);
    if (inner == norm_name) return block + mlp_norm + std::string(ending);
    return block + std::string(look_up(layer_names, inner)) + std::string(ending);
}

const gguf_tensor *gguf_weights::take(const std::string &name, const shape &wanted,
                                      model_part part) {
    if (failed()) return nullptr;
    gguf_tensor *found = files_.find(name);
    // Older files omit the ending.
    if (found == nullptr && name.ends_with("exp_probs_b.bias"))
        found = files_.find(name.substr(0, name.size() - 5));
    if (found == nullptr) {
        fail(format("{}: tensor {} of shape {} is missing", files_.first_path(), name,
                    shape_text(wanted)));
        return nullptr;
    }
    if (!found->other_type.empty()) {
        fail(format("{}: tensor {} is of type {}; supported are {}", *found->file, found->name,
                    found->other_type, supported_gguf_types()));
        return nullptr;
    }
    if (!is_same_shape(found->shape, wanted)) {
        fail(format("{}: tensor {} has the shape {}; the metadata makes it {}", *found->file,
                    found->name, shape_text(found->shape), shape_text(wanted)));
        return nullptr;
    }
    if (!found->used) {
        count(part, found->bytes.size());
        count_parameters(found->values());
    }
    found->used = true;
    return found;
}

std::optional<gguf_weights::stretch> gguf_weights::find_in_fused(const std::string &name) const {
    const attention_config &attention = config_.attention;
    const uint64_t queries = uint64_t{attention.heads} * attention.head_dim,
                   keys = uint64_t{attention.kv_heads} * attention.head_dim,
                   values = uint64_t{attention.kv_heads} * attention.value_dim;
    constexpr std::string_view endings[] = {".attn_q.", ".attn_k.", ".attn_v."};
    const uint64_t first[] = {0, queries, queries + keys};
    for (size_t i = 0; i < std::size(endings); ++i) {
        const size_t position = name.find(endings[i]);
        if (position == std::string::npos) continue;
        const std::string fused =
            name.substr(0, position) + ".attn_qkv." + name.substr(position + endings[i].size());
        if (files_.find(name) != nullptr || files_.find(fused) == nullptr) return std::nullopt;
        return stretch{fused, first[i], queries + keys + values};
    }
    return std::nullopt;
}

matrix gguf_weights::read_matrix(const std::string &name, uint32_t rows, uint32_t columns,
                                 model_part part) {
    const std::string tensor_name = name_of(name);
    const std::optional<stretch> fused = find_in_fused(tensor_name);
    const gguf_tensor *found = fused ? take(fused->name, {fused->total_rows, columns}, part)
                                     : take(tensor_name, {rows, columns}, part);
    if (found == nullptr) return {};
    matrix weights = packed_matrix(found->type, rows, columns, found->bytes.data());
    if (fused) weights.data += fused->first_row * weights.row_bytes;
    return weights;
}

std::span<const float> gguf_weights::floats_of(const gguf_tensor &tensor, uint64_t first,
                                               uint64_t count) {
    std::vector<float> values(tensor.values());
    read_row(
        packed_matrix(tensor.type, 1, static_cast<uint32_t>(values.size()), tensor.bytes.data()), 0,
        values);
    if (const size_t odd = first_non_finite(values); odd != values.size()) {
        fail(format("{}: tensor {} holds {} at {}", *tensor.file, tensor.name, values[odd], odd));
        return {};
    }
    owned_.vectors.push_back(std::move(values));
    return std::span<const float>(owned_.vectors.back()).subspan(first, count);
}

std::span<const float> gguf_weights::read_vector(const std::string &name, uint32_t count,
                                                 model_part part) {
    const std::string tensor_name = name_of(name);
    const std::optional<stretch> fused = find_in_fused(tensor_name);
    const gguf_tensor *found =
        fused ? take(fused->name, {fused->total_rows}, part) : take(tensor_name, {count}, part);
    if (found == nullptr) return {};
    return floats_of(*found, fused ? fused->first_row : 0, count);
}

void gguf_weights::read_experts(const std::string &layer, std::vector<mlp_weights> &experts) {
    if (failed()) return;
    experts.resize(config_.experts);
    const std::string block = gguf_block_name(layer);
    if (files_.find(block + "ffn_down_exps.weight") == nullptr &&
        files_.find(block + "ffn_down.0.weight") != nullptr)
        read_separate(block, experts);
    else
        read_stacked(block, experts);
    if (config_.expert_bias) read_biases(block, experts);
}

void gguf_weights::read_stacked(const std::string &block, std::vector<mlp_weights> &experts) {
    const uint64_t expert_count = config_.experts, hidden = config_.hidden;
    const uint64_t inner = config_.moe_intermediate;
    const bool fused = files_.find(block + "ffn_gate_up_exps.weight") != nullptr;
    const shape in_shape{expert_count, fused ? 2 * inner : inner, hidden};
    const gguf_tensor *gate =
        take(block + (fused ? "ffn_gate_up_exps.weight" : "ffn_gate_exps.weight"), in_shape,
             model_part::experts);
    const gguf_tensor *up =
        fused ? gate : take(block + "ffn_up_exps.weight", in_shape, model_part::experts);
    const gguf_tensor *down =
        take(block + "ffn_down_exps.weight", {expert_count, hidden, inner}, model_part::experts);
    if (failed()) return;
    const auto place = [](const gguf_tensor &tensor, uint64_t rows, uint64_t columns,
                          uint64_t first_row) {
        matrix weights = packed_matrix(tensor.type, static_cast<uint32_t>(rows),
                                       static_cast<uint32_t>(columns), tensor.bytes.data());
        weights.data += first_row * weights.row_bytes;
        return weights;
    };
    for (uint64_t expert = 0; expert < expert_count; ++expert) {
        const uint64_t first = expert * in_shape[1];
        experts[expert].gate = place(*gate, inner, hidden, first);
        experts[expert].up = place(*up, inner, hidden, fused ? first + inner : first);
        experts[expert].down = place(*down, hidden, inner, expert * hidden);
    }
}

void gguf_weights::read_separate(const std::string &block, std::vector<mlp_weights> &experts) {
    const uint32_t inner = config_.moe_intermediate, hidden = config_.hidden;
    const auto read = [&](const char *name, uint32_t expert, uint32_t rows, uint32_t columns) {
        const gguf_tensor *found = take(format("{}{}.{}.weight", block, name, expert),
                                        {rows, columns}, model_part::experts);
        return found == nullptr ? matrix{}
                                : packed_matrix(found->type, rows, columns, found->bytes.data());
    };
    for (uint32_t expert = 0; expert < config_.experts && !failed(); ++expert) {
        experts[expert].gate = read("ffn_gate", expert, inner, hidden);
        experts[expert].up = read("ffn_up", expert, inner, hidden);
        experts[expert].down = read("ffn_down", expert, hidden, inner);
    }
}

void gguf_weights::read_biases(const std::string &block, std::vector<mlp_weights> &experts) {
    const uint64_t expert_count = config_.experts;
    const auto read = [&](const char *name, uint64_t width) -> std::span<const float> {
        const gguf_tensor *found =
            take(block + name, {expert_count, width}, model_part::router);  // does not move with an
                                                                            // expert
        if (found == nullptr) return {};
        return floats_of(*found, 0, expert_count * width);
    };
    const uint64_t inner = config_.moe_intermediate, hidden = config_.hidden;
    const auto gate = read("ffn_gate_exps.bias", inner), up = read("ffn_up_exps.bias", inner),
               down = read("ffn_down_exps.bias", hidden);
    for (uint64_t expert = 0; expert < expert_count && !failed(); ++expert) {
        experts[expert].gate_bias = gate.subspan(expert * inner, inner);
        experts[expert].up_bias = up.subspan(expert * inner, inner);
        experts[expert].down_bias = down.subspan(expert * hidden, hidden);
    }
}

// One matrix in older files. In newer ones two: the keys' half, transposed [heads, rank, nope], and
// the values' half [heads, value, rank].
void gguf_weights::read_latent(const std::string &prefix, attention_weights &weights) {
    const attention_config &attention = config_.attention;
    const std::string block = name_of(prefix + "kv_b_proj.weight");
    const std::string stem = block.substr(0, block.rfind("attn_kv_b"));
    if (files_.find(block) != nullptr || files_.find(stem + "attn_k_b.weight") == nullptr) {
        weights.kv_b = read_matrix(prefix + "kv_b_proj.weight",
                                   attention.heads * (attention.nope_dim + attention.value_dim),
                                   attention.kv_lora_rank, model_part::attention);
        return;
    }
    const auto read = [&](const char *name, uint32_t rows, uint32_t columns) {
        const gguf_tensor *found =
            take(stem + name, {attention.heads, rows, columns}, model_part::attention);
        return found == nullptr ? matrix{}
                                : packed_matrix(found->type, attention.heads * rows, columns,
                                                found->bytes.data());
    };
    weights.key_up = read("attn_k_b.weight", attention.kv_lora_rank, attention.nope_dim);
    weights.value_up = read("attn_v_b.weight", attention.value_dim, attention.kv_lora_rank);
}

}  // namespace moorage::core
