// model_config_test.cpp - goal: a config.json gives the rules of its architecture, in every
// spelling. Rules that cannot be computed are refused by name. Method: the configurations of the
// ten golden models and of published ones, compared with figures worked out by hand from the
// models' papers and published code; the same configuration in old and new spelling; edits that
// must be refused.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <string>
#include <vector>

#include "core/base/json.h"
#include "core/model/model.h"
#include "core/model/model_config.h"
#include "tests/unit/model_files.h"

namespace model_config_test {

using namespace moorage::core;
using moorage::test::golden_directory;
using moorage::test::read_file;

namespace {

json golden_json(const std::string &name) {
    return parse_json(read_file(golden_directory(name) / "config.json"));
}

model_config parse_valid(const json &config) {
    const auto parsed_config = parse_model_config(config.dump(), "config.json");
    INFO((parsed_config.ok() ? std::string() : parsed_config.failure().text));
    REQUIRE(parsed_config.ok());
    return *parsed_config;
}

// `changes` over the golden configuration; null removes a key.
json edited(const std::string &name, const json &changes) {
    json config = golden_json(name);
    for (const auto &[key, value] : changes.items()) {
        config.erase(key);
        if (!value.is_null()) config[key] = value;
    }
    return config;
}

std::string refusal(const json &config) {
    const auto parsed_config = parse_model_config(config.dump(), "dir/config.json");
    REQUIRE_FALSE(parsed_config.ok());
    return parsed_config.failure().text;
}

bool holds(const std::string &text, const std::string &part) {
    return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("mixtral: softmax over all, weights normalised, no dense layer") {
    const model_config config = parse_valid(golden_json("mixtral"));
    CHECK(config.layers == 3);
    CHECK(config.hidden == 48);
    CHECK(config.experts == 8);
    CHECK(config.top_k == 2);
    CHECK(config.moe_intermediate == 80);
    CHECK(config.attention.heads == 6);
    CHECK(config.attention.kv_heads == 2);
    CHECK(config.attention.head_dim == 8);  // 48 / 6, head_dim is null
    CHECK(config.attention.scale == doctest::Approx(1 / std::sqrt(8.0)));
    CHECK(config.rope.theta == 1e6);
    CHECK(config.rope.dimensions == 8);
    CHECK_FALSE(config.rope.interleaved);
    CHECK(config.router.score == score_kind::softmax);
    CHECK(config.router.normalise);
    CHECK(config.moe == std::vector<uint8_t>{1, 1, 1});
    CHECK(config.moe_layers() == std::vector<uint32_t>{0, 1, 2});
    CHECK(config.shared_intermediate == 0);
    CHECK(config.kv_token_layer_bytes(2) == 2 * 2 * 8 * 2);
    CHECK_FALSE(config.attention.qkv_bias);
    CHECK(config.attention.window == 0);
}

TEST_CASE("qwen2_moe: biases of queries, keys and values, a gated shared expert") {
    const model_config config = parse_valid(golden_json("qwen2_moe"));
    CHECK(config.attention.qkv_bias);  // the default of the family
    CHECK_FALSE(config.attention.output_bias);
    CHECK(config.shared_intermediate == 64);
    CHECK(config.shared_gate);
    CHECK_FALSE(config.router.normalise);
    CHECK(config.attention.norm == query_key_norm::none);
    CHECK_FALSE(parse_valid(edited("qwen2_moe", {{"qkv_bias", false}})).attention.qkv_bias);
}

TEST_CASE("qwen3_moe: a head wider than hidden / heads, norms of queries and keys") {
    const model_config config = parse_valid(golden_json("qwen3_moe"));
    CHECK(config.attention.head_dim == 20);
    CHECK(config.attention.norm == query_key_norm::per_head);
    CHECK(config.router.normalise);
    CHECK_FALSE(config.attention.qkv_bias);
    const model_config biased = parse_valid(edited("qwen3_moe", {{"attention_bias", true}}));
    CHECK(biased.attention.qkv_bias);
    CHECK(biased.attention.output_bias);
}

TEST_CASE("olmoe: norms over the whole width, clipping where it is given") {
    const model_config config = parse_valid(golden_json("olmoe"));
    CHECK(config.attention.norm == query_key_norm::whole);
    CHECK(config.attention.clip_qkv == 0);
    CHECK_FALSE(config.router.normalise);
    CHECK(parse_valid(edited("olmoe", {{"clip_qkv", 8.0}})).attention.clip_qkv == 8);
}

TEST_CASE("deepseek_v2: latent attention, a dense first layer, shared experts as one") {
    const model_config config = parse_valid(golden_json("deepseek_v2_lite"));
    CHECK(config.attention.kind == attention_kind::latent);
    CHECK(config.attention.query_lora_rank == 0);
    CHECK(config.attention.kv_lora_rank == 24);
    CHECK(config.attention.nope_dim == 16);
    CHECK(config.attention.head_dim == 24);
    CHECK(config.attention.value_dim == 16);
    CHECK(config.attention.kv_heads == 4);
    CHECK(config.rope.dimensions == 8);
    CHECK(config.rope.interleaved);
    CHECK(config.attention.scale == doctest::Approx(1 / std::sqrt(24.0)));
    CHECK(config.moe == std::vector<uint8_t>{0, 1, 1});
    CHECK(config.dense_intermediate == 96);
    CHECK(config.shared_intermediate == 48);
    CHECK_FALSE(config.shared_gate);
    CHECK(config.router.group == group_rule::none);
    CHECK(config.kv_token_layer_bytes(2) == (24 + 8) * 2);

    const model_config grouped = parse_valid(
        edited("deepseek_v2_lite",
               {{"topk_method", "group_limited_greedy"}, {"n_group", 4}, {"topk_group", 2}}));
    CHECK(grouped.router.group == group_rule::best);
    CHECK(grouped.router.groups == 4);
    CHECK(grouped.router.groups_chosen == 2);
}

TEST_CASE("deepseek_v3: sigmoid, a bias for choosing, the best two of a group") {
    const model_config config = parse_valid(golden_json("deepseek_v3"));
    CHECK(config.attention.query_lora_rank == 24);
    CHECK(config.router.score == score_kind::sigmoid);
    CHECK(config.router.correction_bias);
    CHECK(config.router.group == group_rule::best_two);
    CHECK(config.router.groups == 4);
    CHECK(config.router.groups_chosen == 2);
    CHECK(config.router.scale == 2.5);
    CHECK(config.router.normalise);
    CHECK(config.rope.interleaved);
    CHECK_FALSE(parse_valid(edited("deepseek_v3", {{"rope_interleave", false}})).rope.interleaved);
}

TEST_CASE("phimoe: layer norms, biases everywhere, sparsemixer") {
    const model_config config = parse_valid(golden_json("phimoe"));
    CHECK(config.norm == norm_kind::layer);
    CHECK(config.attention.qkv_bias);
    CHECK(config.attention.output_bias);
    CHECK(config.head_bias);
    CHECK(config.router.score == score_kind::sparsemixer);
    CHECK(config.router.jitter == 0.01);
}

TEST_CASE("granitemoe: its four multipliers") {
    const model_config config = parse_valid(golden_json("granitemoe"));
    CHECK(config.attention.scale == 0.3);
    CHECK(config.embedding_multiplier == 2);
    CHECK(config.residual_multiplier == 0.8);
    CHECK(config.logits_divisor == 1.5);
    CHECK(config.router.score == score_kind::softmax_of_chosen);
}

TEST_CASE("gpt_oss: sinks, a window in every second layer, clamped activation, biases") {
    const model_config config = parse_valid(golden_json("gpt_oss"));
    CHECK(config.attention.sinks);
    CHECK(config.attention.window == 8);
    CHECK(config.attention.sliding == std::vector<uint8_t>{1, 0, 1, 0});
    CHECK(config.activation == activation_kind::clamped_swiglu);
    CHECK(config.activation_limit == 7);
    CHECK(config.expert_bias);
    CHECK(config.router.bias);
    CHECK(config.rope.kind == rope_kind::yarn);
    CHECK(config.rope.factor == 32);
    CHECK(config.rope.original_positions == 4096);
    CHECK_FALSE(config.rope.truncate);
    // The attention's factor of yarn belongs to the rotation, not to the scale.
    CHECK(config.attention.scale == doctest::Approx(0.25));
    // Without layer_types every second layer from the first slides.
    CHECK(parse_valid(edited("gpt_oss", {{"layer_types", nullptr}})).attention.sliding ==
          config.attention.sliding);
}

TEST_CASE("glm4_moe: half of each head rotated, norms where the key says so") {
    const model_config config = parse_valid(golden_json("glm4_moe"));
    CHECK(config.rope.dimensions == 8);
    CHECK(config.attention.norm == query_key_norm::per_head);
    CHECK(config.router.score == score_kind::sigmoid);
    CHECK(config.router.correction_bias);
    CHECK(config.router.group == group_rule::none);  // one group
    CHECK(config.moe == std::vector<uint8_t>{0, 1, 1});
    CHECK(parse_valid(edited("glm4_moe", {{"use_qk_norm", false}})).attention.norm ==
          query_key_norm::none);
}

TEST_CASE("old and new spellings give the same configuration") {
    const json fresh = edited("qwen3_moe", {{"rope_parameters",
                                             {{"rope_type", "yarn"},
                                              {"rope_theta", 5000.0},
                                              {"factor", 4.0},
                                              {"original_max_position_embeddings", 64}}}});
    const json old =
        edited("qwen3_moe",
               {{"rope_parameters", nullptr},
                {"rope_theta", 5000},
                {"num_local_experts", nullptr},
                {"num_experts", 16},
                {"dtype", nullptr},
                {"torch_dtype", "bfloat16"},
                {"rope_scaling",
                 {{"type", "yarn"}, {"factor", 4}, {"original_max_position_embeddings", 64}}}});
    const json nested =
        edited("qwen3_moe", {{"rope_parameters", {{"full_attention", fresh["rope_parameters"]}}}});
    for (const json &variant : {fresh, old, nested}) {
        const model_config config = parse_valid(variant);
        CHECK(config.experts == 16);
        CHECK(config.rope.kind == rope_kind::yarn);
        CHECK(config.rope.theta == 5000);
        CHECK(config.rope.factor == 4);
        CHECK(config.rope.original_positions == 64);
        CHECK(config.rope.beta_fast == 32);
        CHECK(config.rope.truncate);
    }
    // The keys that model cards add to a new file replace the keys that it has.
    json mixed = edited("qwen3_moe",
                        {{"rope_parameters", {{"rope_type", "default"}, {"rope_theta", 5000.0}}}});
    mixed["rope_scaling"] = old["rope_scaling"];
    CHECK(parse_valid(mixed).rope.kind == rope_kind::yarn);
    CHECK(parse_valid(mixed).rope.theta == 5000);
    mixed["rope_scaling"] = json::object();
    CHECK(parse_valid(mixed).rope.kind == rope_kind::plain);
    // If yarn has no factor, the lengths give it: 256 positions now, 64 before.
    json derived = old;
    derived["rope_scaling"].erase("factor");
    CHECK(parse_valid(derived).rope.factor == 4);
}

TEST_CASE("rotary embeddings: every kind of scaling") {
    const auto with_scaling = [](const json &scaling) {
        return edited(
            "mixtral",
            {{"rope_parameters", nullptr}, {"rope_theta", 1e4}, {"rope_scaling", scaling}});
    };
    CHECK(parse_valid(with_scaling(nullptr)).rope.kind == rope_kind::plain);
    CHECK(parse_valid(with_scaling({{"type", "linear"}, {"factor", 2}})).rope.kind ==
          rope_kind::linear);
    const auto dynamic = parse_valid(with_scaling({{"type", "dynamic"}, {"factor", 2}})).rope;
    CHECK(dynamic.kind == rope_kind::dynamic);
    CHECK(dynamic.original_positions == 256);
    const auto llama = parse_valid(with_scaling({{"rope_type", "llama3"},
                                                 {"factor", 8},
                                                 {"low_freq_factor", 1},
                                                 {"high_freq_factor", 4},
                                                 {"original_max_position_embeddings", 128}}))
                           .rope;
    CHECK(llama.kind == rope_kind::llama3);
    CHECK(llama.low_frequency_factor == 1);
    CHECK(llama.high_frequency_factor == 4);
    const auto longer = parse_valid(with_scaling({{"type", "su"},
                                                  {"short_factor", {1, 1, 1, 1}},
                                                  {"long_factor", {1, 2, 3, 4}},
                                                  {"original_max_position_embeddings", 64}}))
                            .rope;
    CHECK(longer.kind == rope_kind::longrope);
    CHECK(longer.factor == 4);
    CHECK(longer.long_factor == std::vector<double>{1, 2, 3, 4});

    CHECK(holds(refusal(with_scaling({{"type", "ntk"}, {"factor", 2}})), "ntk"));
    CHECK(holds(refusal(with_scaling({{"type", "linear"}})), "factor"));
    CHECK(holds(refusal(with_scaling({{"rope_type", "default"}, {"mrope_section", {1, 2}}})),
                "mrope_section"));
    CHECK(
        holds(refusal(with_scaling({{"type", "su"}, {"short_factor", {1}}, {"long_factor", {1}}})),
              "short_factor"));
    CHECK(holds(refusal(edited("mixtral", {{"rope_parameters",
                                            {{"full_attention", {{"rope_theta", 1e4}}},
                                             {"sliding_attention", {{"rope_theta", 1e6}}}}}})),
                "rope_parameters"));
}

TEST_CASE("windows: only where they are in use") {
    const json window = {{"sliding_window", 16}};
    const auto sliding = [](const json &config) { return parse_valid(config).attention.sliding; };
    CHECK(sliding(edited("mixtral", window)) == std::vector<uint8_t>{1, 1, 1});
    CHECK(sliding(edited("qwen3_moe", window)).empty());  // use_sliding_window is false
    CHECK(sliding(edited("qwen3_moe", {{"sliding_window", 16}, {"use_sliding_window", true}})) ==
          std::vector<uint8_t>{1, 1, 1});
    CHECK(sliding(edited("qwen2_moe", {{"sliding_window", 16},
                                       {"use_sliding_window", true},
                                       {"layer_types", nullptr},
                                       {"max_window_layers", 2}})) ==
          std::vector<uint8_t>{0, 0, 1});
    CHECK(parse_valid(edited("mixtral", {{"sliding_window", 256}})).attention.window == 0);
    CHECK(holds(
        refusal(edited(
            "olmoe", {{"layer_types", {"sliding_attention", "full_attention", "full_attention"}}})),
        "layer_types"));
    CHECK(holds(refusal(edited("gpt_oss", {{"layer_types", {"full_attention"}}})), "layer_types"));
    CHECK(holds(refusal(edited("gpt_oss", {{"layer_types",
                                            {"chunked_attention", "full_attention",
                                             "full_attention", "full_attention"}}})),
                "chunked_attention"));
}

TEST_CASE("dense layers: by step and list, and by the first that has experts") {
    const auto moe = [](const json &config) { return parse_valid(config).moe; };
    CHECK(moe(edited("qwen3_moe", {{"decoder_sparse_step", 2}})) == std::vector<uint8_t>{0, 1, 0});
    CHECK(moe(edited("qwen3_moe", {{"mlp_only_layers", {0, 2}}})) == std::vector<uint8_t>{0, 1, 0});
    CHECK(moe(edited("deepseek_v3", {{"first_k_dense_replace", 2}})) ==
          std::vector<uint8_t>{0, 0, 1});
    CHECK(moe(edited("deepseek_v3", {{"first_k_dense_replace", 0}, {"moe_layer_freq", 2}})) ==
          std::vector<uint8_t>{1, 0, 1});
    CHECK(holds(refusal(edited("deepseek_v3", {{"first_k_dense_replace", 3}})), "no layer"));
}

TEST_CASE("what cannot be computed is refused by its key") {
    const struct {
        const char *model;
        json changes;
        const char *named;
    } cases[] = {
        {"mixtral", {{"hidden_act", "relu"}}, "hidden_act is relu"},
        {"mixtral", {{"quantization_config", {{"quant_method", "gptq"}}}}, "quantization_config"},
        {"mixtral", {{"quantization_config", {{"quant_method", "mxfp4"}}}}, "quantization_config"},
        {"mixtral", {{"quantization_config", {{"quant_method", "bitsandbytes"}}}}, "bitsandbytes"},
        {"mixtral",
         {{"quantization_config", {{"quant_method", "gptq"}, {"bits", 3}}}},
         "quantization_config: bits has to be 4"},
        {"mixtral",
         {{"quantization_config",
           {{"quant_method", "gptq"}, {"bits", 4}, {"checkpoint_format", "marlin"}}}},
         "checkpoint_format is marlin; gptq and gptq_v2 are supported"},
        {"mixtral",
         {{"quantization_config", {{"quant_method", "awq"}, {"bits", 4}, {"version", "gemv"}}}},
         "version is gemv; gemm is supported"},
        {"mixtral",
         {{"quantization_config", {{"quant_method", "fp8"}, {"weight_block_size", {64, 64}}}}},
         "weight_block_size has to be [128, 128]"},
        {"mixtral",
         {{"quantization_config",
           {{"quant_method", "compressed-tensors"}, {"format", "float-quantized"}}}},
         "format is float-quantized; pack-quantized is supported"},
        {"mixtral", {{"is_encoder_decoder", true}}, "is_encoder_decoder"},
        {"mixtral", {{"attn_logit_softcapping", 50.0}}, "attn_logit_softcapping"},
        {"mixtral", {{"num_experts_per_tok", 9}}, "num_experts_per_tok is 9"},
        {"mixtral", {{"num_experts_per_tok", nullptr}}, "num_experts_per_tok"},
        {"mixtral", {{"hidden_size", 0}}, "hidden_size is 0"},
        {"mixtral", {{"hidden_size", "48"}}, "hidden_size is \"48\""},
        {"mixtral", {{"hidden_size", 48.5}}, "hidden_size is 48.5"},
        {"mixtral", {{"hidden_size", 50}}, "num_attention_heads"},
        {"mixtral", {{"num_key_value_heads", 4}}, "num_key_value_heads is 4"},
        {"mixtral", {{"vocab_size", 1e12}}, "vocab_size"},
        {"mixtral", {{"rms_norm_eps", nullptr}}, "rms_norm_eps"},
        {"mixtral", {{"head_dim", 7}}, "partial_rotary_factor"},
        {"deepseek_v2_lite", {{"mlp_bias", true}}, "mlp_bias"},
        {"deepseek_v2_lite", {{"attention_bias", true}}, "attention_bias"},
        {"deepseek_v2_lite", {{"norm_topk_prob", true}}, "norm_topk_prob"},
        {"deepseek_v2_lite", {{"topk_method", "noaux_tc"}}, "topk_method is noaux_tc"},
        {"deepseek_v2_lite", {{"qk_rope_head_dim", 7}}, "qk_rope_head_dim"},
        {"deepseek_v2_lite", {{"scoring_func", "sigmoid"}}, "scoring_func"},
        {"deepseek_v3", {{"n_group", 3}}, "n_group is 3"},
        {"deepseek_v3", {{"n_group", 16}, {"topk_group", 4}}, "n_group is 16"},
        {"deepseek_v3", {{"n_group", 8}, {"topk_group", 1}}, "topk_group is 1"},
        {"deepseek_v3", {{"n_shared_experts", nullptr}}, "n_shared_experts"},
        {"deepseek_v3", {{"index_topk", 2048}}, "index_topk"},
        {"phimoe", {{"num_experts_per_tok", 1}}, "num_experts_per_tok is 1"},
    };
    for (const auto &test_case : cases) {
        CAPTURE(test_case.named);
        const std::string text = refusal(edited(test_case.model, test_case.changes));
        CAPTURE(text);
        CHECK(text.starts_with("dir/config.json: "));
        CHECK(holds(text, test_case.named));
    }
}

TEST_CASE("an unknown architecture is answered with the known ones") {
    for (const json &config : {json{{"model_type", "switch_transformers"}}, json::object()}) {
        const std::string text = refusal(config);
        for (const std::string &known : known_architectures()) CHECK(holds(text, known));
    }
    CHECK(known_architectures().size() == 10);
    CHECK_FALSE(parse_model_config("[]", "x").ok());
    CHECK_FALSE(parse_model_config("{", "x").ok());
    CHECK_FALSE(parse_model_config("", "x").ok());
}

TEST_CASE("published shapes have configurations that agree with their sizes") {
    const struct {
        const char *shape, *architecture;
        double scale;
    } published[] = {
        {"mixtral_8x7b", "mixtral", 1 / std::sqrt(128.0)},
        {"mixtral_8x22b", "mixtral", 1 / std::sqrt(128.0)},
        {"qwen1_5_moe_a2_7b", "qwen2_moe", 1 / std::sqrt(128.0)},
        {"qwen2_57b_a14b", "qwen2_moe", 1 / std::sqrt(128.0)},
        {"qwen3_30b_a3b", "qwen3_moe", 1 / std::sqrt(128.0)},
        {"qwen3_235b_a22b", "qwen3_moe", 1 / std::sqrt(128.0)},
        // mscale = 0.1 * 0.707 * ln 40 + 1 = 1.260804; 192^-0.5 * mscale^2
        {"deepseek_v2_lite", "deepseek_v2", 0.1147213867},
        // mscale = 0.1 * ln 40 + 1 = 1.368888
        {"deepseek_v3", "deepseek_v3", 0.1352337788},
        {"olmoe_1b_7b", "olmoe", 1 / std::sqrt(128.0)},
        {"phi_3_5_moe", "phimoe", 1 / std::sqrt(128.0)},
        {"gpt_oss_20b", "gpt_oss", 0.125},
        {"gpt_oss_120b", "gpt_oss", 0.125},
        {"demo", "qwen2_moe", 1 / std::sqrt(32.0)},
    };
    for (const auto &expected : published) {
        CAPTURE(expected.shape);
        const auto config = config_of_shape(expected.shape, ".");
        INFO((config.ok() ? std::string() : config.failure().text));
        REQUIRE(config.ok());
        const auto shape = load_shape(expected.shape, ".");
        REQUIRE(shape.ok());
        CHECK(config->architecture == expected.architecture);
        CHECK(config->attention.scale == doctest::Approx(expected.scale).epsilon(1e-6));
        CHECK(config->layers == shape->layers);
        CHECK(config->moe_layers().size() == shape->moe_layers);
        CHECK(config->experts == shape->experts);
        CHECK(config->top_k == shape->top_k);
        CHECK(config->hidden == shape->hidden);
        CHECK(config->moe_intermediate == shape->moe_intermediate);
        CHECK(config->vocabulary == shape->vocabulary);
        CHECK(config->kv_token_layer_bytes(2) == shape->kv_token_layer_bytes);
    }
    const auto phi = config_of_shape("phi_3_5_moe", ".");
    CHECK(phi->rope.attention_factor == doctest::Approx(1.243163121));
    CHECK(phi->rope.factor == 32);
    CHECK(phi->rope.long_factor.size() == 64);
    const auto without = config_of_shape("switch_base_8", ".");
    REQUIRE_FALSE(without.ok());
    CHECK(holds(without.failure().text, "[config]"));
}

// The keys of the published files that the reader uses, with their published values.
TEST_CASE("published configurations") {
    const json published = parse_json(
        read_file(std::filesystem::path(MOORAGE_SOURCE_DIR) / "tests/data/published_configs.json"));
    const struct {
        const char *file, *shape;  // no shape: refused
        const char *named;
    } files[] = {{"Mixtral-8x7B", "mixtral_8x7b", ""},
                 {"Qwen1.5-MoE-A2.7B", "qwen1_5_moe_a2_7b", ""},
                 {"Qwen2-57B-A14B", "qwen2_57b_a14b", ""},
                 {"Qwen3-30B-A3B", "qwen3_30b_a3b", ""},
                 {"Qwen3-235B-A22B", "qwen3_235b_a22b", ""},
                 {"DeepSeek-V2-Lite", "deepseek_v2_lite", ""},
                 {"OLMoE-1B-7B", "olmoe_1b_7b", ""},
                 {"Phi-3.5-MoE", "phi_3_5_moe", ""},
                 {"gpt-oss-20b", "gpt_oss_20b", ""},
                 {"gpt-oss-120b", "gpt_oss_120b", ""},
                 {"DeepSeek-V3", "deepseek_v3", ""},
                 {"DeepSeek-MoE-16B", nullptr, "model_type is deepseek;"},
                 {"Switch-128", nullptr, "model_type is switch_transformers"},
                 {"LLaMA-MoE-v1", nullptr, "model_type is llama_moe"},
                 {"XVERSE-MoE-A4.2B", nullptr, "model_type is xverse"}};
    for (const auto &entry : files) {
        CAPTURE(entry.file);
        const auto config = parse_model_config(published.at(entry.file).dump(), entry.file);
        REQUIRE(config.ok() == (entry.shape != nullptr));
        if (entry.shape == nullptr) {
            CHECK(holds(config.failure().text, entry.named));
            continue;
        }
        // The shape file and the model's own files agree.
        const auto again = config_of_shape(entry.shape, ".");
        REQUIRE(again.ok());
        CHECK(again->attention.scale == config->attention.scale);
        CHECK(again->attention.sliding == config->attention.sliding);
        CHECK(again->attention.window == config->attention.window);
        CHECK(again->moe == config->moe);
        CHECK(again->shared_intermediate == config->shared_intermediate);
        CHECK(again->router.normalise == config->router.normalise);
        CHECK(again->router.scale == config->router.scale);
        CHECK(again->rope.theta == config->rope.theta);
        CHECK(again->rope.factor == config->rope.factor);
        CHECK(again->positions_max == config->positions_max);
        CHECK(again->norm_epsilon == config->norm_epsilon);
    }
}

}  // namespace model_config_test
