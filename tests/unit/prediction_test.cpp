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
using experts_there = std::function<bool(uint32_t layer, uint32_t expert)>;

const char *const architectures[] = {"mixtral",          "qwen2_moe",   "qwen3_moe", "olmoe",
                                     "deepseek_v2_lite", "deepseek_v3", "phimoe",    "granitemoe",
                                     "gpt_oss",          "glm4_moe"};

values copy_of(std::span<const float> from) { return {from.begin(), from.end()}; }

bool same_bits(const values &a, const values &b) {
    return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

// One model being computed, layer by layer, by its own routing.
struct computation {
    const model &of;
    thread_pool pool{2};
    routing_rule rule;
    std::vector<uint32_t> moe_layers, chosen;
    values weights;
    std::unique_ptr<cpu_model> compute;

    explicit computation(const model &from)
        : of(from), rule(from.config()), moe_layers(from.config().moe_layers()) {
        auto made = cpu_model::create(from, pool,
                                      {.tokens_max = 16,
                                       .streams = 3,
                                       .context_max = 32,
                                       .outputs_max = 16,
                                       .predict = true});
        REQUIRE(made.ok());
        compute = std::move(*made);
    }
    // Up to the layer's choice.
    void route(uint32_t layer, size_t tokens) {
        const uint32_t k = of.config().top_k, experts = of.config().experts;
        compute->attention(layer);
        const std::span<const float> correction =
            of.weights().layers[moe_layers[layer]].correction_bias;
        chosen.resize(tokens * k);
        weights.resize(tokens * k);
        for (size_t token = 0; token < tokens; ++token)
            rule.choose(compute->router_logits().subspan(token * experts, experts), correction,
                        {&chosen[token * k], k}, {&weights[token * k], k});
        compute->route(chosen, weights);
    }
    std::vector<uint32_t> distinct(uint32_t layer, const experts_there &which) const {
        std::vector<uint32_t> all = chosen;
        std::ranges::sort(all);
        all.erase(std::unique(all.begin(), all.end()), all.end());
        std::erase_if(all, [&](uint32_t expert) { return !which(layer, expert); });
        return all;
    }
};

// A prompt in chunks, then a batch whose streams stand at different positions.
std::vector<pass> passes_of(uint32_t vocabulary, random_stream &random) {
    std::vector<pass> all;
    uint32_t positions[3] = {0, 0, 0};
    const auto add = [&](pass &to, uint32_t stream) {
        pass_token token;
        token.stream = stream;
        token.position = positions[stream]++;
        token.token_id = static_cast<int32_t>(random.below(vocabulary));
        token.output = true;
        to.tokens.push_back(token);
    };
    for (const auto &[stream, count] : {std::pair{0u, 9u}, {0u, 4u}, {1u, 2u}, {2u, 1u}}) {
        pass &prompt = all.emplace_back();
        for (uint32_t i = 0; i < count; ++i) add(prompt, stream);
    }
    for (uint32_t round = 0; round < 3; ++round) {
        pass &batch = all.emplace_back();
        for (uint32_t stream = 0; stream < 3; ++stream) add(batch, stream);
    }
    return all;
}

struct outcome {
    std::vector<values> router, logits;  // [passes * layers], [passes]
    std::vector<values> predicted;       // [passes * layers] for the layer after; empty: none
};

// Experts that are there come first, then the prediction where it is asked for, then the others.
outcome run_all(const model &of, const std::vector<pass> &passes, const experts_there &there,
                bool predict) {
    computation on(of);
    outcome out;
    const auto layers = static_cast<uint32_t>(on.moe_layers.size());
    for (const pass &now : passes) {
        on.compute->begin(now);
        for (uint32_t layer = 0; layer < layers; ++layer) {
            on.route(layer, now.tokens.size());
            out.router.push_back(copy_of(on.compute->router_logits()));
            const auto resident = on.distinct(layer, there);
            const auto absent = on.distinct(
                layer, [&](uint32_t at, uint32_t expert) { return !there(at, expert); });
            on.compute->experts(layer, resident);
            out.predicted.emplace_back();
            if (predict && layer + 1 < layers) {
                on.compute->predict(layer, resident);
                out.predicted.back() = copy_of(on.compute->next_router_logits());
            }
            on.compute->experts(layer, absent);
        }
        on.compute->head();
        out.logits.push_back(copy_of(on.compute->logits()));
    }
    return out;
}

// The long way: everything up to the pass and the layer, then the layer without its absent experts.
values without_absent(const model &of, const std::vector<pass> &passes, size_t last, uint32_t layer,
                      const experts_there &there) {
    computation on(of);
    forward before(*on.compute, of);
    for (size_t i = 0; i < last; ++i) before(passes[i]);
    on.compute->begin(passes[last]);
    for (uint32_t at = 0; at <= layer; ++at) {
        on.route(at, passes[last].tokens.size());
        const auto all = [](uint32_t, uint32_t) { return true; };
        on.compute->experts(at, on.distinct(at, at < layer ? experts_there(all) : there));
    }
    on.compute->attention(layer + 1);
    return copy_of(on.compute->router_logits());
}

void check_model(const model &of, uint64_t seed) {
    random_stream random(seed, 5);
    const auto passes = passes_of(of.config().vocabulary, random);
    const auto layers = static_cast<uint32_t>(of.config().moe_layers().size());
    std::vector<uint8_t> state(size_t{layers} * of.config().experts);
    for (uint8_t &one : state) one = random.below(2) == 1;
    const experts_there some = [&](uint32_t layer, uint32_t expert) {
        return state[layer * of.config().experts + expert] != 0;
    };
    const experts_there none = [](uint32_t, uint32_t) { return false; };
    const experts_there every = [](uint32_t, uint32_t) { return true; };

    const outcome plain = run_all(of, passes, every, false);
    uint64_t right = 0;
    for (const experts_there *const there : {&some, &none, &every}) {
        const outcome made = run_all(of, passes, *there, true);
        for (size_t i = 0; i < plain.router.size(); ++i)
            CHECK(same_bits(made.router[i], plain.router[i]));
        for (size_t i = 0; i < plain.logits.size(); ++i)
            CHECK(same_bits(made.logits[i], plain.logits[i]));
        for (size_t at = 0; at < passes.size(); ++at)
            for (uint32_t layer = 0; layer + 1 < layers; ++layer) {
                const values &predicted = made.predicted[at * layers + layer];
                CAPTURE(at);
                CAPTURE(layer);
                CHECK(same_bits(predicted, without_absent(of, passes, at, layer, *there)));
                right += same_bits(predicted, plain.router[at * layers + layer + 1]);
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
    const auto made = random_model(config, {.seed = 3});
    REQUIRE(made.ok());
    check_model(**made, 20);
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
