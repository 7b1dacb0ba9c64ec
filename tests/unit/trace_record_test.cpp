// trace_record_test.cpp - goal: a recorded trace is the routing of the run, in the order of
// requests. Method: steps made by hand with every cell of the trace known. The demo model recorded
// with several batches and prefills; the traces must agree except for ties of the routers. A
// recorded trace replayed on the emulator must hit and miss like the run of the model.
#include "core/source/trace_record.h"

#include <doctest/doctest.h>

#include <cmath>

#include "core/pipeline/run.h"
#include "toy_machine.h"

namespace trace_record_test {

using namespace moorage::core;

namespace {

constexpr uint32_t layers = 3, experts = 4, top_k = 2;

// Numbers that say which cell they are of. Rows are unique over the requests.
float score_of(uint64_t row, uint32_t layer, uint32_t expert) {
    return static_cast<float>(row * 100 + layer * 10 + expert);
}
uint32_t expert_of(uint64_t row, uint32_t layer, uint32_t rank) {
    return static_cast<uint32_t>((row + layer + rank * 2) % experts);
}

// A source that only knows scores and predictions.
struct fake_source final : source {
    bool predicts = true;
    uint32_t layers() const override { return trace_record_test::layers; }
    uint32_t experts() const override { return trace_record_test::experts; }
    uint32_t top_k() const override { return trace_record_test::top_k; }
    uint32_t tokens_max() const override { return 8; }
    uint32_t streams() const override { return 2; }
    uint32_t predictions_max() const override { return trace_record_test::experts; }
    uint32_t offers() const override { return 0; }
    bool idle() override { return true; }
    bool scored_predictions() const override { return true; }
    bool next(pass &) override { return false; }
    void route(const pass &, uint32_t, uint32_t *) override {}
    void weights(const pass &, uint32_t, float *) override {}
    void gate_scores(const pass &pass, uint32_t layer, float *scores) override {
        for (const pass_token &token : pass.tokens)
            for (uint32_t expert = 0; expert < trace_record_test::experts; ++expert)
                *scores++ = score_of(token.row, layer, expert);
    }
    void weigh(const pass &, uint32_t, const uint32_t *, float *) override {}
    // For `layer`, made at `row`: experts from row + layer + 1 on.
    uint32_t predict(uint64_t row, uint32_t layer, uint32_t *which, float *scores) override {
        for (uint32_t rank = 0; rank < trace_record_test::experts; ++rank) {
            which[rank] =
                static_cast<uint32_t>((row + layer + 1 + rank) % trace_record_test::experts);
            scores[rank] = static_cast<float>(row * 100 + layer * 10) + 0.5f;
        }
        return predicts ? trace_record_test::experts : 0;
    }
};

pass_token token_of(uint64_t row, uint64_t request, uint32_t position) {
    pass_token token;
    token.row = row;
    token.request = request;
    token.position = position;
    token.token_id = static_cast<int32_t>(1000 + row);
    return token;
}

void record_pass(trace_recorder &recorder, fake_source &source, std::vector<pass_token> tokens) {
    pass now;
    now.tokens = std::move(tokens);
    for (uint32_t layer = 0; layer < layers; ++layer) {
        std::vector<uint32_t> chosen;
        std::vector<float> weights;
        for (const pass_token &token : now.tokens)
            for (uint32_t rank = 0; rank < top_k; ++rank) {
                chosen.push_back(expert_of(token.row, layer, rank));
                weights.push_back(score_of(token.row, layer, rank) + 0.25f);
            }
        moorage_step view{};
        view.layer = layer;
        view.host_chosen = chosen.data();
        view.host_weights = weights.data();
        recorder.step(view, now, source);
    }
}

}  // namespace

TEST_CASE("cells by hand: requests in order, whatever passes their tokens came in") {
    fake_source source;
    trace_recorder recorder(layers, experts, top_k, /*predictions=*/2);
    // Request 1 has rows 2, 4, 6 and request 0 rows 0, 1 (one prefill pass), 3, 5.
    record_pass(recorder, source, {token_of(0, 0, 0), token_of(1, 0, 1)});
    record_pass(recorder, source, {token_of(2, 1, 0), token_of(3, 0, 2)});
    record_pass(recorder, source, {token_of(4, 1, 1)});
    record_pass(recorder, source, {token_of(6, 1, 2), token_of(5, 0, 3)});
    CHECK(recorder.tokens() == 7);
    const trace_data data = recorder.finish();
    CHECK(data.tokens == 7);
    CHECK(data.layers == layers);
    CHECK(data.experts == experts);
    CHECK(data.top_k == top_k);
    CHECK(data.predictions == 2);
    CHECK(data.request_offsets == std::vector<uint64_t>{0, 4, 7});
    const uint64_t rows[] = {0, 1, 3, 5, 2, 4, 6};
    for (uint32_t token = 0; token < 7; ++token) {
        const uint64_t row = rows[token];
        CAPTURE(row);
        CHECK(data.token_ids[token] == static_cast<int32_t>(1000 + row));
        const bool first = token == 0 || token == 4;
        for (uint32_t layer = 0; layer < layers; ++layer) {
            CAPTURE(layer);
            const size_t cell = token * layers + layer;
            for (uint32_t rank = 0; rank < top_k; ++rank) {
                CHECK(data.chosen[cell * top_k + rank] == expert_of(row, layer, rank));
                CHECK(data.weights.values[cell * top_k + rank] ==
                      score_of(row, layer, rank) + 0.25f);
            }
            for (uint32_t expert = 0; expert < experts; ++expert)
                CHECK(data.gate_scores.values[cell * experts + expert] ==
                      score_of(row, layer, expert));
            for (uint32_t rank = 0; rank < 2; ++rank) {
                // Layers but the first: made by the same token. The first: by the one before.
                const uint64_t maker = layer == 0 && !first ? rows[token - 1] : row;
                const bool none = layer == 0 && first;
                const auto expected =
                    none ? rank : static_cast<uint32_t>((maker + layer + 1 + rank) % experts);
                CHECK(data.predicted[cell * 2 + rank] == expected);
                CHECK(data.prediction_scores.values[cell * 2 + rank] ==
                      (none ? 0 : static_cast<float>(maker * 100 + layer * 10) + 0.5f));
            }
        }
    }
    // And through a file.
    toy::folder folder;
    REQUIRE(write_trace(data, folder / "a.safetensors").ok());
    const auto opened = trace::open(folder / "a.safetensors");
    REQUIRE(opened.ok());
    CHECK(opened->requests() == 2);
    CHECK(opened->expert(5, 2, 1) == expert_of(4, 2, 1));
}

TEST_CASE("what is computed again is in the trace once, as it was first") {
    fake_source source;
    trace_recorder recorder(layers, experts, top_k, /*predictions=*/2);
    const auto again = [](pass_token token) {
        token.recomputed = true;
        return token;
    };
    // Rows 2 and 3 are those of rows 0 and 1 in a longer text, the second beside another request.
    record_pass(recorder, source, {token_of(0, 0, 0), token_of(1, 0, 1)});
    record_pass(recorder, source, {again(token_of(2, 0, 0))});
    record_pass(recorder, source, {again(token_of(3, 0, 1)), token_of(4, 1, 0)});
    record_pass(recorder, source, {token_of(5, 0, 2)});
    CHECK(recorder.tokens() == 4);
    const trace_data data = recorder.finish();
    CHECK(data.tokens == 4);
    CHECK(data.request_offsets == std::vector<uint64_t>{0, 3, 4});
    CHECK(data.token_ids == std::vector<int32_t>{1000, 1001, 1005, 1004});
    const uint64_t rows[] = {0, 1, 5, 4};
    for (uint32_t token = 0; token < 4; ++token)
        for (uint32_t rank = 0; rank < top_k; ++rank)
            CHECK(data.chosen[(token * layers + 1) * top_k + rank] ==
                  expert_of(rows[token], 1, rank));
    // The first layer's prediction for row 5 is that of the token before it in the trace.
    CHECK(data.prediction_scores.values[2 * layers * 2] == 1 * 100 + 0.5f);
}

TEST_CASE("without predictions, and with a source that has none") {
    fake_source source;
    source.predicts = false;
    trace_recorder none(layers, experts, top_k, 0), empty(layers, experts, top_k, 3);
    for (trace_recorder *recorder : {&none, &empty}) {
        record_pass(*recorder, source, {token_of(0, 0, 0)});
        record_pass(*recorder, source, {token_of(1, 0, 1)});
    }
    CHECK(none.finish().predicted.empty());
    CHECK(none.finish().prediction_scores.values.empty());
    const trace_data data = empty.finish();
    REQUIRE(data.predicted.size() == 2 * layers * 3);
    for (size_t i = 0; i < data.predicted.size(); ++i) {
        CHECK(data.predicted[i] == i % 3);  // distinct, as a trace must have them
        CHECK(data.prediction_scores.values[i] == 0);
    }
}

namespace {

struct bench {
    run_resources shared;
    run_config config;

    bench() {
        REQUIRE(
            shared.scan(std::vector{std::filesystem::path(MOORAGE_BINARY_DIR) / "plugins"}).ok());
        config.file = "test.toml";
        config.executor = "cpu";
        config.profile = "host";
        config.model = std::filesystem::path(MOORAGE_SOURCE_DIR) / "configs/demo";
        config.prompts = {"The president said that", "def main(", "Il y avait"};
        config.max_tokens = 10;
        config.prefill = 512;
        config.threads = 2;
    }
    run_report run_it(step_watcher *watcher = nullptr) {
        run_options options;
        options.watcher = watcher;
        auto done = run(config, shared, options);
        if (!done) FAIL(done.failure().text);
        return std::move(done).value();
    }
    trace_data record(uint32_t predictions = 8) {
        trace_recorder recorder(8, 24, 4, predictions);
        const run_report report = run_it(&recorder);
        CHECK(recorder.tokens() == report.tokens);
        return recorder.finish();
    }
};

// Largest difference of two lists.
float largest_difference(const std::vector<float> &a, const std::vector<float> &b) {
    REQUIRE(a.size() == b.size());
    float most = 0;
    for (size_t i = 0; i < a.size(); ++i) most = std::max(most, std::abs(a[i] - b[i]));
    return most;
}

// The same choices, but where a router's scores tie as far as rounding goes.
void check_same(const trace_data &a, const trace_data &b) {
    REQUIRE(a.tokens == b.tokens);
    CHECK(a.token_ids == b.token_ids);
    CHECK(a.request_offsets == b.request_offsets);
    CHECK(largest_difference(a.gate_scores.values, b.gate_scores.values) < 2e-3f);
    CHECK(largest_difference(a.prediction_scores.values, b.prediction_scores.values) < 2e-3f);
    size_t different = 0;
    for (size_t i = 0; i < a.chosen.size(); ++i) {
        if (a.chosen[i] == b.chosen[i]) continue;
        ++different;
        const float *scores = a.gate_scores.values.data() + i / 4 * 24;
        CHECK(std::abs(scores[a.chosen[i]] - scores[b.chosen[i]]) < 2e-3f);
    }
    CHECK(different * 50 <= a.chosen.size());
}

}  // namespace

TEST_CASE("the same trace, whatever the batch and the prefill") {
    bench fixture;
    const trace_data expected = fixture.record();
    // Prompts and nine of ten written tokens each: the last one is not computed.
    CHECK(expected.request_offsets.size() == 4);
    CHECK(expected.gate_scores.values.size() == expected.tokens * 8 * 24);
    // The scores are probabilities, the choice the best of them, the weights theirs.
    for (size_t cell = 0; cell < expected.tokens * 8; ++cell) {
        const float *scores = expected.gate_scores.values.data() + cell * 24;
        float sum = 0;
        for (int expert = 0; expert < 24; ++expert) sum += scores[expert];
        CHECK(sum == doctest::Approx(1).epsilon(1e-4));
        for (size_t rank = 0; rank < 4; ++rank) {
            const float of_chosen = scores[expected.chosen[cell * 4 + rank]];
            CHECK(expected.weights.values[cell * 4 + rank] == doctest::Approx(of_chosen));
            if (rank > 0) CHECK(of_chosen <= scores[expected.chosen[cell * 4 + rank - 1]]);
        }
        const float last = scores[expected.chosen[cell * 4 + 3]];
        CHECK(std::count_if(scores, scores + 24, [&](float score) { return score > last; }) == 3);
    }
    for (const uint32_t batch : {1u, 3u})
        for (const uint32_t prefill : {512u, 3u, 0u}) {
            CAPTURE(batch);
            CAPTURE(prefill);
            fixture.config.batch = batch;
            fixture.config.prefill = prefill;
            check_same(fixture.record(), expected);
        }
}

TEST_CASE("recording changes nothing of the run, on the emulator neither") {
    bench fixture;
    fixture.config.executor = "emulator";
    fixture.config.profile = "rtx_4060_ti_16gb";
    fixture.config.experts = 40;
    const trace_data computed = bench().record();
    const std::string plain = json_text(fixture.run_it());
    trace_recorder recorder(8, 24, 4, 8);
    CHECK(json_text(fixture.run_it(&recorder)) == plain);
    check_same(recorder.finish(), computed);
    CHECK(recorder.finish().chosen == computed.chosen);
}

TEST_CASE("the trace of a model hits and misses as the model did") {
    toy::folder folder;
    bench fixture;
    fixture.config.executor = "emulator";
    fixture.config.profile = "rtx_4060_ti_16gb";
    fixture.config.prefill = 0;
    trace_data data = fixture.record();
    data.metadata["model"] = "demo";
    REQUIRE(write_trace(data, folder / "demo.safetensors").ok());
    bench again;
    again.config.executor = "emulator";
    again.config.profile = "rtx_4060_ti_16gb";
    again.config.model.clear();
    again.config.prompts.clear();
    again.config.prefill = 0;
    again.config.trace = folder / "demo.safetensors";
    for (const char *policy : {"lru", "lfu", "fifo"})
        for (const uint32_t slots : {20u, 48u, 130u})
            for (const bool per_layer : {false, true})
                for (const double split : {1.0, 0.5}) {
                    CAPTURE(policy);
                    CAPTURE(slots);
                    CAPTURE(per_layer);
                    CAPTURE(split);
                    for (run_config *config : {&fixture.config, &again.config}) {
                        config->cache.plugin = policy;
                        config->experts = slots;
                        config->per_layer = per_layer;
                        config->split = split;
                    }
                    const run_report model_run = fixture.run_it(), trace_run = again.run_it();
                    CHECK(trace_run.tokens == model_run.tokens);
                    CHECK(trace_run.experts.requested == model_run.experts.requested);
                    CHECK(trace_run.experts.hits == model_run.experts.hits);
                    CHECK(trace_run.experts.partial_hits == model_run.experts.partial_hits);
                    CHECK(trace_run.experts.misses == model_run.experts.misses);
                    CHECK(trace_run.bytes.h2d == model_run.bytes.h2d);
                }
}

}  // namespace trace_record_test
