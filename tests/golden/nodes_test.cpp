// nodes_test.cpp - goal: text and likelihoods have the bits of one process, whichever nodes hold
// the experts. Method: every golden model writes and scores, with random placements and copies on
// one to five nodes, in batches, with prefill and without. Compare with the run that has all to
// itself.
#include <doctest/doctest.h>

#include "core/execute/cpu/kernels.h"
#include "core/execute/cpu/kernels_vector.h"
#include "tools/node/fingerprint.h"
#include "tests/golden/node_fixture.h"

namespace nodes_test {

namespace {

using namespace moorage::test;

const std::vector<model_request> written = {
    {{5, 3, 9, 2, 7, 1, 1, 4, 30, 6}, 6, 0}, {{8, 8, 4}, 9, 0}, {{17, 11, 2, 9, 3}, 4, 0}};
const std::vector<model_request> scored = {{{5, 3, 9, 2, 7, 1, 1, 4, 30, 6}, 0, 1},
                                           {{8, 8, 4, 17, 11, 2, 9}, 0, 1}};

struct cluster {
    loop_hub hub;
    node_plan plan;
    std::deque<running_node> nodes;

    // All servers run except the first `homes`.
    cluster(node_bench &bench, uint32_t servers, std::vector<std::vector<uint32_t>> holders,
            uint32_t homes = 1)
        : plan(plan_of(*bench.loaded_model, servers, holders)) {
        for (uint32_t server = homes; server < servers; ++server)
            nodes.emplace_back(hub, plan, *bench.loaded_model, server,
                               bench.config.arithmetic_mode);
    }
};

}  // namespace

TEST_CASE("the bits of one process, from any number of nodes") {
    random_stream draw(13, 0);
    for (const std::string &name : golden_names()) {
        CAPTURE(name);
        node_bench bench(golden_path(name).filename().string());
        for (const uint32_t prefill : {0u, 4u}) {
            bench.config.prefill = prefill;
            bench.config.batch = static_cast<uint32_t>(1 + draw.below(3));
            CAPTURE(prefill);
            CAPTURE(bench.config.batch);
            const run_result texts = bench.alone(written), scores = bench.alone(scored);
            REQUIRE(texts.tokens.size() == 19);
            for (const uint32_t servers : {1u, 2u, 5u}) {
                CAPTURE(servers);
                cluster test_cluster(bench, servers, random_holders(bench.pages(), servers, draw));
                const run_result distributed =
                    bench.at_home(test_cluster.hub, test_cluster.plan, 0, written);
                CHECK(distributed.error == "");
                CHECK(distributed == texts);
                CHECK((servers == 1 || distributed.calls.replies != 0));
                CHECK(distributed.calls.from_own_disk == 0);
                CHECK(distributed.calls.replies == distributed.calls.calls);
                CHECK(bench.at_home(test_cluster.hub, test_cluster.plan, 0, scored) == scores);
            }
        }
    }
}

TEST_CASE("fast arithmetic of quantised weights: the bits of one process from two nodes") {
    random_stream draw(23, 0);
    for (const char *name :
         {"deepseek2-q4_0", "gpt-oss-mxfp4", "mixtral-qkv-q4_1", "qwen3moe-tied-iq4_nl"}) {
        CAPTURE(name);
        node_bench bench("quantised/models/" + std::string(name) + ".gguf");
        bench.config.arithmetic_mode = arithmetic::fast;
        bench.config.prefill = 4;
        for (const uint32_t batch : {1u, 3u}) {
            bench.config.batch = batch;
            const run_result texts = bench.alone(written), scores = bench.alone(scored);
            REQUIRE(texts.tokens.size() == 19);
            cluster test_cluster(bench, 2, random_holders(bench.pages(), 2, draw));
            const run_result distributed =
                bench.at_home(test_cluster.hub, test_cluster.plan, 0, written);
            CHECK(distributed.error == "");
            CHECK(distributed == texts);
            CHECK(distributed.calls.replies != 0);
            CHECK(bench.at_home(test_cluster.hub, test_cluster.plan, 0, scored) == scores);
        }
    }
}

TEST_CASE("a home that is no server holds nothing and calls for all") {
    random_stream draw(17, 0);
    node_bench bench("mixtral");
    bench.config.prefill = 4;
    cluster test_cluster(bench, 3, random_holders(bench.pages(), 3, draw), 0);
    const run_result distributed =
        bench.at_home(test_cluster.hub, test_cluster.plan, no_server, written);
    CHECK(distributed.error == "");
    CHECK(distributed == bench.alone(written));
    CHECK(distributed.calls.from_own_disk == 0);
}

TEST_CASE("dispatch policies choose among holders") {
    random_stream draw(19, 0);
    node_bench bench("olmoe");
    const run_result texts = bench.alone(written);
    for (const char *policy : {"prism", "slim", "cost", "load_all", "overlap"}) {
        CAPTURE(policy);
        bench.config.dispatch.plugin = policy;
        cluster test_cluster(bench, 4, random_holders(bench.pages(), 4, draw));
        const run_result distributed =
            bench.at_home(test_cluster.hub, test_cluster.plan, 0, written);
        CHECK(distributed.error == "");
        CHECK(distributed == texts);
        CHECK(distributed.calls.replies != 0);
    }
}

TEST_CASE("what a policy sees and says at a home is what it does in one process") {
    node_bench bench("mixtral");
    const std::vector<std::filesystem::path> test_plugins{
        std::filesystem::path(MOORAGE_BINARY_DIR) / "tests/policies/wider.so"};
    REQUIRE(bench.shared.scan(test_plugins).ok());
    bench.config.router = {"dropper", "test", {}};
    bench.config.prefill = 4;
    const run_result whole = bench.alone(scored);
    random_stream draw(17, 0);
    cluster test_cluster(bench, 2, random_holders(bench.pages(), 2, draw));
    const run_result distributed = bench.at_home(test_cluster.hub, test_cluster.plan, 0, scored);
    CHECK(distributed.error == "");
    CHECK(distributed == whole);
    REQUIRE(whole.facts.count("dropper") == 1);
    REQUIRE(distributed.facts.count("dropper") == 1);
    const auto &seen = distributed.facts.at("dropper"), &expected = whole.facts.at("dropper");
    REQUIRE(seen.size() == 2);
    CHECK(expected[0].value > 0);
    for (size_t i = 0; i < seen.size(); ++i) CHECK(seen[i].value == expected[i].value);
}

TEST_CASE("homes that call each other serve each other") {
    random_stream draw(23, 0);
    node_bench bench("qwen2_moe");
    bench.config.batch = 2;
    const run_result texts = bench.alone(written);
    // Each page is at one of three servers, and two of them do not run, so nobody has all pages.
    std::vector<std::vector<uint32_t>> holders(bench.pages());
    for (uint32_t page = 0; page < bench.pages(); ++page) holders[page] = {page % 3};
    cluster test_cluster(bench, 3, holders, 3);
    run_result results[3];
    std::deque<node_bench> benches;
    std::atomic<int> writing = 3;
    for (int i = 0; i < 3; ++i) {
        benches.emplace_back("qwen2_moe");
        benches.back().config.batch = 2;
        benches.back().connect_ns = 60'000'000'000;
        benches.back().keeps_serving = [&, has_written = false]() mutable {
            if (!std::exchange(has_written, true)) --writing;
            return writing != 0;
        };
    }
    std::vector<std::thread> homes;
    for (uint32_t i = 0; i < 3; ++i)
        homes.emplace_back([&, i] {
            results[i] = benches[i].at_home(test_cluster.hub, test_cluster.plan, i, written);
        });
    for (std::thread &thread : homes) thread.join();
    for (const run_result &distributed : results) {
        CHECK(distributed.error == "");
        CHECK(distributed == texts);
        CHECK(distributed.calls.calls != 0);
    }
}

TEST_CASE("callers at the same time get what each would alone") {
    random_stream draw(29, 0);
    node_bench bench("deepseek_v2_lite");
    std::vector<std::vector<uint32_t>> holders(bench.pages(), {0});
    cluster test_cluster(bench, 1, holders, 0);
    constexpr uint32_t homes = 4;
    std::deque<node_bench> benches;
    std::vector<run_result> texts(homes), results(homes);
    for (uint32_t i = 0; i < homes; ++i) {
        benches.emplace_back("deepseek_v2_lite");
        benches.back().config.prefill = i % 2 ? 8 : 0;
        benches.back().config.batch = 1 + i % 3;
        texts[i] = benches.back().alone(written);
    }
    std::vector<std::thread> threads;
    for (uint32_t i = 0; i < homes; ++i)
        threads.emplace_back([&, i] {
            results[i] =
                benches[i].at_home(test_cluster.hub, test_cluster.plan, no_server, written);
        });
    for (std::thread &thread : threads) thread.join();
    for (uint32_t i = 0; i < homes; ++i) {
        CHECK(results[i].error == "");
        CHECK(results[i] == texts[i]);
        CHECK(results[i].calls.from_own_disk == 0);
    }
    test_cluster.nodes.front().stop();
    CHECK(test_cluster.nodes.front().lent() == 0);
    CHECK(test_cluster.nodes.front().node().serving().figures().calls ==
          results[0].calls.calls + results[1].calls.calls + results[2].calls.calls +
              results[3].calls.calls);
}

TEST_CASE("processors that sum pairs of bf16 in other orders tell each other apart, in fast") {
    const auto model = open_or_fail(std::filesystem::path(MOORAGE_SOURCE_DIR) / "configs/demo");
    const auto fingerprints = [&] {
        return std::tuple(std::string(pair_kernel_name()), fingerprint_of(*model, arithmetic::fast),
                          fingerprint_of(*model, arithmetic::exact));
    };
    const auto [usual, usual_fast, usual_exact] = fingerprints();
    use_matrix_registers(false);
    const auto [fallback, fallback_fast, fallback_exact] = fingerprints();
    use_matrix_registers(true);
    CHECK((usual == fallback) == (usual_fast == fallback_fast));
    CHECK((usual == "amx") == (usual != fallback));
    CHECK(usual_exact == fallback_exact);
    CHECK(usual_exact != usual_fast);
}

}  // namespace nodes_test
