// Goal: models of random weights for benchmarks ask for experts as a benchmark needs: the routers
// of all layers spread over the experts. Method: files of each recipe and a random model in memory,
// small, a prompt of 256 different tokens. Distinct experts are counted and compared with
// independent uniform routing, E (1 - (1 - k/E)^T). Weights have mean zero, rows of routers are no
// copies of each other. The rule itself is compared with drawing.
#include <doctest/doctest.h>

#include <cmath>
#include <set>
#include <vector>

#include "core/base/random.h"
#include "core/execute/cpu/forward.h"
#include "core/model/model.h"
#include "core/model/weight_values.h"
#include "tests/expert_spread.h"
#include "tests/random_gguf.h"
#include "tests/unit/model_files.h"

namespace random_spread_test {

using namespace moorage::core;
using moorage::test::expert_spread;
using moorage::test::uniform_spread;

namespace {

constexpr uint32_t tokens = 256;

// After a prompt of different tokens.
expert_spread spread_of(const model &model) {
    const model_config &config = model.config();
    const auto layers = static_cast<uint32_t>(config.moe_layers().size());
    expert_spread spread(layers, config.experts, config.top_k);
    thread_pool pool(1);
    auto compute = cpu_model::create(model, pool, {.tokens_max = tokens, .context_max = tokens});
    REQUIRE_MESSAGE(compute.ok(), (compute ? "" : compute.failure().text));
    forward run(**compute, model);
    run.watch([&](uint32_t layer, std::span<const uint32_t> chosen) { spread.add(layer, chosen); });
    std::vector<int32_t> ids(tokens);
    for (uint32_t i = 0; i < tokens; ++i) ids[i] = static_cast<int32_t>(1 + i * 7919 % 1000);
    run(prompt_pass(ids, 0, 0, false));
    return spread;
}

void check_spread(const model &model) {
    const expert_spread spread = spread_of(model);
    INFO(spread.text());
    const status sound = spread.check();
    CHECK_MESSAGE(sound.ok(), (sound ? "" : sound.failure().text));
}

// The mean in standard deviations of the values.
double mean_of(const matrix &matrix) {
    double sum = 0, squares = 0;
    std::vector<float> row(matrix.columns);
    for (uint32_t row_index = 0; row_index < matrix.rows; ++row_index) {
        read_row(matrix, row_index, row);
        for (const float value : row) sum += value, squares += double{value} * value;
    }
    const double count = static_cast<double>(matrix.rows) * matrix.columns;
    return sum / count / std::sqrt(squares / count);
}

size_t distinct_rows(const matrix &matrix) {
    std::set<std::vector<float>> distinct;
    for (uint32_t row_index = 0; row_index < matrix.rows; ++row_index) {
        std::vector<float> row(matrix.columns);
        read_row(matrix, row_index, row);
        distinct.insert(std::move(row));
    }
    return distinct.size();
}

void check_weights(const model &model) {
    for (const layer_weights &layer : model.weights().layers) {
        CHECK(distinct_rows(layer.router) == layer.router.rows);
        CHECK(std::abs(mean_of(layer.router)) < 0.03);
        for (const mlp_weights &expert : layer.experts)
            for (const matrix *projection : {&expert.gate, &expert.up, &expert.down})
                CHECK(std::abs(mean_of(*projection)) < 0.03);
    }
}

}  // namespace

TEST_CASE("what independent uniform routing reaches is what drawing shows") {
    CHECK(uniform_spread(8, 2, 1) == doctest::Approx(2));
    CHECK(uniform_spread(8, 2, 2) == doctest::Approx(3.5));  // 8 (1 - (3/4)^2)
    CHECK(uniform_spread(60, 4, 1u << 20) == doctest::Approx(60));
    random_stream random(1, /*name=*/1);
    double reached = 0;
    constexpr uint32_t rounds = 4000, experts = 12, top_k = 3, passes = 4;
    for (uint32_t round = 0; round < rounds; ++round) {
        std::set<uint64_t> distinct;
        for (uint32_t pass = 0; pass < passes; ++pass) {
            std::set<uint64_t> chosen;
            while (chosen.size() < top_k) chosen.insert(random.next() % experts);
            distinct.insert(chosen.begin(), chosen.end());
        }
        reached += static_cast<double>(distinct.size()) / rounds;
    }
    CHECK(uniform_spread(experts, top_k, passes) == doctest::Approx(reached).epsilon(0.01));
}

TEST_CASE("fewer experts than four fifths of that are refused, by layer") {
    expert_spread spread(2, 8, 2);
    const std::vector<uint32_t> balanced{0, 1, 2, 3, 4, 5, 6, 7}, few{0, 1, 1, 0, 0, 1, 2, 0};
    spread.add(0, balanced);
    spread.add(1, few);
    CHECK(spread.of_layer(0) == 8);
    CHECK(spread.least() == 3);
    CHECK(spread.text() == "3 to 8 of 8 experts a layer");
    // 8 (1 - (3/4)^4) = 5.47, of which four fifths are 4.4
    REQUIRE_FALSE(spread.check().ok());
    CHECK(spread.check().failure().text ==
          "no figure: 4 tokens reached 3 of 8 experts of layer 1, less than 80 % of the 5.5 of "
          "independent uniform routing; the model's routers do not spread");
    spread.add(1, std::vector<uint32_t>{3, 4});  // 5 of 8 (1 - (3/4)^5) = 6.1
    CHECK(spread.check().ok());
    spread.forget();
    CHECK(spread.check().ok());
    CHECK(spread.least() == 0);
    spread.add(0, std::vector<uint32_t>{9, 9});  // dropped ones are no experts
    CHECK(spread.of_layer(0) == 0);
}

TEST_CASE("files of random weights spread in every recipe") {
    const moorage::test::scratch_directory folder;
    for (const moorage::test::gguf_recipe &recipe : moorage::test::gguf_recipes) {
        CAPTURE(recipe.name);
        const std::string path = folder.path() / (std::string(recipe.name) + ".gguf");
        moorage::test::random_gguf_sizes sizes{.layers = 3, .hidden = 512, .heads = 8};
        sizes.intermediate = 96;
        sizes.shared = 512;
        sizes.vocabulary = 1024;
        REQUIRE(moorage::test::random_gguf(recipe, sizes).write(path));
        const auto opened = open_model(path);
        REQUIRE_MESSAGE(opened.ok(), (opened ? "" : opened.failure().text));
        check_weights(**opened);
        check_spread(**opened);
    }
}

TEST_CASE("a random model in memory spreads") {
    for (const uint32_t hidden : {256u, 512u}) {
        const auto config = parse_model_config(
            format(R"({{"model_type": "qwen2_moe", "hidden_size": {}, "num_hidden_layers": 4,
            "num_attention_heads": 8, "num_key_value_heads": 8, "num_experts": 60,
            "num_experts_per_tok": 4, "moe_intermediate_size": 96, "intermediate_size": 64,
            "shared_expert_intermediate_size": 512, "vocab_size": 1024, "hidden_act": "silu",
            "max_position_embeddings": 4096, "rms_norm_eps": 1e-6, "rope_theta": 10000.0,
            "norm_topk_prob": false, "decoder_sparse_step": 1, "mlp_only_layers": [],
            "tie_word_embeddings": false}})",
                   hidden),
            "random");
        REQUIRE_MESSAGE(config.ok(), (config ? "" : config.failure().text));
        const auto generated = random_model(*config, {.seed = 3});
        REQUIRE(generated.ok());
        check_weights(**generated);
        check_spread(**generated);
    }
}

}  // namespace random_spread_test
