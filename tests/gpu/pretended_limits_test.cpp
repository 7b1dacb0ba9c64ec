// pretended_limits_test.cpp - goal: all launches of the executor are within the limits of every
// GPU, or refused with the sizes. Method: random models with the widest allowed heads, over the
// pretended GPU of each kind. Compare with the executor of the CPU with the same choice of experts.
#include "core/execute/gpu/gpu_memory.h"
#include "tests/gpu/pretended_fixture.h"

namespace pretended_limits_test {

using namespace moorage::test;

namespace {

std::unique_ptr<model> make_grouped_model(uint32_t head_dim, uint32_t experts = 8) {
    const auto config = parse_model_config(
        R"({"model_type": "qwen3_moe", "hidden_size": 64, "num_hidden_layers": 2,
            "num_attention_heads": 16, "num_key_value_heads": 1, "head_dim": )" +
            std::to_string(head_dim) + R"(, "num_experts": )" + std::to_string(experts) +
            R"(, "num_experts_per_tok": 2,
            "moe_intermediate_size": 64, "intermediate_size": 64, "vocab_size": 128,
            "hidden_act": "silu", "max_position_embeddings": 4096, "rms_norm_eps": 1e-6,
            "rope_theta": 10000.0, "norm_topk_prob": true, "decoder_sparse_step": 1,
            "mlp_only_layers": [], "tie_word_embeddings": false})",
        "grouped");
    REQUIRE_MESSAGE(config.ok(), (config ? "" : config.failure().text));
    return std::move(random_model(*config, {.seed = 3}).value());
}

std::unique_ptr<model> make_latent_model() {
    const auto config = parse_model_config(
        R"({"model_type": "deepseek_v2", "hidden_size": 64, "num_hidden_layers": 2,
            "num_attention_heads": 16, "num_key_value_heads": 16, "n_routed_experts": 8,
            "n_shared_experts": 1, "num_experts_per_tok": 2, "moe_intermediate_size": 64,
            "intermediate_size": 64, "first_k_dense_replace": 0, "moe_layer_freq": 1,
            "kv_lora_rank": 512, "q_lora_rank": null, "qk_nope_head_dim": 32,
            "qk_rope_head_dim": 64, "v_head_dim": 32, "n_group": 1, "topk_group": 1,
            "topk_method": "greedy", "norm_topk_prob": false, "routed_scaling_factor": 1.0,
            "scoring_func": "softmax", "vocab_size": 128, "rms_norm_eps": 1e-6,
            "rope_theta": 10000, "max_position_embeddings": 4096, "hidden_act": "silu",
            "attention_bias": false, "tie_word_embeddings": false})",
        "latent");
    REQUIRE_MESSAGE(config.ok(), (config ? "" : config.failure().text));
    return std::move(random_model(*config, {.seed = 3}).value());
}

// Logits of twelve tokens at once and two after them; or why there are none.
short_outcome run(const model &tested_model, bool exact, bool on_cpu) {
    executor_drive drive(tested_model, {.slots = 256, .random_routing = true, .seed = 5});
    gpu_executor_options options;
    options.source_model = &tested_model;
    options.places = &drive.places;
    options.limits = {.tokens_max = 12, .context_max = 16, .outputs_max = 12};
    options.transfers_max = drive.transfers_max();
    options.threads = 1;
    options.exact = exact;
    auto machine = make_golden_machine(options, on_cpu);
    if (!machine) return {machine.failure().text, {}};
    drive.use(*machine->device_executor, *machine->results);
    std::vector<int32_t> ids(14);
    for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int32_t>(i * 37 % 128);
    std::vector<float> logits;
    for (uint32_t position = 0; position < 14; position += position == 0 ? 12 : 1) {
        const auto part = std::span(ids).subspan(position, position == 0 ? 12 : 1);
        if (const status done = drive.run(prompt_pass(part, 0, position, true)); !done)
            return {done.failure().text, {}};
        const std::span<const float> pass_logits = machine->results->logits();
        logits.insert(logits.end(), pass_logits.begin(), pass_logits.end());
    }
    return {"", logits};
}

constexpr const char *gpus[] = {"sm_80", "sm_86", "sm_90"};

void check(const model &tested_model, bool exact, const char *gpu) {
    const short_outcome expected = run(tested_model, exact, true);
    pretended::begin({.stream_order = pretended::order::eager, .gpu = gpu});
    const short_outcome is = run(tested_model, exact, false);
    REQUIRE(is.failure == "");
    CHECK(relative_error(is.logits, expected.logits) <= (exact ? golden_error_max : 1e-2));
}

}  // namespace

TEST_CASE("heads as wide as they may be fit on every GPU") {
    for (const char *gpu : gpus) {
        CAPTURE(gpu);
        for (const uint32_t head_dim : {128u, 256u, 512u}) {
            CAPTURE(head_dim);
            const auto tested_model = make_grouped_model(head_dim);
            check(*tested_model, false, gpu);
            if (head_dim < 512) check(*tested_model, true, gpu);
        }
        const auto tested_model = make_latent_model();
        check(*tested_model, false, gpu);
        check(*tested_model, true, gpu);
    }
}

TEST_CASE("more experts of few tokens than a launch has arguments for") {
    const auto tested_model =
        make_grouped_model(64, 96);  // 24 choices of 12 tokens, most of them of one expert each
    check(*tested_model, true, "sm_80");
    check(*tested_model, false, "sm_90");
}

// The error that a run on that GPU gives before it begins.
static std::string refusal(const pretended::settings &gpu, uint32_t tokens_max = 12) {
    pretended::begin(gpu);
    const auto tested_model = make_grouped_model(64);
    executor_drive drive(*tested_model, {.slots = 16});
    gpu_executor_options options;
    options.source_model = tested_model.get();
    options.places = &drive.places;
    options.limits = {.tokens_max = tokens_max, .context_max = 16};
    options.transfers_max = drive.transfers_max();
    const auto machine = make_cuda_executor(options);
    return machine ? "" : machine.failure().text;
}

TEST_CASE("a GPU that the kernels are not for is refused before anything is brought there") {
    CHECK(
        refusal({.gpu = "sm_75"}) ==
        "pretended GPU is sm_75, and the kernels need sm_80 or newer; set executor to cpu, or take "
        "a newer GPU");
    CHECK(pretended::calls("cudaMalloc") == 0);
    CHECK(pretended::calls("cudaMemcpy") == 0);
    CHECK(pretended::calls("cudaHostAlloc") == 0);
    // Machine code of a newer one alone.
    CHECK(
        refusal({.gpu = "sm_80", .compiled_for = 90}) ==
        "pretended GPU is sm_80, and this program's kernels are compiled for other GPUs (80-real "
        "86-real 89-real 90); build it with -DCMAKE_CUDA_ARCHITECTURES=80, or set executor to cpu");
    CHECK(pretended::calls("cudaMalloc") == 0);
    // Intermediate code of an older one, which the driver would compile.
    CHECK(
        refusal({.gpu = "sm_90", .compiled_for = 75}) ==
        "pretended GPU is sm_90, and this program's kernels are compiled for sm_75; build it with "
        "-DCMAKE_CUDA_ARCHITECTURES=90, or set executor to cpu");
    CHECK(pretended::calls("cudaMalloc") == 0);
    CHECK(refusal({.gpu = "sm_80", .fail_call = "cudaFuncGetAttributes", .fail_at = 1})
              .starts_with("cuda: cudaFuncGetAttributes(&about, any_kernel()) at core/execute/cuda/"
                           "cuda_device.cpp:"));
    for (const char *gpu : gpus) CHECK(refusal({.gpu = gpu}) == "");
    CHECK(refusal({.gpu = "sm_90", .compiled_for = 80}) == "");
}

// A grid has up to 65,535 blocks along its second and third side (CUDA C++ Programming Guide,
// "Technical Specifications per Compute Capability").
TEST_CASE("passes of more tokens than a grid has blocks are refused before anything is brought") {
    CHECK(refusal({.gpu = "sm_90"}, 65536) ==
          "executor cuda computes up to 65535 tokens in a pass, this run has passes of 65536; set "
          "run.prefill (for decoding run.batch) to at most 65535");
    CHECK(pretended::calls("cudaMalloc") == 0);
    CHECK(gpu::check_pass({.tokens_max = 65535}, "cuda").ok());
    CHECK_FALSE(gpu::check_pass({.tokens_max = UINT32_MAX}, "cuda").ok());
}

TEST_CASE("what does not fit in a block's shared memory is refused with the sizes") {
    const auto tested_model = make_grouped_model(512);
    // 4 * (512 + 32 + 1) * 4 bytes of queries and weights, 64 * 516 * 4 of keys and values.
    pretended::begin({.gpu = "sm_86"});
    CHECK(
        run(*tested_model, true, false).failure ==
        "a block of pretended GPU has 100 kB of shared memory and attention with heads of this "
        "size, compared with references, needs 141 kB; set executor to cpu, or take a larger GPU");
    CHECK(pretended::alive().none());
    check(*tested_model, true, "sm_80");
    check(*tested_model, true, "sm_90");
}

}  // namespace pretended_limits_test
