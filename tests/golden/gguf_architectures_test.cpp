// gguf_architectures_test.cpp - goal: a model of any architecture gives the same results from a
// GGUF file and from its directory. Method: write the golden models as GGUF files by the table of
// names and keys, and compare with their references. Queries and keys are permuted where llama.cpp
// permutes them. Experts are stacked, kv_b is whole and in halves, query, key and value are apart
// and as one.
#include <algorithm>
#include <cmath>

#include "core/execute/cpu/golden_check.h"
#include "core/model/weight_values.h"
#include "tests/golden/golden_fixture.h"
#include "tests/unit/gguf_files.h"
#include "tests/unit/model_files.h"

namespace gguf_architectures_test {

using namespace moorage::test;

namespace {

struct layout {
    bool halves = true;  // of kv_b
    bool fused = false;  // query, key and value; gate and up
};

const char *gguf_name(const std::string &architecture) {
    constexpr std::pair<std::string_view, const char *> names[] = {
        {"mixtral", "llama"},   {"qwen2_moe", "qwen2moe"},    {"qwen3_moe", "qwen3moe"},
        {"olmoe", "olmoe"},     {"deepseek_v2", "deepseek2"}, {"deepseek_v3", "deepseek2"},
        {"phimoe", "phimoe"},   {"granitemoe", "granitemoe"}, {"gpt_oss", "gpt-oss"},
        {"glm4_moe", "glm4moe"}};
    for (const auto &[name, gguf] : names)
        if (name == architecture) return gguf;
    return "";
}

class gguf_writer {
public:
    gguf_writer(const model &model, layout form)
        : model_(model), config_(model.config()), form_(form) {}

    std::vector<std::byte> write() {
        write_keys();
        const model_weights &weights = model_.weights();
        put("token_embd", weights.embedding);
        put("output_norm", weights.final_norm);
        put("output", weights.head);
        put("output.bias", weights.head_bias);
        for (uint32_t number = 0; number < config_.layers; ++number)
            write_layer("blk." + std::to_string(number) + ".", weights.layers[number]);
        return gguf_.make();
    }

private:
    std::string key(const char *name) const {
        return std::string(gguf_name(config_.architecture)) + "." + name;
    }
    void number(const char *name, uint32_t value) { gguf_.number(key(name), value); }
    void real(const char *name, double value) { gguf_.real(key(name), static_cast<float>(value)); }
    bool permuted() const {
        return config_.architecture == "mixtral" || config_.architecture == "granitemoe";
    }
    bool latent() const { return config_.attention.kind == attention_kind::latent; }

    void write_keys() {
        const attention_config &a = config_.attention;
        gguf_.text("general.architecture", gguf_name(config_.architecture));
        number("block_count", config_.layers);
        number("embedding_length", config_.hidden);
        number("context_length", config_.positions_max);
        number("attention.head_count", a.heads);
        real("attention.layer_norm_rms_epsilon", config_.norm_epsilon);
        real("rope.freq_base", config_.rope.theta);
        number("rope.dimension_count", config_.rope.dimensions);
        number("expert_count", config_.experts);
        number("expert_used_count", config_.top_k);
        number("feed_forward_length", config_.dense_intermediate != 0 ? config_.dense_intermediate
                                                                      : config_.moe_intermediate);
        if (config_.moe[0] == 0) number("leading_dense_block_count", config_.moe_layers().front());
        if (config_.attention.window != 0) number("attention.sliding_window", a.window);
        write_attention_keys();
        if (config_.router.score == score_kind::sigmoid) {
            number("expert_gating_func", 2);
            real("expert_weights_scale", config_.router.scale);
            number("expert_group_count", config_.router.groups);
            number("expert_group_used_count", config_.router.groups_chosen);
        }
        if (config_.router.normalise) gguf_.flag(key("expert_weights_norm"), true);
        if (config_.rope.kind == rope_kind::yarn) {
            gguf_.text(key("rope.scaling.type"), "yarn");
            real("rope.scaling.factor", config_.rope.factor);
            number("rope.scaling.original_context_length", config_.rope.original_positions);
        }
        if (config_.architecture != "granitemoe") return;
        real("embedding_scale", config_.embedding_multiplier);
        real("residual_scale", config_.residual_multiplier);
        real("logit_scale", config_.logits_divisor);
        real("attention.scale", a.scale);
    }
    void write_attention_keys() {
        const attention_config &a = config_.attention;
        if (!latent()) {
            number("attention.head_count_kv", a.kv_heads);
            number("attention.key_length", a.head_dim);
            number("attention.value_length", a.value_dim);
            return;
        }
        number("attention.kv_lora_rank", a.kv_lora_rank);
        number("attention.head_count_kv", form_.halves ? 1 : a.heads);
        number("attention.key_length",
               form_.halves ? a.kv_lora_rank + config_.rope.dimensions : a.head_dim);
        number("attention.value_length", form_.halves ? a.kv_lora_rank : a.value_dim);
        if (!form_.halves) return;
        number("attention.key_length_mla", a.head_dim);
        number("attention.value_length_mla", a.value_dim);
    }

    static std::vector<float> values(const matrix &source) {
        std::vector<float> row_values(size_t{source.rows} * source.columns);
        for (uint32_t row = 0; row < source.rows; ++row)
            read_row(source, row,
                     {row_values.data() + size_t{row} * source.columns, source.columns});
        return row_values;
    }
    // In each head, the two halves of `count` values are interleaved.
    std::vector<float> turned(std::vector<float> source, uint32_t heads, size_t width) const {
        if (!permuted()) return source;
        const size_t dim = config_.attention.head_dim;
        std::vector<float> target(source.size());
        for (size_t head = 0; head < heads; ++head)
            for (size_t i = 0; i < dim; ++i) {
                const size_t target_row =
                    head * dim + (i < dim / 2 ? 2 * i : 2 * (i - dim / 2) + 1);
                std::copy_n(source.begin() + static_cast<std::ptrdiff_t>((head * dim + i) * width),
                            width,
                            target.begin() + static_cast<std::ptrdiff_t>(target_row * width));
            }
        return target;
    }
    void put(const std::string &name, const matrix &weights) {
        if (weights)
            gguf_.floats(name + ".weight", {weights.columns, weights.rows}, values(weights));
    }
    // With its ending.
    void put(const std::string &name, std::span<const float> numbers) {
        if (!numbers.empty())
            gguf_.floats(name, {numbers.size()}, {numbers.begin(), numbers.end()});
    }
    void put(const std::string &name, const norm_weights &norm) {
        put(name + ".weight", norm.weight);
        put(name + ".bias", norm.bias);
    }
    void put_mlp(const std::string &block, const char *ending, const mlp_weights &mlp) {
        put(block + "ffn_gate" + ending, mlp.gate);
        put(block + "ffn_up" + ending, mlp.up);
        put(block + "ffn_down" + ending, mlp.down);
    }

    void write_layer(const std::string &block, const layer_weights &layer) {
        const bool post = config_.architecture == "gpt_oss" || config_.architecture == "glm4_moe";
        put(block + "attn_norm", layer.attention_norm);
        put(block + (post ? "post_attention_norm" : "ffn_norm"), layer.mlp_norm);
        write_attention(block, layer.attention);
        put_mlp(block, "", layer.dense);
        if (layer.experts.empty()) return;
        put(block + "ffn_gate_inp", layer.router);
        put(block + "ffn_gate_inp.bias", layer.router_bias);
        put(block + "exp_probs_b.bias", layer.correction_bias);
        put_mlp(block, "_shexp", layer.shared);
        if (layer.shared_gate)
            gguf_.floats(block + "ffn_gate_inp_shexp.weight", {layer.shared_gate.columns},
                         values(layer.shared_gate));
        write_experts(block, layer.experts);
    }

    void write_attention(const std::string &block, const attention_weights &a) {
        const attention_config &config = config_.attention;
        put(block + "attn_output", a.output);
        put(block + "attn_output.bias", a.output_bias);
        put(block + "attn_q_norm.weight", a.query_norm);
        put(block + "attn_k_norm.weight", a.key_norm);
        put(block + "attn_sinks.weight", a.sinks);
        if (latent()) {
            put(block + "attn_q", a.query);
            put(block + "attn_q_a", a.query_a);
            put(block + "attn_q_a_norm.weight", a.query_a_norm);
            put(block + "attn_q_b", a.query_b);
            put(block + "attn_kv_a_mqa", a.kv_a);
            put(block + "attn_kv_a_norm.weight", a.kv_a_norm);
            return write_kv_b(block, a.kv_b);
        }
        std::vector<float> projections[] = {turned(values(a.query), config.heads, config_.hidden),
                                            turned(values(a.key), config.kv_heads, config_.hidden),
                                            values(a.value)};
        std::vector<float> biases[] = {{a.query_bias.begin(), a.query_bias.end()},
                                       {a.key_bias.begin(), a.key_bias.end()},
                                       {a.value_bias.begin(), a.value_bias.end()}};
        if (form_.fused) {
            for (const int i : {1, 2}) {
                projections[0].insert(projections[0].end(), projections[i].begin(),
                                      projections[i].end());
                biases[0].insert(biases[0].end(), biases[i].begin(), biases[i].end());
            }
        }
        const char *names[] = {form_.fused ? "attn_qkv" : "attn_q", "attn_k", "attn_v"};
        for (int i = 0; i < (form_.fused ? 1 : 3); ++i) {
            gguf_.floats(block + names[i] + ".weight",
                         {config_.hidden, projections[i].size() / config_.hidden}, projections[i]);
            put(block + names[i] + ".bias", std::span<const float>(biases[i]));
        }
    }

    void write_kv_b(const std::string &block, const matrix &kv_b) {
        if (!form_.halves) return put(block + "attn_kv_b", kv_b);
        const attention_config &config = config_.attention;
        const size_t nope = config.nope_dim, rank = config.kv_lora_rank, value = config.value_dim;
        const std::vector<float> kv_values = values(kv_b);
        std::vector<float> key_rows, value_rows;
        for (size_t head = 0; head < config.heads; ++head) {
            const float *head_values = kv_values.data() + head * (nope + value) * rank;
            for (size_t r = 0; r < rank; ++r)
                for (size_t n = 0; n < nope; ++n) key_rows.push_back(head_values[n * rank + r]);
            value_rows.insert(value_rows.end(), head_values + nope * rank,
                              head_values + (nope + value) * rank);
        }
        gguf_.floats(block + "attn_k_b.weight", {nope, rank, config.heads}, key_rows);
        gguf_.floats(block + "attn_v_b.weight", {rank, value, config.heads}, value_rows);
    }

    void write_experts(const std::string &block, const std::vector<mlp_weights> &experts) {
        const uint64_t inner = config_.moe_intermediate, hidden = config_.hidden,
                       count = config_.experts;
        std::vector<float> gate, up, down, gate_bias, up_bias, down_bias;
        const auto add = [](std::vector<float> &target, const auto &source) {
            target.insert(target.end(), source.begin(), source.end());
        };
        for (const mlp_weights &expert : experts) {
            add(gate, values(expert.gate));
            add(form_.fused ? gate : up, values(expert.up));
            add(down, values(expert.down));
            add(gate_bias, expert.gate_bias);
            add(up_bias, expert.up_bias);
            add(down_bias, expert.down_bias);
        }
        if (form_.fused)
            gguf_.floats(block + "ffn_gate_up_exps.weight", {hidden, 2 * inner, count}, gate);
        else
            gguf_.floats(block + "ffn_gate_exps.weight", {hidden, inner, count}, gate);
        if (!form_.fused) gguf_.floats(block + "ffn_up_exps.weight", {hidden, inner, count}, up);
        gguf_.floats(block + "ffn_down_exps.weight", {inner, hidden, count}, down);
        if (gate_bias.empty()) return;
        gguf_.floats(block + "ffn_gate_exps.bias", {inner, count}, gate_bias);
        gguf_.floats(block + "ffn_up_exps.bias", {inner, count}, up_bias);
        gguf_.floats(block + "ffn_down_exps.bias", {hidden, count}, down_bias);
    }

    const model &model_;
    const model_config &config_;
    const layout form_;
    gguf_maker gguf_;
};

}  // namespace

TEST_CASE("every architecture computes from a GGUF file what its reference does") {
    thread_pool pool(2);
    for (const std::string &name : golden_names())
        for (const layout form : {layout{true, false}, layout{false, true}}) {
            CAPTURE(name);
            CAPTURE(form.fused);
            const auto source = open_or_fail(golden_path(name));
            const scratch_directory place;
            const std::filesystem::path path = place.path() / "made.gguf";
            write_file(path, gguf_writer(*source, form).write());
            const auto opened = open_or_fail(path);
            const golden_data golden = golden_of(*source);
            const auto report = check_golden(*opened, golden, pool);
            REQUIRE(report.ok());
            MESSAGE(name << ": logits " << report->logits_error);
            CHECK(report->logits_error <= 2e-5);
            CHECK(report->greedy == golden.greedy);
            CHECK(opened->sizes().unused.empty());
            CHECK(opened->sizes().parameters == source->sizes().parameters);
            CHECK(opened->config().attention.scale ==
                  doctest::Approx(source->config().attention.scale).epsilon(1e-7));
        }
}

}  // namespace gguf_architectures_test
