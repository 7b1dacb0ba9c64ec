// golden_test.cpp - goal: every architecture gives the results of its reference implementation, and
// nothing else matters: not the batch, the cuts of a prompt, the order, segments and place of
// experts, nor threads. Method: stored reference results. Run the same request in other ways.
// Compare bit by bit if the sums are the same, and closely if kernels sum otherwise.
#include <algorithm>
#include <functional>
#include <random>

#include "core/execute/cpu/golden_check.h"
#include "core/model/routing.h"
#include "core/model/segment.h"
#include "tests/golden/golden_fixture.h"

namespace golden_test {

using namespace moorage::test;

namespace {

// Sums in float32, in any order, stay far below this. The promised limit is golden_error_max.
constexpr double error_max = 2e-5;
constexpr double invariance_max = 1e-4;

// A model with the weights and rules of another, for a test to change.
struct changed_model final : model {
    explicit changed_model(const model &source) {
        directory_ = source.directory();
        config_ = source.config();
        weights_ = source.weights();
    }
    model_config &config_to_change() { return config_; }
    model_weights &weights_to_change() { return weights_; }
};

compute_limits limits_of(uint32_t tokens, uint32_t streams = 1) {
    compute_limits limits;
    limits.tokens_max = limits.outputs_max = tokens;
    limits.streams = streams;
    limits.context_max = 64;
    return limits;
}

std::vector<float> logits_of_prompt(const model &model, const std::vector<int32_t> &ids,
                                    uint32_t threads = 2) {
    thread_pool pool(threads);
    const auto compute = compute_of(model, pool, limits_of(static_cast<uint32_t>(ids.size())));
    forward run(*compute, model);
    run(prompt_pass(ids, 0, 0, true));
    return copied(compute->logits());
}

// The logits of a prompt in passes of `chunk` tokens.
std::vector<float> logits_of_chunks(const model &model, const std::vector<int32_t> &ids,
                                    uint32_t chunk) {
    thread_pool pool(2);
    const auto compute = compute_of(model, pool, limits_of(chunk));
    forward run(*compute, model);
    std::vector<float> logits;
    for (size_t begin = 0; begin < ids.size(); begin += chunk) {
        const size_t count = std::min<size_t>(chunk, ids.size() - begin);
        run(prompt_pass(std::span(ids).subspan(begin, count), 0, static_cast<uint32_t>(begin),
                        true));
        logits.insert(logits.end(), compute->logits().begin(), compute->logits().end());
    }
    return logits;
}

// Computes one layer's experts in some way; `chosen` [B, k].
using compute_experts =
    std::function<void(cpu_model &, uint32_t layer, const std::vector<uint32_t> &distinct)>;

// The layer loop written out, as in a host with its own policies.
std::vector<float> logits_by(const model &model, const std::vector<int32_t> &ids,
                             const compute_experts &way,
                             const std::function<void(uint32_t layer, std::vector<uint32_t> &chosen,
                                                      std::vector<float> &weights)> &change = {}) {
    thread_pool pool(2);
    const auto compute = compute_of(model, pool, limits_of(static_cast<uint32_t>(ids.size())));
    const routing_rule rule(model.config());
    const size_t experts = model.config().experts, top_k = model.config().top_k;
    const std::vector<uint32_t> layers = model.config().moe_layers();
    compute->begin(prompt_pass(ids, 0, 0, true));
    for (uint32_t layer = 0; layer < layers.size(); ++layer) {
        compute->run_attention(layer);
        std::vector<uint32_t> chosen(ids.size() * top_k);
        std::vector<float> weights(chosen.size());
        for (size_t t = 0; t < ids.size(); ++t)
            rule.choose(compute->router_logits().subspan(t * experts, experts),
                        model.weights().layers[layers[layer]].correction_bias,
                        {&chosen[t * top_k], top_k}, {&weights[t * top_k], top_k});
        if (change) change(layer, chosen, weights);
        compute->route(chosen, weights);
        std::vector<uint32_t> distinct = chosen;
        std::sort(distinct.begin(), distinct.end());
        distinct.erase(std::unique(distinct.begin(), distinct.end()), distinct.end());
        way(*compute, layer, distinct);
    }
    compute->run_head();
    return copied(compute->logits());
}

}  // namespace

TEST_CASE("the golden models compute what their reference does") {
    thread_pool pool(2);
    for (const std::string &name : golden_names()) {
        CAPTURE(name);
        const auto opened = open_or_fail(golden_path(name));
        const golden_data golden = golden_of(*opened);
        REQUIRE(golden.greedy.size() == 16);
        const auto report = check_golden(*opened, golden, pool);
        REQUIRE(report.ok());
        MESSAGE(name << ": logits " << report.value().logits_error << ", hidden states "
                     << *std::ranges::max_element(report.value().hidden_error));
        CHECK(report.value().logits_error <= error_max);
        CHECK(report.value().greedy == golden.greedy);
        CHECK(report.value().pass());
        REQUIRE(report.value().hidden_error.size() == opened->config().layers + 1);
        for (const double error : report.value().hidden_error) CHECK(error <= error_max);
    }
}

TEST_CASE("how a prompt is cut into passes does not show") {
    for (const std::string &name : golden_names()) {
        CAPTURE(name);
        const auto opened = open_or_fail(golden_path(name));
        const golden_data golden = golden_of(*opened);
        for (const uint32_t chunk : {1u, 5u, 24u}) {
            CAPTURE(chunk);
            const auto logits = logits_of_chunks(*opened, golden.input_ids, chunk);
            CHECK(relative_error(logits, golden.logits) <= invariance_max);
        }
    }
}

TEST_CASE("other requests in the batch do not show") {
    for (const std::string &name : golden_names()) {
        CAPTURE(name);
        const auto opened = open_or_fail(golden_path(name));
        const golden_data golden = golden_of(*opened);
        const std::vector<int32_t> &ids = golden.input_ids;
        const uint32_t vocabulary = opened->config().vocabulary;
        thread_pool pool(2);
        const auto compute = compute_of(*opened, pool, limits_of(32, 4));
        forward run(*compute, *opened);
        // Stream 2 has the request, 17 tokens at once and the rest one by one. Streams 0 and 3 have
        // others of other lengths, mixed between its tokens, and go on meanwhile.
        std::mt19937 random(7);
        uint32_t positions[4] = {};
        size_t checked = 0;
        for (const uint32_t steps : {17u, 1u, 1u, 3u, 1u, 1u}) {
            pass mixed;
            const auto add = [&](uint32_t stream, int32_t id, bool output) {
                pass_token token;
                token.stream = stream;
                token.position = positions[stream]++;
                token.token_id = id;
                token.output = output;
                mixed.tokens.push_back(token);
            };
            for (uint32_t i = 0; i < steps; ++i) {
                if (i % 3 == 0) add(0, static_cast<int32_t>(random() % vocabulary), false);
                add(2, ids[positions[2]], true);
                if (i % 5 == 1) add(3, static_cast<int32_t>(random() % vocabulary), false);
            }
            run(mixed);
            const size_t values = size_t{steps} * vocabulary;
            REQUIRE(compute->logits().size() == values);
            CHECK(relative_error(compute->logits(),
                                 std::span(golden.logits).subspan(checked, values)) <=
                  invariance_max);
            checked += values;
        }
        CHECK(positions[2] == ids.size());
    }
}

TEST_CASE("order, segments and place of experts give the same bits") {
    for (const std::string &name : golden_names()) {
        CAPTURE(name);
        const auto opened = open_or_fail(golden_path(name));
        const model &model = *opened;
        const std::vector<int32_t> ids = golden_of(model).input_ids;
        const std::vector<float> expected = logits_of_prompt(model, ids);
        const uint32_t rows = model.config().moe_intermediate,
                       top = top_rows(rows, 0.5, model.config().part_unit);
        const std::vector<uint32_t> layers = model.config().moe_layers();
        std::mt19937 random(11);

        CHECK(expected ==
              logits_by(model, ids, [&](cpu_model &compute, uint32_t layer, auto distinct) {
                  std::shuffle(distinct.begin(), distinct.end(), random);
                  for (const uint32_t expert : distinct)
                      compute.expert(layer, expert, 0, rows, nullptr);
              }));
        // Tops first, bottoms in the opposite order.
        CHECK(expected ==
              logits_by(model, ids, [&](cpu_model &compute, uint32_t layer, auto distinct) {
                  for (const uint32_t expert : distinct)
                      compute.expert(layer, expert, 0, top, nullptr);
                  std::reverse(distinct.begin(), distinct.end());
                  for (const uint32_t expert : distinct)
                      if (top != rows) compute.expert(layer, expert, top, rows - top, nullptr);
              }));
        // Copies in slots, several calls in one loop.
        CHECK(expected ==
              logits_by(model, ids, [&](cpu_model &compute, uint32_t layer, auto distinct) {
                  for (const auto &[first, count] :
                       {std::pair{uint32_t{0}, top}, std::pair{top, rows - top}}) {
                      if (count == 0) continue;
                      std::vector<std::vector<std::byte>> slots;
                      std::vector<mlp_weights> views;
                      for (const uint32_t expert : distinct) {
                          const mlp_weights &whole =
                              model.weights().layers[layers[layer]].experts[expert];
                          const segment_image image(whole, first, count);
                          slots.emplace_back(image.bytes());
                          image.copy(0, image.bytes(), slots.back().data());
                          views.push_back(image.view(slots.back().data()));
                      }
                      std::vector<expert_call> calls;
                      for (size_t i = 0; i < distinct.size(); ++i)
                          calls.push_back({distinct[i], first, count, &views[i]});
                      compute.run_experts(layer, calls);
                  }
              }));
    }
}

TEST_CASE("the number of threads does not show") {
    for (const std::string &name : golden_names()) {
        CAPTURE(name);
        const auto opened = open_or_fail(golden_path(name));
        const std::vector<int32_t> ids = golden_of(*opened).input_ids;
        const std::vector<float> single_thread = logits_of_prompt(*opened, ids, 1);
        for (const uint32_t threads : {2u, 3u, 5u})
            CHECK(single_thread == logits_of_prompt(*opened, ids, threads));
    }
}

TEST_CASE("an expert that is not computed contributes nothing") {
    for (const std::string name : {"mixtral", "deepseek_v3"}) {
        CAPTURE(name);
        const auto opened = open_or_fail(golden_path(name));
        const std::vector<int32_t> ids = golden_of(*opened).input_ids;
        const auto all_but = [](uint32_t dropped) {
            return [dropped](cpu_model &compute, uint32_t layer, auto distinct) {
                std::erase(distinct, layer == 1 ? dropped : UINT32_MAX);
                compute.run_experts(layer, distinct);
            };
        };
        const auto without_weight = logits_by(*opened, ids, all_but(UINT32_MAX),
                                              [](uint32_t layer, auto &chosen, auto &weights) {
                                                  for (size_t i = 0; i < chosen.size(); ++i)
                                                      if (layer == 1 && chosen[i] == 2)
                                                          weights[i] = 0;
                                              });
        // No key names the id, so it stands for no expert.
        const auto without_name =
            logits_by(*opened, ids, all_but(UINT32_MAX), [](uint32_t layer, auto &chosen, auto &) {
                for (size_t i = 0; i < chosen.size(); ++i)
                    if (layer == 1 && chosen[i] == 2) chosen[i] = UINT32_MAX;
            });
        CHECK(logits_by(*opened, ids, all_but(2)) == without_weight);
        CHECK(without_name == without_weight);
        CHECK(without_weight != logits_of_prompt(*opened, ids));
    }
}

TEST_CASE("predictions are the next layer's router on this layer's input") {
    // With the next layer's router in place of this one's, router and prediction must agree. The
    // last layer predicts the first. gpt_oss has router biases, deepseek_v3 a dense layer.
    for (const std::string name : {"gpt_oss", "deepseek_v3"}) {
        CAPTURE(name);
        const auto opened = open_or_fail(golden_path(name));
        const golden_data golden = golden_of(*opened);
        const std::vector<uint32_t> layers = opened->config().moe_layers();
        for (uint32_t layer = 0; layer < layers.size(); ++layer) {
            CAPTURE(layer);
            changed_model changed(*opened);
            std::vector<layer_weights> &changed_layers = changed.weights_to_change().layers;
            const layer_weights &next =
                opened->weights().layers[layers[(layer + 1) % layers.size()]];
            thread_pool pool(2);
            compute_limits limits = limits_of(24);
            limits.predict = true;
            const auto plain = compute_of(*opened, pool, limits);
            const auto swapped = compute_of(changed, pool, limits);
            changed_layers[layers[layer]].router = next.router;
            changed_layers[layers[layer]].router_bias = next.router_bias;
            for (cpu_model *compute : {plain.get(), swapped.get()}) {
                compute->begin(prompt_pass(golden.input_ids, 0, 0, false));
                // Without experts: only the router of `layer` differs, and nothing before it does.
                for (uint32_t l = 0; l <= layer; ++l) compute->run_attention(l);
            }
            CHECK(copied(plain->next_router_logits()) == copied(swapped->router_logits()));
            CHECK(copied(plain->router_logits()) != copied(swapped->router_logits()));
        }
    }
    thread_pool pool(1);
    const auto opened = open_or_fail(golden_path("mixtral"));
    CHECK(compute_of(*opened, pool, limits_of(1))->next_router_logits().empty());
}

TEST_CASE("clipping of queries, keys and values") {
    const auto opened = open_or_fail(golden_path("olmoe"));
    const std::vector<int32_t> ids = golden_of(*opened).input_ids;
    changed_model changed(*opened);
    const std::vector<float> expected = logits_of_prompt(*opened, ids);
    changed.config_to_change().attention.clip_qkv = 1e6;
    CHECK(logits_of_prompt(changed, ids) == expected);
    changed.config_to_change().attention.clip_qkv = 0.1;
    CHECK(logits_of_prompt(changed, ids) != expected);
    // Values clipped to nothing make attention without output, the same as a zero output matrix.
    changed.config_to_change().attention.clip_qkv = 1e-30;
    const std::vector<float> clipped = logits_of_prompt(changed, ids);
    changed.config_to_change().attention.clip_qkv = 0;
    std::vector<std::byte> zeros(4 * 48 * 48);
    for (layer_weights &layer : changed.weights_to_change().layers)
        layer.attention.output.data = zeros.data();
    CHECK(relative_error(clipped, logits_of_prompt(changed, ids)) <= 1e-6);
}

TEST_CASE("caches that no memory can hold are refused with their sizes") {
    const auto opened = open_or_fail(golden_path("mixtral"));
    thread_pool pool(1);
    compute_limits limits = limits_of(1);
    limits.streams = UINT32_MAX;
    limits.context_max = UINT32_MAX;
    const auto created = cpu_model::create(*opened, pool, limits);
    REQUIRE_FALSE(created.ok());
    const std::string &text = created.failure().text;
    INFO(text);
    for (const char *part : {"4294967295 requests x 4294967295 positions", "available", "lower"})
        CHECK(text.find(part) != std::string::npos);
}

TEST_CASE("golden files that do not fit are refused by name") {
    const auto opened = open_or_fail(golden_path("mixtral"));
    const auto missing = read_golden(golden_path("nowhere"), opened->config());
    REQUIRE_FALSE(missing.ok());
    CHECK(missing.failure().text.find("nowhere/golden.safetensors: no such file") !=
          std::string::npos);
    const auto wrong = [&](const char *part, auto change) {
        model_config config = opened->config();
        change(config);
        const auto read = read_golden(opened->directory(), config);
        REQUIRE_FALSE(read.ok());
        INFO(read.failure().text);
        CHECK(read.failure().text.find(part) != std::string::npos);
    };
    wrong("tensor logits: F32 of shape [24, 160], F32 of shape [24, 161] is needed",
          [](model_config &config) { ++config.vocabulary; });
    wrong("tensor input_ids: id 113 is outside",
          [](model_config &config) { config.vocabulary = 113; });
    wrong("tensor hidden_states", [](model_config &config) { ++config.layers; });
    wrong("tensor hidden_states", [](model_config &config) { config.hidden /= 2; });
}

}  // namespace golden_test
