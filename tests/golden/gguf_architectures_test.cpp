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
    for (const auto &[name, own] : names)
        if (name == architecture) return own;
    return "";
}

class gguf_writer {
public:
    gguf_writer(const model &of, layout how) : of_(of), config_(of.config()), how_(how) {}

    std::vector<std::byte> write() {
        write_keys();
        const model_weights &all = of_.weights();
        put("token_embd", all.embedding);
        put("output_norm", all.final_norm);
        put("output", all.head);
        put("output.bias", all.head_bias);
        for (uint32_t number = 0; number < config_.layers; ++number)
            write_layer("blk." + std::to_string(number) + ".", all.layers[number]);
        return out_.make();
    }

private:
    std::string key(const char *name) const {
        return std::string(gguf_name(config_.architecture)) + "." + name;
    }
    void number(const char *name, uint32_t value) { out_.number(key(name), value); }
    void real(const char *name, double value) { out_.real(key(name), static_cast<float>(value)); }
    bool permuted() const {
        return config_.architecture == "mixtral" || config_.architecture == "granitemoe";
    }
    bool latent() const { return config_.attention.kind == attention_kind::latent; }

    void write_keys() {
        const attention_config &a = config_.attention;
        out_.text("general.architecture", gguf_name(config_.architecture));
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
        if (config_.router.normalise) out_.flag(key("expert_weights_norm"), true);
        if (config_.rope.kind == rope_kind::yarn) {
            out_.text(key("rope.scaling.type"), "yarn");
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
        number("attention.head_count_kv", how_.halves ? 1 : a.heads);
        number("attention.key_length",
               how_.halves ? a.kv_lora_rank + config_.rope.dimensions : a.head_dim);
        number("attention.value_length", how_.halves ? a.kv_lora_rank : a.value_dim);
        if (!how_.halves) return;
        number("attention.key_length_mla", a.head_dim);
        number("attention.value_length_mla", a.value_dim);
    }

    static std::vector<float> values(const matrix &of) {
        std::vector<float> all(size_t{of.rows} * of.columns);
        for (uint32_t row = 0; row < of.rows; ++row)
            read_row(of, row, {all.data() + size_t{row} * of.columns, of.columns});
        return all;
    }
    // In each head, the two halves of `count` values are interleaved.
    std::vector<float> turned(std::vector<float> all, uint32_t heads, size_t width) const {
        if (!permuted()) return all;
        const size_t dim = config_.attention.head_dim;
        std::vector<float> out(all.size());
        for (size_t head = 0; head < heads; ++head)
            for (size_t i = 0; i < dim; ++i) {
                const size_t to = head * dim + (i < dim / 2 ? 2 * i : 2 * (i - dim / 2) + 1);
                std::copy_n(all.begin() + static_cast<std::ptrdiff_t>((head * dim + i) * width),
                            width, out.begin() + static_cast<std::ptrdiff_t>(to * width));
            }
        return out;
    }
    void put(const std::string &name, const matrix &of) {
        if (of) out_.floats(name + ".weight", {of.columns, of.rows}, values(of));
    }
    // With its ending.
    void put(const std::string &name, std::span<const float> of) {
        if (!of.empty()) out_.floats(name, {of.size()}, {of.begin(), of.end()});
    }
    void put(const std::string &name, const norm_weights &of) {
        put(name + ".weight", of.weight);
        put(name + ".bias", of.bias);
    }
    void put_mlp(const std::string &block, const char *ending, const mlp_weights &of) {
        put(block + "ffn_gate" + ending, of.gate);
        put(block + "ffn_up" + ending, of.up);
        put(block + "ffn_down" + ending, of.down);
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
            out_.floats(block + "ffn_gate_inp_shexp.weight", {layer.shared_gate.columns},
                        values(layer.shared_gate));
        write_experts(block, layer.experts);
    }

    void write_attention(const std::string &block, const attention_weights &a) {
        const attention_config &of = config_.attention;
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
        std::vector<float> all[] = {turned(values(a.query), of.heads, config_.hidden),
                                    turned(values(a.key), of.kv_heads, config_.hidden),
                                    values(a.value)};
        std::vector<float> biases[] = {{a.query_bias.begin(), a.query_bias.end()},
                                       {a.key_bias.begin(), a.key_bias.end()},
                                       {a.value_bias.begin(), a.value_bias.end()}};
        if (how_.fused) {
            for (const int i : {1, 2}) {
                all[0].insert(all[0].end(), all[i].begin(), all[i].end());
                biases[0].insert(biases[0].end(), biases[i].begin(), biases[i].end());
            }
        }
        const char *names[] = {how_.fused ? "attn_qkv" : "attn_q", "attn_k", "attn_v"};
        for (int i = 0; i < (how_.fused ? 1 : 3); ++i) {
            out_.floats(block + names[i] + ".weight",
                        {config_.hidden, all[i].size() / config_.hidden}, all[i]);
            put(block + names[i] + ".bias", std::span<const float>(biases[i]));
        }
    }

    void write_kv_b(const std::string &block, const matrix &kv_b) {
        if (!how_.halves) return put(block + "attn_kv_b", kv_b);
        const attention_config &of = config_.attention;
        const size_t nope = of.nope_dim, rank = of.kv_lora_rank, value = of.value_dim;
        const std::vector<float> all = values(kv_b);
        std::vector<float> keys, up;
        for (size_t head = 0; head < of.heads; ++head) {
            const float *from = all.data() + head * (nope + value) * rank;
            for (size_t r = 0; r < rank; ++r)
                for (size_t n = 0; n < nope; ++n) keys.push_back(from[n * rank + r]);
            up.insert(up.end(), from + nope * rank, from + (nope + value) * rank);
        }
        out_.floats(block + "attn_k_b.weight", {nope, rank, of.heads}, keys);
        out_.floats(block + "attn_v_b.weight", {rank, value, of.heads}, up);
    }

    void write_experts(const std::string &block, const std::vector<mlp_weights> &experts) {
        const uint64_t inner = config_.moe_intermediate, hidden = config_.hidden,
                       count = config_.experts;
        std::vector<float> gate, up, down, gate_bias, up_bias, down_bias;
        const auto add = [](std::vector<float> &to, const auto &from) {
            to.insert(to.end(), from.begin(), from.end());
        };
        for (const mlp_weights &one : experts) {
            add(gate, values(one.gate));
            add(how_.fused ? gate : up, values(one.up));
            add(down, values(one.down));
            add(gate_bias, one.gate_bias);
            add(up_bias, one.up_bias);
            add(down_bias, one.down_bias);
        }
        if (how_.fused)
            out_.floats(block + "ffn_gate_up_exps.weight", {hidden, 2 * inner, count}, gate);
        else
            out_.floats(block + "ffn_gate_exps.weight", {hidden, inner, count}, gate);
        if (!how_.fused) out_.floats(block + "ffn_up_exps.weight", {hidden, inner, count}, up);
        out_.floats(block + "ffn_down_exps.weight", {inner, hidden, count}, down);
        if (gate_bias.empty()) return;
        out_.floats(block + "ffn_gate_exps.bias", {inner, count}, gate_bias);
        out_.floats(block + "ffn_up_exps.bias", {inner, count}, up_bias);
        out_.floats(block + "ffn_down_exps.bias", {hidden, count}, down_bias);
    }

    const model &of_;
    const model_config &config_;
    const layout how_;
    gguf_maker out_;
};

}  // namespace

TEST_CASE("every architecture computes from a GGUF file what its reference does") {
    thread_pool pool(2);
    for (const std::string &name : golden_names())
        for (const layout how : {layout{true, false}, layout{false, true}}) {
            CAPTURE(name);
            CAPTURE(how.fused);
            const auto source = open_or_fail(golden_path(name));
            const scratch_directory place;
            const std::filesystem::path path = place.path() / "made.gguf";
            write_file(path, gguf_writer(*source, how).write());
            const auto made = open_or_fail(path);
            const golden_data golden = golden_of(*source);
            const auto report = check_golden(*made, golden, pool);
            REQUIRE(report.ok());
            MESSAGE(name << ": logits " << report->logits_error);
            CHECK(report->logits_error <= 2e-5);
            CHECK(report->greedy == golden.greedy);
            CHECK(made->sizes().unused.empty());
            CHECK(made->sizes().parameters == source->sizes().parameters);
            CHECK(made->config().attention.scale ==
                  doctest::Approx(source->config().attention.scale).epsilon(1e-7));
        }
}

}  // namespace gguf_architectures_test
