// gguf_shape.cpp - assigns each tensor to a part and sums the parts.
#include "core/model/gguf_shape.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <vector>

#include "core/base/safetensors.h"
#include "core/base/text.h"
#include "core/model/gguf.h"

namespace moorage::core {

namespace {

constexpr uint32_t shape_layers_max = 1 << 12, count_max = 1 << 24;
constexpr uint64_t cached_value_bytes = 2, state_value_bytes = 4;  // of a KV cache; of a state

// Facts about a layer from its tensors.
struct layer_parts {
    uint32_t products = 0;  // matrices; all experts' copies of one count once
    bool has_experts = false;
    bool has_keys = false, is_latent = false;       // attention over earlier tokens
    bool has_state = false, has_fused_qkv = false;  // linear attention; one matrix for query, key
                                                    // and value
    uint64_t window_values = 0;  // of its convolution: rows x (width - 1)
};

// Sums are limited, far above every file, so that they cannot overflow.
struct part {
    static constexpr uint64_t sum_max = uint64_t{1} << 60;
    uint64_t bytes = 0, values = 0;
    void add(const gguf_tensor &tensor) {
        bytes = std::min(bytes + tensor.stored_bytes, sum_max);
        values = std::min(values + tensor.values(), sum_max);
    }
    double bits() const { return 8.0 * static_cast<double>(bytes) / static_cast<double>(values); }
};

// "ffn_up_exps.weight", or "ffn_up.3.weight" if each expert has its own matrix.
bool is_expert_matrix(std::string_view name) {
    if (!name.starts_with("ffn_") || !name.ends_with(".weight")) return false;
    const std::string_view stem = name.substr(0, name.size() - 7);
    if (stem.ends_with("_exps")) return true;
    const size_t dot = stem.rfind('.');
    return dot != std::string_view::npos && dot + 1 < stem.size() &&
           std::ranges::all_of(stem.substr(dot + 1), [](char c) { return c >= '0' && c <= '9'; });
}

class shape_counter {
public:
    explicit shape_counter(const gguf_files &files)
        : files_(files),
          architecture_(gguf_text(files.metadata(), "general.architecture").value_or("")) {}

    result<model_shape> count() {
        read_sizes();
        if (!failure_) count_tensors();
        if (!failure_) check_experts();
        if (!failure_) fill_parts();
        if (!failure_) fill_attention();
        if (failure_) return *failure_;
        return shape_;
    }

private:
    void fail(const std::string &problem) {
        if (!failure_) failure_ = error{format("{}: {}", files_.first_path(), problem)};
    }
    std::string full_key(std::string_view key) const { return format("{}.{}", architecture_, key); }

    // If the key has a list: the value of the layer.
    std::optional<double> number(std::string_view key, uint32_t layer = 0) const {
        const auto found = files_.metadata().find(full_key(key));
        if (found == files_.metadata().end()) return std::nullopt;
        const auto *list = std::get_if<gguf_numbers>(&found->second);
        if (list == nullptr) return gguf_number(files_.metadata(), full_key(key));
        return layer < list->count ? std::optional(list->at(layer)) : std::nullopt;
    }
    double size(std::string_view key, uint32_t layer, double absent) {
        const double value = number(key, layer).value_or(absent);
        if (value >= 0 && value <= count_max && value == std::floor(value)) return value;
        fail(format("{} is {:g}; a whole number to {} is needed", full_key(key), value, count_max));
        return 0;
    }
    uint32_t require_size(std::string_view key, uint32_t max = count_max) {
        const auto value = number(key);
        if (!value) fail(format("{} is missing", full_key(key)));
        const double whole = size(key, 0, 0);
        if (value && (whole < 1 || whole > max))
            fail(format("{} is {:g}; 1 to {} is needed", full_key(key), whole, max));
        return static_cast<uint32_t>(whole);
    }

    void read_sizes() {
        if (architecture_.empty()) return fail("general.architecture is missing");
        shape_.name = std::filesystem::path(files_.first_path()).stem().string();
        const uint32_t blocks = require_size("block_count", shape_layers_max);
        const auto mtp_layers = static_cast<uint32_t>(size("nextn_predict_layers", 0, 0));
        if (!failure_ && mtp_layers >= blocks)
            fail(format("{} is {} of {} layers", full_key("nextn_predict_layers"), mtp_layers,
                        blocks));
        if (const std::string problem = files_.find_non_mtp_layer(blocks, mtp_layers);
            !failure_ && !problem.empty())
            fail(format("{} is {}, but {}", full_key("nextn_predict_layers"), mtp_layers, problem));
        if (failure_) return;
        shape_.layers = blocks - mtp_layers;
        shape_.hidden = require_size("embedding_length");
        shape_.experts = require_size("expert_count");
        shape_.top_k = require_size("expert_used_count");
        layers_.resize(shape_.layers);
    }

    void count_tensors() {
        for (const gguf_tensor &tensor : files_.tensors()) {
            const std::string_view name = tensor.name;
            if (name == "token_embd.weight")
                embedding_.add(tensor), shape_.vocabulary = static_cast<uint32_t>(tensor.extent(1));
            else if (name == "output.weight")
                head_.add(tensor);
            else if (!name.starts_with("blk."))
                dense_.add(tensor);
            else
                count_in_layer(tensor);
        }
        if (embedding_.values == 0) fail("tensor token_embd.weight is missing");
        if (!failure_ && embedding_.values != uint64_t{shape_.vocabulary} * shape_.hidden)
            fail(format("tensor token_embd.weight has {} values, vocabulary times {} are needed",
                        embedding_.values, full_key("embedding_length")));
    }
    void count_in_layer(const gguf_tensor &tensor) {
        const std::string_view name = std::string_view(tensor.name).substr(4);
        uint32_t layer = 0;
        const auto [end, code] = std::from_chars(name.data(), name.data() + name.size(), layer);
        const auto dot = static_cast<size_t>(end - name.data());
        if (code != std::errc() || dot >= name.size() || name[dot] != '.')
            return fail(format("tensor {}: no number of a layer", printable(tensor.name)));
        // Layers after the last one predict further tokens.
        if (layer < layers_.size()) count_part(tensor, name.substr(dot + 1), layers_[layer]);
    }
    void count_part(const gguf_tensor &tensor, std::string_view name, layer_parts &layer) {
        const bool is_expert = is_expert_matrix(name), is_stacked = name.ends_with("_exps.weight");
        (is_expert ? expert_ : dense_).add(tensor);
        if (is_expert && is_stacked && tensor.extent(2) != shape_.experts)
            fail(format("tensor {} is of {} experts; {} is {}", printable(tensor.name),
                        tensor.extent(2), full_key("expert_count"), shape_.experts));
        if (is_expert && name.starts_with("ffn_down")) take_intermediate(tensor);
        const bool first = is_stacked || name.ends_with(".0.weight");
        // The gate of a single expert is a matrix with one row, so it has only one dimension.
        const bool is_matrix = tensor.dimensions() > 1 || name == "ffn_gate_inp.weight";
        if (is_matrix && (is_expert ? first : name.ends_with(".weight"))) ++layer.products;
        layer.has_experts |= is_expert;
        layer.has_keys |= name == "attn_k.weight";
        layer.is_latent |= name == "attn_kv_a_mqa.weight";
        layer.has_fused_qkv |= name == "attn_qkv.weight";
        layer.has_state |= name.starts_with("ssm_");
        if (name == "ssm_conv1d.weight" && tensor.dimensions() == 2)
            layer.window_values = tensor.extent(1) * (tensor.extent(0) - 1);
    }
    void take_intermediate(const gguf_tensor &down_matrix) {
        const uint64_t rows = down_matrix.shape.back();
        if (shape_.moe_intermediate != 0 && rows != shape_.moe_intermediate)
            fail(format("tensor {}: experts of {} rows, others have {}",
                        printable(down_matrix.name), rows, shape_.moe_intermediate));
        if (rows > count_max)
            fail(format("tensor {}: experts of {} rows; {} is the limit",
                        printable(down_matrix.name), rows, count_max));
        shape_.moe_intermediate = static_cast<uint32_t>(rows);
    }

    void check_experts() {
        const auto moe_layers = std::ranges::count_if(layers_, &layer_parts::has_experts);
        shape_.moe_layers = static_cast<uint32_t>(moe_layers);
        if (moe_layers == 0 || shape_.moe_intermediate == 0)
            return fail("no layer has ffn_down_exps.weight, the experts of the layer");
        const double matrix = static_cast<double>(shape_.hidden) * shape_.moe_intermediate;
        const double matrices =
            static_cast<double>(expert_.values) / shape_.moe_layers / shape_.experts / matrix;
        shape_.matrices = matrices < 2.5 ? 2 : 3;
        if (std::abs(matrices - shape_.matrices) > 1e-6)
            fail(format("an expert of {} x {} has {:g} matrices; 2 or 3 are needed", shape_.hidden,
                        shape_.moe_intermediate, matrices));
    }

    void fill_parts() {
        const bool tied = head_.values == 0;
        const uint64_t count = uint64_t{shape_.moe_layers} * shape_.experts;
        shape_.expert_bytes = (expert_.bytes + count / 2) / count;
        shape_.expert_bits = expert_.bits();
        shape_.weight_bytes = shape_.expert_bits / 8;
        shape_.embedding_bits = embedding_.bits();
        shape_.head_bits = tied ? shape_.embedding_bits : head_.bits();
        if (dense_.values != 0) shape_.dense_bits = dense_.bits();
        shape_.non_expert_bytes = dense_.bytes + embedding_.bytes + head_.bytes;
        // A token reads one row of the embedding. If it is also the head, a token reads all of it.
        shape_.dense_bytes = shape_.non_expert_bytes - (tied ? 0 : embedding_.bytes);
        double products = 0;
        for (const layer_parts &layer : layers_) products += layer.has_experts ? layer.products : 0;
        shape_.products =
            std::max(1u, static_cast<uint32_t>(std::lround(products / shape_.moe_layers)));
    }

    void fill_attention() {
        double cached = 0, operations = 0, state = 0;
        for (uint32_t layer = 0; layer < shape_.layers && !failure_; ++layer) {
            const layer_parts &parts = layers_[layer];
            const double heads = size("attention.head_count", layer, 0);
            const double rank = size("attention.kv_lora_rank", layer, 0);
            const double whole = heads == 0 ? 0 : shape_.hidden / heads;
            const double key = size("attention.key_length", layer, whole);
            const double values = size("attention.value_length", layer, key);
            const double rotated = size("rope.dimension_count", layer, 0);
            if (parts.is_latent) {
                cached += rank + rotated;
                operations += 2 * heads * (2 * rank + rotated);
            } else if (parts.has_keys || (parts.has_fused_qkv && !parts.has_state)) {
                cached += size("attention.head_count_kv", layer, heads) * (key + values);
                operations += 2 * heads * (key + values);
            }
            if (parts.has_state) state += static_cast<double>(parts.window_values) + state_values();
        }
        const auto mean_layer_bytes = [&](double sum, uint64_t bytes) {
            return static_cast<uint64_t>(
                std::llround(sum * static_cast<double>(bytes) / shape_.layers));
        };
        shape_.kv_token_layer_bytes =
            std::max<uint64_t>(1, mean_layer_bytes(cached, cached_value_bytes));
        shape_.context_operations = operations / shape_.layers;
        shape_.state_layer_bytes = mean_layer_bytes(state, state_value_bytes);
    }
    // Each value of the layer's inner vector has its own row of the state.
    double state_values() {
        return static_cast<double>(require_size("ssm.inner_size")) * require_size("ssm.state_size");
    }

    const gguf_files &files_;
    std::string architecture_;
    model_shape shape_;
    std::vector<layer_parts> layers_;
    part embedding_, head_, expert_, dense_;
    std::optional<error> failure_;
};

}  // namespace

result<model_shape> gguf_shape(const std::filesystem::path &path) {
    const result<gguf_files> files = gguf_files::open(path, gguf_reading::sizes);
    if (!files) return files.failure();
    return shape_counter(*files).count();
}

}  // namespace moorage::core
