// Goal: the prediction of SMoE's Section IV-C is right, and leaves no trace. Method: every
// architecture's small model, with prompts in chunks, batches and sliding windows. The predicted
// router logits are compared, bit for bit, with those of a second model that goes on to the next
// layer with the resident experts alone. Results with and without predictions are equal, bit for
// bit. If every expert is resident, a prediction must be right.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <functional>

#include "core/base/random.h"
#include "core/execute/cpu/cpu_model.h"
#include "core/execute/cpu/forward.h"
#include "core/pipeline/run.h"

namespace prediction_test {

using namespace moorage::core;

namespace {

using values = std::vector<float>;
using presence_rule = std::function<bool(uint32_t layer, uint32_t expert)>;

const char *const architectures[] = {"mixtral",          "qwen2_moe",   "qwen3_moe", "olmoe",
                                     "deepseek_v2_lite", "deepseek_v3", "phimoe",    "granitemoe",
                                     "gpt_oss",          "glm4_moe"};

values copy_of(std::span<const float> source) { return {source.begin(), source.end()}; }

bool same_bits(const values &a, const values &b) {
    return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

// One model being computed, layer by layer, by its own routing.
struct computation {
    const model &tested_model;
    thread_pool pool{2};
    routing_rule rule;
    std::vector<uint32_t> moe_layers, chosen;
    values weights;
    std::unique_ptr<cpu_model> compute;

    explicit computation(const model &source_model)
        : tested_model(source_model),
          rule(source_model.config()),
          moe_layers(source_model.config().moe_layers()) {
        auto created = cpu_model::create(source_model, pool,
                                         {.tokens_max = 16,
                                          .streams = 3,
                                          .context_max = 32,
                                          .outputs_max = 16,
                                          .predict = true});
        REQUIRE(created.ok());
        compute = std::move(*created);
    }
    // Up to the layer's choice.
    void route(uint32_t layer, size_t tokens) {
        const uint32_t k = tested_model.config().top_k, experts = tested_model.config().experts;
        compute->run_attention(layer);
        const std::span<const float> correction =
            tested_model.weights().layers[moe_layers[layer]].correction_bias;
        chosen.resize(tokens * k);
        weights.resize(tokens * k);
        for (size_t token = 0; token < tokens; ++token)
            rule.choose(compute->router_logits().subspan(token * experts, experts), correction,
                        {&chosen[token * k], k}, {&weights[token * k], k});
        compute->route(chosen, weights);
    }
    std::vector<uint32_t> distinct(uint32_t layer, const presence_rule &which) const {
        std::vector<uint32_t> experts = chosen;
        std::ranges::sort(experts);
        experts.erase(std::unique(experts.begin(), experts.end()), experts.end());
        std::erase_if(experts, [&](uint32_t expert) { return !which(layer, expert); });
        return experts;
    }
};

// A prompt in chunks, then a batch whose streams stand at different positions.
std::vector<pass> draw_passes(uint32_t vocabulary, random_stream &random) {
    std::vector<pass> passes;
    uint32_t positions[3] = {0, 0, 0};
    const auto add = [&](pass &target, uint32_t stream) {
        pass_token token;
        token.stream = stream;
        token.position = positions[stream]++;
        token.token_id = static_cast<int32_t>(random.below(vocabulary));
        token.output = true;
        target.tokens.push_back(token);
    };
    for (const auto &[stream, count] : {std::pair{0u, 9u}, {0u, 4u}, {1u, 2u}, {2u, 1u}}) {
        pass &prompt = passes.emplace_back();
        for (uint32_t i = 0; i < count; ++i) add(prompt, stream);
    }
    for (uint32_t round = 0; round < 3; ++round) {
        pass &batch = passes.emplace_back();
        for (uint32_t stream = 0; stream < 3; ++stream) add(batch, stream);
    }
    return passes;
}

struct outcome {
    std::vector<values> router, logits;  // [passes * layers], [passes]
    std::vector<values> predicted;       // [passes * layers] for the layer after; empty: none
};

// Experts that are there come first, then the prediction where it is asked for, then the others.
outcome run_all(const model &tested_model, const std::vector<pass> &passes,
                const presence_rule &is_present, bool predict) {
    computation engine(tested_model);
    outcome result;
    const auto layers = static_cast<uint32_t>(engine.moe_layers.size());
    for (const pass &now : passes) {
        engine.compute->begin(now);
        for (uint32_t layer = 0; layer < layers; ++layer) {
            engine.route(layer, now.tokens.size());
            result.router.push_back(copy_of(engine.compute->router_logits()));
            const auto resident = engine.distinct(layer, is_present);
            const auto absent = engine.distinct(layer, [&](uint32_t asked_layer, uint32_t expert) {
                return !is_present(asked_layer, expert);
            });
            engine.compute->run_experts(layer, resident);
            result.predicted.emplace_back();
            if (predict && layer + 1 < layers) {
                engine.compute->predict(layer, resident);
                result.predicted.back() = copy_of(engine.compute->next_router_logits());
            }
            engine.compute->run_experts(layer, absent);
        }
        engine.compute->run_head();
        result.logits.push_back(copy_of(engine.compute->logits()));
    }
    return result;
}

// The long way: everything up to the pass and the layer, then the layer without its absent experts.
values logits_without_absent(const model &tested_model, const std::vector<pass> &passes,
                             size_t last, uint32_t layer, const presence_rule &is_present) {
    computation engine(tested_model);
    forward compute_pass(*engine.compute, tested_model);
    for (size_t i = 0; i < last; ++i) compute_pass(passes[i]);
    engine.compute->begin(passes[last]);
    for (uint32_t current_layer = 0; current_layer <= layer; ++current_layer) {
        engine.route(current_layer, passes[last].tokens.size());
        const auto every = [](uint32_t, uint32_t) { return true; };
        engine.compute->run_experts(
            current_layer,
            engine.distinct(current_layer,
                            current_layer < layer ? presence_rule(every) : is_present));
    }
    engine.compute->run_attention(layer + 1);
    return copy_of(engine.compute->router_logits());
}

void check_model(const model &tested_model, uint64_t seed) {
    random_stream random(seed, 5);
    const auto passes = draw_passes(tested_model.config().vocabulary, random);
    const auto layers = static_cast<uint32_t>(tested_model.config().moe_layers().size());
    std::vector<uint8_t> state(size_t{layers} * tested_model.config().experts);
    for (uint8_t &present : state) present = random.below(2) == 1;
    const presence_rule random_experts = [&](uint32_t layer, uint32_t expert) {
        return state[layer * tested_model.config().experts + expert] != 0;
    };
    const presence_rule none = [](uint32_t, uint32_t) { return false; };
    const presence_rule every = [](uint32_t, uint32_t) { return true; };

    const outcome plain = run_all(tested_model, passes, every, false);
    uint64_t right = 0;
    for (const presence_rule *const is_present : {&random_experts, &none, &every}) {
        const outcome result = run_all(tested_model, passes, *is_present, true);
        for (size_t i = 0; i < plain.router.size(); ++i)
            CHECK(same_bits(result.router[i], plain.router[i]));
        for (size_t i = 0; i < plain.logits.size(); ++i)
            CHECK(same_bits(result.logits[i], plain.logits[i]));
        for (size_t pass_index = 0; pass_index < passes.size(); ++pass_index)
            for (uint32_t layer = 0; layer + 1 < layers; ++layer) {
                const values &predicted = result.predicted[pass_index * layers + layer];
                CAPTURE(pass_index);
                CAPTURE(layer);
                CHECK(same_bits(predicted, logits_without_absent(tested_model, passes, pass_index,
                                                                 layer, *is_present)));
                right += same_bits(predicted, plain.router[pass_index * layers + layer + 1]);
            }
    }
    // Exact where every expert was there, and hardly ever else.
    CHECK(right >= passes.size() * (layers - 1));
    CHECK(right < 2 * passes.size() * (layers - 1));
}

}  // namespace

TEST_CASE("a prediction is the layer without its absent experts, and changes no result") {
    uint64_t seed = 0;
    for (const char *name : architectures) {
        CAPTURE(name);
        const auto opened =
            open_model(std::filesystem::path(MOORAGE_SOURCE_DIR) / "tests/golden" / name);
        REQUIRE(opened.ok());
        check_model(**opened, ++seed);
    }
}

TEST_CASE("dense layers between those with experts are gone through") {
    const auto opened =
        open_model(std::filesystem::path(MOORAGE_SOURCE_DIR) / "tests/golden/qwen2_moe");
    REQUIRE(opened.ok());
    model_config config = (*opened)->config();
    REQUIRE(config.layers == 3);
    config.moe = {1, 0, 1};
    config.dense_intermediate = 96;
    const auto generated = random_model(config, {.seed = 3});
    REQUIRE(generated.ok());
    check_model(**generated, 20);
}

TEST_CASE("with every expert resident a run predicts every choice but the first layer's") {
    run_resources shared;
    REQUIRE(shared.scan(std::vector{std::filesystem::path(MOORAGE_BINARY_DIR) / "plugins"}).ok());
    run_config config;
    config.file = "test.toml";
    config.executor = "cpu";
    config.profile = "host";
    config.model = std::filesystem::path(MOORAGE_SOURCE_DIR) / "configs/demo";
    config.prompts = {"The president said that"};
    config.max_tokens = 20;
    config.prefill = 0;
    config.experts = 8 * 24;
    config.buffer_experts = 4;
    config.threads = 2;
    config.prefetch.plugin = "smoe";
    for (const bool resident : {true, false}) {
        CAPTURE(resident);
        config.prefetch.params = {{"from_resident", resident, "test"}};
        const auto report = run(config, shared, {});
        REQUIRE(report.ok());
        uint64_t predicted = 0, right = 0;
        for (size_t layer = 1; layer < report->layers.size(); ++layer) {
            predicted += report->layers[layer].predicted;
            right += report->layers[layer].predicted_right;
        }
        REQUIRE(predicted > 400);
        if (resident)
            CHECK(right == predicted);
        else
            CHECK(right < predicted);
    }
}

}  // namespace prediction_test
