// unread_test.cpp - goal: nothing that changes a result is left unread. Method: every golden model
// in both forms, with one tensor more, one key less or one key more: some 1,300 files. Each must be
// refused by name or give the expected results. If the change means nothing, these are the golden
// model's logits. Otherwise they are those of the same weights under the published default of the
// key.
#include <cmath>
#include <map>

#include "core/base/log.h"
#include "tests/golden/unread_files.h"

namespace unread_test {

using namespace moorage::test;

namespace {

constexpr double same_max = 1e-6;
using rule = std::function<void(model_config &)>;

double plain_scale(const model_config &config) {
    return 1 / std::sqrt(static_cast<double>(config.attention.head_dim));
}
bool is_latent(const model_config &config) {
    return config.attention.kind == attention_kind::latent;
}

// Why a changed file counts as silent; empty if it does not. `named`: the name that a refusal must
// have; empty if the file must be read. expected: empty if it must be refused.
std::string what_is_silent(const nearly_golden::outcome &is, const std::vector<float> &expected,
                           const std::string &named) {
    if (!is.error.empty()) {
        const bool has_name = is.error.find(named) != std::string::npos ||
                              is.error.find("tensor ") != std::string::npos;
        return !named.empty() && has_name ? "" : "refused: " + is.error;
    }
    if (expected.empty()) return "read as if it were not there";
    const double apart = relative_error(is.logits, expected);
    return apart <= same_max ? "" : "read, and off by " + std::to_string(apart);
}

std::string last_part(const std::string &key) { return key.substr(key.rfind('.') + 1); }

// Names of tensors that some model of this kind has: under a layer, then of the whole model.
const std::vector<std::string> directory_layer = {"self_attn.q_proj.bias",
                                                  "self_attn.k_proj.bias",
                                                  "self_attn.v_proj.bias",
                                                  "self_attn.o_proj.bias",
                                                  "self_attn.q_norm.weight",
                                                  "self_attn.k_norm.weight",
                                                  "self_attn.sinks",
                                                  "self_attn.qkv_proj.weight",
                                                  "self_attn.kv_a_proj_with_mqa.bias",
                                                  "self_attn.indexer.wk.weight",
                                                  "self_attn.q_proj.lora_A.weight",
                                                  "self_attn.o_proj.weight_scale_inv",
                                                  "input_layernorm.bias",
                                                  "post_attention_layernorm.bias",
                                                  "pre_feedforward_layernorm.weight",
                                                  "post_feedforward_layernorm.weight",
                                                  "layer_scalar",
                                                  "mlp.gate.bias",
                                                  "mlp.router.scale",
                                                  "mlp.gate.e_score_correction_bias",
                                                  "mlp.shared_expert_gate.weight",
                                                  "mlp.shared_experts.up_proj.bias",
                                                  "mlp.experts.0.down_proj.bias",
                                                  "mlp.experts.1.gate_proj.weight_scale",
                                                  "mlp.experts.down_proj_bias",
                                                  "block_sparse_moe.gate.bias"};
const std::vector<std::string> directory_outer = {
    "model.norm.bias", "lm_head.bias", "model.embed_tokens.bias", "model.embed_positions.weight"};
const std::vector<std::string> gguf_layer = {
    "attn_q.bias",          "attn_k.bias",          "attn_v.bias",
    "attn_output.bias",     "attn_q_norm.weight",   "attn_k_norm.weight",
    "attn_sinks.weight",    "attn_qkv.weight",      "attn_kv_b.weight",
    "attn_norm.bias",       "attn_gate.weight",     "attn_output.scale",
    "ffn_norm.bias",        "post_ffw_norm.weight", "post_attention_norm.weight",
    "layer_output_scale",   "ffn_gate_inp.bias",    "ffn_gate_inp.scale",
    "exp_probs_b.bias",     "ffn_down_exps.scale",  "ffn_down_exps.bias",
    "ffn_up_exps.scale",    "ffn_up_shexp.weight",  "ffn_gate_inp_shexp.weight",
    "indexer.attn_k.weight"};
const std::vector<std::string> gguf_outer = {"output_norm.bias", "output.bias",
                                             "token_embd_norm.weight", "position_embd.weight",
                                             "rope_factors_short.weight"};
// Tensors of parts that compute no text. The model stays the same with them.
const std::vector<std::string> harmless[] = {
    {"mtp.fc.weight", "model.visual.merger.norm.bias", "x.scale",
     "model.layers.0.self_attn.rotary_emb.inv_freq", "model.layers.0.self_attn.k_scale"},
    {"v.blk.0.attn_q.weight", "mm.0.bias", "blk.0.attn_rot_embd.weight"}};

// Keys whose default in the published code gives another model.
const std::map<std::string, rule> directory_defaults = {
    {"attention_multiplier", [](model_config &config) { config.attention.scale = 1; }},
    {"embedding_multiplier", [](model_config &config) { config.embedding_multiplier = 1; }},
    {"residual_multiplier", [](model_config &config) { config.residual_multiplier = 1; }},
    {"logits_scaling", [](model_config &config) { config.logits_divisor = 1; }},
    {"norm_topk_prob",
     [](model_config &config) {
         config.router.normalise =
             config.architecture == "deepseek_v3" || config.architecture == "glm4_moe";
     }},
    {"truncate", [](model_config &config) { config.rope.truncate = true; }},
    {"beta_fast", [](model_config &config) { config.rope.beta_fast = 32; }},
    {"beta_slow", [](model_config &config) { config.rope.beta_slow = 1; }},
    {"mscale", [](model_config &config) { config.rope.mscale = 0; }},
    {"mscale_all_dim",
     [](model_config &config) {
         config.rope.mscale_all = 0;
         config.attention.scale = plain_scale(config);
     }},
    {"original_max_position_embeddings",
     [](model_config &config) { config.rope.original_positions = config.positions_max; }},
    {"factor", [](model_config &config) {  // the ratio of the lengths
         config.rope.factor =
             static_cast<double>(config.positions_max) / config.rope.original_positions;
         if (is_latent(config) && config.rope.factor <= 1)
             config.attention.scale = plain_scale(config);
     }}};

// The same for llama.cpp and GGUF's keys.
const rule no_scaling = [](model_config &config) {
    config.rope.factor = 1;
    if (is_latent(config)) config.attention.scale = plain_scale(config);
};
const std::map<std::string, rule> gguf_defaults = {
    {"rope.freq_base", [](model_config &config) { config.rope.theta = 10000; }},
    {"rope.dimension_count",
     [](model_config &config) { config.rope.dimensions = config.attention.head_dim; }},
    {"expert_weights_norm", [](model_config &config) { config.router.normalise = false; }},
    {"expert_weights_scale", [](model_config &config) { config.router.scale = 1; }},
    {"expert_group_count",
     [](model_config &config) {
         config.router.groups = config.router.groups_chosen = 1;
         config.router.group = group_rule::none;
     }},
    {"embedding_scale", [](model_config &config) { config.embedding_multiplier = 1; }},
    {"residual_scale", [](model_config &config) { config.residual_multiplier = 1; }},
    {"attention.scale", [](model_config &config) { config.attention.scale = plain_scale(config); }},
    {"rope.scaling.type",
     [](model_config &config) {
         config.rope.kind = rope_kind::linear;
         if (is_latent(config)) config.attention.scale = plain_scale(config);
     }},
    {"rope.scaling.factor", no_scaling},
    {"rope.scaling.original_context_length",
     [](model_config &config) { config.rope.original_positions = config.positions_max; }},
    {"rope.scaling.yarn_log_multiplier",
     [](model_config &config) {
         if (is_latent(config)) config.attention.scale = plain_scale(config);
     }},
    {"rope.scaling.attn_factor", [](model_config &config) { config.rope.attention_factor = 0; }},
    {"rope.scaling.yarn_beta_fast", [](model_config &config) { config.rope.beta_fast = 32; }},
    {"rope.scaling.yarn_beta_slow", [](model_config &config) { config.rope.beta_slow = 1; }}};

// Runs a test's change on every golden model in one form. Returns the number of files.
template <class Change>
uint32_t over_goldens(bool is_gguf, Change &&change) {
    set_log_level(log_level::error);
    uint32_t files = 0;
    for (const std::string &name : golden_names()) {
        const nearly_golden golden(name, is_gguf);
        const auto check = [&](const std::string &change_name, const nearly_golden::outcome &is,
                               const std::vector<float> &expected, const std::string &named) {
            ++files;
            const std::string silent = what_is_silent(is, expected, named);
            CHECK_MESSAGE(silent.empty(),
                          name << (is_gguf ? ".gguf " : " ") << change_name << ": " << silent);
        };
        change(golden, check);
    }
    return files;
}

uint32_t with_further_tensors(bool is_gguf) {
    return over_goldens(is_gguf, [&](const nearly_golden &golden, const auto &check) {
        const uint32_t last = golden.original().config().layers - 1;
        const std::string front = is_gguf ? "blk." : "model.layers.";
        std::vector<std::string> names = is_gguf ? gguf_outer : directory_outer;
        for (const std::string &name : is_gguf ? gguf_layer : directory_layer)
            names.push_back(front + std::to_string(names.size() % 2 == 0 ? 0 : last) + "." + name);
        for (const std::string &name : names) {
            if (golden.has_tensor(name)) continue;
            const nearly_golden::outcome is = golden.with_tensor(name, 0.5F);
            check("with " + name, is, {}, name);
        }
        for (const std::string &name : harmless[is_gguf])
            check("with " + name, golden.with_tensor(name, 0.5F), golden.logits(), "");
        // A bias that adds nothing.
        const std::string zeros = front + "0." + (is_gguf ? "ffn_x.bias" : "mlp.x.bias");
        check("with zeros as " + zeros, golden.with_tensor(zeros, 0), golden.logits(), "");
    });
}

}  // namespace

TEST_CASE("a tensor of what is computed that no part reads is refused by name") {
    const uint32_t directories = with_further_tensors(false), files = with_further_tensors(true);
    MESSAGE(directories << " directories and " << files << " GGUF files");
    CHECK(directories > 250);
    CHECK(files > 200);
}

TEST_CASE("a key that a config.json lacks has the published default, or is asked for by name") {
    const uint32_t files = over_goldens(false, [](const nearly_golden &golden, const auto &check) {
        const auto check_without = [&](const std::string &key, const json &config) {
            const auto published = directory_defaults.find(key);
            check("without " + key, golden.with_config(config),
                  published == directory_defaults.end() ? golden.logits()
                                                        : golden.logits_by(published->second),
                  key);
        };
        for (const auto &[key, value] : golden.config().items()) {
            json config = golden.config();
            config.erase(key);
            if (!value.is_object()) {
                check_without(key, config);
                continue;
            }
            check("without " + key, golden.with_config(config), golden.logits(), "rope_theta");
            for (const auto &[inner, unused] : value.items()) {
                config = golden.config();
                config[key].erase(inner);
                check_without(inner, config);
            }
        }
    });
    MESSAGE(files << " files");
    CHECK(files > 250);
}

TEST_CASE("a key that a GGUF file lacks has llama.cpp's default, or is asked for by name") {
    const uint32_t files = over_goldens(true, [](const nearly_golden &golden, const auto &check) {
        for (const std::string &key : golden.keys()) {
            if (!key.starts_with(golden.prefix())) continue;
            const std::string inner = key.substr(golden.prefix().size());
            const auto published = gguf_defaults.find(inner);
            check("without " + key, golden.without_key(key),
                  published == gguf_defaults.end() ? golden.logits()
                                                   : golden.logits_by(published->second),
                  last_part(key));
        }
    });
    MESSAGE(files << " files");
    CHECK(files > 150);
}

TEST_CASE("a key of GGUF that asks for other arithmetic is refused by name") {
    const std::pair<const char *, float> numbers[] = {
        {"attn_logit_softcapping", 50.F},      {"final_logit_softcapping", 30.F},
        {"router_logit_softcapping", 30.F},    {"attention.max_alibi_bias", 8.F},
        {"attention.output_scale", 0.5F},      {"attention.value_scale", 0.5F},
        {"attention.temperature_scale", 0.1F}, {"rope.freq_base_swa", 500.F},
        {"rope.scaling.alpha", 1000.F},        {"expert_group_scale", 0.05F}};
    const std::pair<const char *, uint32_t> counts[] = {{"attention.temperature_length", 8192},
                                                        {"attention.indexer.top_k", 64},
                                                        {"attention.shared_kv_layers", 2},
                                                        {"attention.relative_buckets_count", 32},
                                                        {"full_attention_interval", 4},
                                                        {"interleave_moe_layer_step", 2},
                                                        {"experts_per_group", 2},
                                                        {"moe_latent_size", 16},
                                                        {"embedding_length_out", 7},
                                                        {"embedding_length_per_layer_input", 8},
                                                        {"ssm.state_size", 16}};
    const std::pair<const char *, bool> flags[] = {
        {"attention.causal", false}, {"use_parallel_residual", true}, {"swin_norm", true}};
    const uint32_t files = over_goldens(true, [&](const nearly_golden &golden, const auto &check) {
        const auto refused = [&](const std::string &key, const gguf_maker &further) {
            const nearly_golden::outcome is = golden.with_keys_of(further);
            check("with " + key, is, {}, key);
            CHECK_MESSAGE(is.error.find(key) != std::string::npos, key << " has no effect");
        };
        const std::string prefix = golden.prefix();
        for (const auto &[key, value] : numbers)
            refused(key, gguf_maker().real(prefix + key, value));
        for (const auto &[key, value] : counts)
            refused(key, gguf_maker().number(prefix + key, value));
        for (const auto &[key, value] : flags) refused(key, gguf_maker().flag(prefix + key, value));
        const std::string &architecture = golden.original().config().architecture;
        if (architecture == "mixtral")
            refused("expert_weights_norm",
                    gguf_maker().flag(prefix + "expert_weights_norm", false));
        if (architecture == "phimoe")
            refused("expert_weights_norm", gguf_maker().flag(prefix + "expert_weights_norm", true));
        if (architecture != "granitemoe")
            for (const char *key : {"embedding_scale", "residual_scale", "logit_scale"})
                refused(key, gguf_maker().real(prefix + key, 2));
    });
    MESSAGE(files << " files");
    CHECK(files > 250);
}

TEST_CASE("a key of config.json that asks for other arithmetic is refused by name") {
    const json other_keys = {{"final_logit_softcapping", 30.0},
                             {"attn_logit_softcapping", 50.0},
                             {"router_logit_softcapping", 30.0},
                             {"attention_chunk_size", 8192},
                             {"query_pre_attn_scalar", 256},
                             {"rope_local_base_freq", 10000.0},
                             {"no_rope_layers", {1}},
                             {"use_parallel_residual", true},
                             {"use_post_norm", true},
                             {"mlp_bias", true},
                             {"index_topk", 2048},
                             {"scale_emb", 12.0},
                             {"logit_scale", 0.0625},
                             {"position_embedding_type", "nope"}};
    const uint32_t files = over_goldens(false, [&](const nearly_golden &golden, const auto &check) {
        const model_config &golden_config = golden.original().config();
        json further = other_keys;
        if (golden_config.architecture == "mixtral") further["norm_topk_prob"] = false;
        if (golden_config.architecture == "phimoe") further["norm_topk_prob"] = true;
        if (golden_config.architecture != "granitemoe")
            further.update({{"embedding_multiplier", 2.0},
                            {"residual_multiplier", 0.5},
                            {"attention_multiplier", 0.3},
                            {"logits_scaling", 2.0}});
        if (golden_config.architecture == "olmoe" || golden_config.architecture == "granitemoe")
            further.update({{"sliding_window", 8}, {"n_group", 2}, {"routed_scaling_factor", 2.5}});
        if (golden_config.architecture != "gpt_oss") further["swiglu_limit"] = 7.0;
        for (const auto &entry : further.items()) {
            const std::string &key = entry.key();
            json config = golden.config();
            config[key] = entry.value();
            const nearly_golden::outcome is = golden.with_config(config);
            check("with " + key, is, {}, key);
            CHECK_MESSAGE(is.error.find(key) != std::string::npos, key << " has no effect");
        }
    });
    MESSAGE(files << " files");
    CHECK(files > 150);
}

TEST_CASE("layers that are said to predict further tokens, and are ordinary, are not dropped") {
    const uint32_t files = over_goldens(true, [](const nearly_golden &golden, const auto &check) {
        if (golden.original().config().mtp_layers != 0) return;
        gguf_maker further;
        further.number(golden.prefix() + "nextn_predict_layers", 1);
        const nearly_golden::outcome is = golden.with_keys_of(further);
        check("with nextn_predict_layers", is, {}, "nextn_predict_layers");
        CHECK_MESSAGE(is.error.find("so it is an ordinary one") != std::string::npos, is.error);
    });
    CHECK(files > 8);
}

TEST_CASE("a last dimension of 1 changes no tensor of a GGUF file") {
    const uint32_t files = over_goldens(true, [](const nearly_golden &golden, const auto &check) {
        for (const char *name :
             {"token_embd.weight", "output_norm.weight", "blk.0.attn_output.weight",
              "blk.0.ffn_gate_inp.weight", "blk.0.ffn_down_exps.weight"})
            if (golden.has_tensor(name))
                check(std::string("with a last 1 of ") + name, golden.with_last_one(name),
                      golden.logits(), "");
    });
    CHECK(files > 30);
}

TEST_CASE("biases of scores without a gating function are no softmax") {
    const nearly_golden golden("deepseek_v3", true);
    const nearly_golden::outcome is = golden.without_key("deepseek2.expert_gating_func");
    CHECK(is.error.find("deepseek2.expert_gating_func is missing beside tensor blk.") !=
          std::string::npos);
}

}  // namespace unread_test
