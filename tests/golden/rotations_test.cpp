// rotations_test.cpp - goal: rotations that follow the length of a text (longrope, dynamic NTK) are
// those of the whole text, however its passes are cut. Method: logits of an independent reference
// in float64, one pass over the whole text for each of them. The same texts are scored and written
// with prompts of any cut, in batches of texts on both sides of the border, across it, through the
// pipeline and on several nodes.
#include "core/execute/cpu/golden_check.h"
#include "tests/golden/node_fixture.h"
#include "tests/golden/rotations_fixture.h"

namespace rotations_test {

using namespace moorage::test;

namespace {

constexpr const char *names[] = {"longrope", "dynamic"};
constexpr uint32_t prefills[] = {0, 1, 5, 16, 23, 24, 25, 64};

double error_on_cpu(const rotations_golden &golden, const std::vector<model_request> &requests,
                    const model_source_options &options) {
    model_source source(*golden.loaded_model, requests, options);
    thread_pool pool(2);
    const auto compute = compute_of(*golden.loaded_model, pool,
                                    {.tokens_max = source.tokens_max(),
                                     .streams = source.streams(),
                                     .context_max = source.context_max(),
                                     .outputs_max = source.outputs_max()});
    forward run_pass(*compute, *golden.loaded_model);
    return error_of_requests(golden, requests, source, *compute,
                             [&](const pass &tokens) { run_pass(tokens); });
}

}  // namespace

TEST_CASE("texts are scored by the rotations of their length, whatever passes they come in") {
    for (const char *name : names) {
        CAPTURE(name);
        const rotations_golden golden(name);
        double worst = 0;
        for (const uint32_t prefill : prefills)
            for (const uint32_t batch : {1u, 3u}) {
                CAPTURE(prefill);
                CAPTURE(batch);
                const double error = error_on_cpu(golden, golden.scored_texts(),
                                                  {.batch = batch, .prefill = prefill});
                CHECK(error <= rotations_error_max);
                worst = std::max(worst, error);
            }
        MESSAGE(name << ": at most " << worst);
    }
}

TEST_CASE("a text that crosses the border while it is written is computed anew under its length") {
    for (const char *name : names) {
        CAPTURE(name);
        const rotations_golden golden(name);
        double worst = 0;
        for (const uint32_t prefill : prefills)
            for (const uint32_t batch : {1u, 3u}) {
                CAPTURE(prefill);
                CAPTURE(batch);
                const double error = error_on_cpu(golden, golden.written_texts(),
                                                  {.batch = batch, .prefill = prefill});
                CHECK(error <= rotations_error_max);
                worst = std::max(worst, error);
            }
        MESSAGE(name << ": at most " << worst);
    }
}

TEST_CASE("the check of golden models crosses the border, too") {
    thread_pool pool(1);
    for (const char *name : names) {
        const rotations_golden golden(name);
        const golden_data data = golden_of(*golden.loaded_model);
        REQUIRE(data.greedy.size() == 24);
        const auto report = check_golden(*golden.loaded_model, data, pool);
        REQUIRE(report.ok());
        CHECK(report->logits_error <= one_token_error_max);
        CHECK(report->greedy_match);
    }
}

TEST_CASE("the pipeline and any number of nodes: likelihoods and texts of the reference") {
    random_stream draw(31, 0);
    for (const char *name : names) {
        CAPTURE(name);
        const rotations_golden golden(name);
        node_bench bench("rotations/" + std::string(name));
        const std::vector<model_request> scored = golden.scored_texts(),
                                         written = golden.written_texts();
        for (const uint32_t prefill : {0u, 16u, 64u}) {
            bench.config.prefill = prefill;
            bench.config.batch = static_cast<uint32_t>(1 + draw.below(3));
            CAPTURE(prefill);
            CAPTURE(bench.config.batch);
            const run_result texts = bench.alone(written), scores = bench.alone(scored);
            CHECK(scores.nll == doctest::Approx(golden.mean_nll(scored)).epsilon(2e-6));
            for (const uint32_t servers : {1u, 2u, 4u}) {
                CAPTURE(servers);
                const auto holders = random_holders(bench.pages(), servers, draw);
                loop_hub hub;
                const node_plan plan = plan_of(*bench.loaded_model, servers, holders);
                std::deque<running_node> nodes;
                for (uint32_t server = 1; server < servers; ++server)
                    nodes.emplace_back(hub, plan, *bench.loaded_model, server,
                                       bench.config.arithmetic_mode);
                const run_result distributed = bench.at_home(hub, plan, 0, written);
                CHECK(distributed.error == "");
                CHECK(distributed == texts);
                CHECK(bench.at_home(hub, plan, 0, scored) == scores);
            }
        }
    }
}

TEST_CASE("time of what is computed again is time of the token that needs it") {
    for (const char *name : names)
        for (const uint32_t prefill : {0u, 16u}) {
            CAPTURE(name);
            CAPTURE(prefill);
            const rotations_golden golden(name);
            node_bench bench("rotations/" + std::string(name));
            bench.config.executor = "emulator";
            bench.config.profile = "rtx_4060_ti_16gb";
            bench.config.prefill = prefill;
            // Twelve tokens across the trained length. With one request, no time belongs to another
            // one.
            const std::vector<model_request> requests = {
                {{golden.greedy.begin(), golden.greedy.begin() + 20}, 12}};
            run_options options;
            options.requests = &requests;
            const auto done = run(bench.config, bench.shared, options);
            REQUIRE_MESSAGE(done.ok(), (done ? "" : done.failure().text));
            CHECK(done->requests == 1);
            CHECK(done->tokens > 31);
            CHECK(done->ttft_ms.mean + 11 * done->tpot_ms.mean ==
                  doctest::Approx(done->total_ms).epsilon(1e-6));
        }
}

}  // namespace rotations_test
