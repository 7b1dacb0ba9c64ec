// nodes_test.cpp - goal: text and likelihoods have the bits of one process, whichever nodes hold
// the experts. Method: every golden model writes and scores, with random placements and copies on
// one to five nodes, in batches, with prefill and without. Compare with the run that has all to
// itself.
#include <doctest/doctest.h>

#include "core/execute/cpu/kernels.h"
#include "core/execute/cpu/kernels_vector.h"
#include "core/node/fingerprint.h"
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
    cluster(node_bench &on, uint32_t servers, std::vector<std::vector<uint32_t>> holders,
            uint32_t homes = 1)
        : plan(plan_of(*on.of, servers, holders)) {
        for (uint32_t server = homes; server < servers; ++server)
            nodes.emplace_back(hub, plan, *on.of, server, on.config.numbers);
    }
};

}  // namespace

TEST_CASE("the bits of one process, from any number of nodes") {
    random_stream draw(13, 0);
    for (const std::string &name : golden_names()) {
        CAPTURE(name);
        node_bench on(golden_path(name).filename().string());
        for (const uint32_t prefill : {0u, 4u}) {
            on.config.prefill = prefill;
            on.config.batch = static_cast<uint32_t>(1 + draw.below(3));
            CAPTURE(prefill);
            CAPTURE(on.config.batch);
            const run_result texts = on.alone(written), scores = on.alone(scored);
            REQUIRE(texts.tokens.size() == 19);
            for (const uint32_t servers : {1u, 2u, 5u}) {
                CAPTURE(servers);
                cluster all(on, servers, random_holders(on.pages(), servers, draw));
                const run_result there = on.at_home(all.hub, all.plan, 0, written);
                CHECK(there.error == "");
                CHECK(there == texts);
                CHECK((servers == 1 || there.calls.replies != 0));
                CHECK(there.calls.here == 0);
                CHECK(there.calls.replies == there.calls.calls);
                CHECK(on.at_home(all.hub, all.plan, 0, scored) == scores);
            }
        }
    }
}

TEST_CASE("fast arithmetic of quantised weights: the bits of one process from two nodes") {
    random_stream draw(23, 0);
    for (const char *name :
         {"deepseek2-q4_0", "gpt-oss-mxfp4", "mixtral-qkv-q4_1", "qwen3moe-tied-iq4_nl"}) {
        CAPTURE(name);
        node_bench on("quantised/models/" + std::string(name) + ".gguf");
        on.config.numbers = arithmetic::fast;
        on.config.prefill = 4;
        for (const uint32_t batch : {1u, 3u}) {
            on.config.batch = batch;
            const run_result texts = on.alone(written), scores = on.alone(scored);
            REQUIRE(texts.tokens.size() == 19);
            cluster all(on, 2, random_holders(on.pages(), 2, draw));
            const run_result there = on.at_home(all.hub, all.plan, 0, written);
            CHECK(there.error == "");
            CHECK(there == texts);
            CHECK(there.calls.replies != 0);
            CHECK(on.at_home(all.hub, all.plan, 0, scored) == scores);
        }
    }
}

TEST_CASE("a home that is no server holds nothing and calls for all") {
    random_stream draw(17, 0);
    node_bench on("mixtral");
    on.config.prefill = 4;
    cluster all(on, 3, random_holders(on.pages(), 3, draw), 0);
    const run_result there = on.at_home(all.hub, all.plan, no_server, written);
    CHECK(there.error == "");
    CHECK(there == on.alone(written));
    CHECK(there.calls.here == 0);
}

TEST_CASE("dispatch policies choose among holders") {
    random_stream draw(19, 0);
    node_bench on("olmoe");
    const run_result texts = on.alone(written);
    for (const char *policy : {"prism", "slim", "cost", "load_all", "overlap"}) {
        CAPTURE(policy);
        on.config.dispatch.plugin = policy;
        cluster all(on, 4, random_holders(on.pages(), 4, draw));
        const run_result there = on.at_home(all.hub, all.plan, 0, written);
        CHECK(there.error == "");
        CHECK(there == texts);
        CHECK(there.calls.replies != 0);
    }
}

TEST_CASE("what a policy sees and says at a home is what it does in one process") {
    node_bench on("mixtral");
    const std::vector<std::filesystem::path> own{std::filesystem::path(MOORAGE_BINARY_DIR) /
                                                 "tests/policies/wider.so"};
    REQUIRE(on.shared.scan(own).ok());
    on.config.router = {"dropper", "test", {}};
    on.config.prefill = 4;
    const run_result whole = on.alone(scored);
    random_stream draw(17, 0);
    cluster all(on, 2, random_holders(on.pages(), 2, draw));
    const run_result there = on.at_home(all.hub, all.plan, 0, scored);
    CHECK(there.error == "");
    CHECK(there == whole);
    REQUIRE(whole.facts.count("dropper") == 1);
    REQUIRE(there.facts.count("dropper") == 1);
    const auto &seen = there.facts.at("dropper"), &expected = whole.facts.at("dropper");
    REQUIRE(seen.size() == 2);
    CHECK(expected[0].value > 0);
    for (size_t i = 0; i < seen.size(); ++i) CHECK(seen[i].value == expected[i].value);
}

TEST_CASE("homes that call each other serve each other") {
    random_stream draw(23, 0);
    node_bench on("qwen2_moe");
    on.config.batch = 2;
    const run_result texts = on.alone(written);
    // Each page is at one of three servers, and two of them do not run, so nobody has all pages.
    std::vector<std::vector<uint32_t>> holders(on.pages());
    for (uint32_t page = 0; page < on.pages(); ++page) holders[page] = {page % 3};
    cluster all(on, 3, holders, 3);
    run_result results[3];
    std::deque<node_bench> benches;
    std::atomic<int> writing = 3;
    for (int i = 0; i < 3; ++i) {
        benches.emplace_back("qwen2_moe");
        benches.back().config.batch = 2;
        benches.back().connect_ns = 60'000'000'000;
        benches.back().stays = [&, told = false]() mutable {
            if (!std::exchange(told, true)) --writing;
            return writing != 0;
        };
    }
    std::vector<std::thread> homes;
    for (uint32_t i = 0; i < 3; ++i)
        homes.emplace_back(
            [&, i] { results[i] = benches[i].at_home(all.hub, all.plan, i, written); });
    for (std::thread &one : homes) one.join();
    for (const run_result &there : results) {
        CHECK(there.error == "");
        CHECK(there == texts);
        CHECK(there.calls.calls != 0);
    }
}

TEST_CASE("callers at the same time get what each would alone") {
    random_stream draw(29, 0);
    node_bench on("deepseek_v2_lite");
    std::vector<std::vector<uint32_t>> holders(on.pages(), {0});
    cluster all(on, 1, holders, 0);
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
        threads.emplace_back(
            [&, i] { results[i] = benches[i].at_home(all.hub, all.plan, no_server, written); });
    for (std::thread &one : threads) one.join();
    for (uint32_t i = 0; i < homes; ++i) {
        CHECK(results[i].error == "");
        CHECK(results[i] == texts[i]);
        CHECK(results[i].calls.here == 0);
    }
    all.nodes.front().stop();
    CHECK(all.nodes.front().lent() == 0);
    CHECK(all.nodes.front().node().serving().figures().calls ==
          results[0].calls.calls + results[1].calls.calls + results[2].calls.calls +
              results[3].calls.calls);
}

TEST_CASE("processors that sum pairs of bf16 in other orders tell each other apart, in fast") {
    const auto of = open_or_fail(std::filesystem::path(MOORAGE_SOURCE_DIR) / "configs/demo");
    const auto all = [&] {
        return std::tuple(std::string(pair_products()), fingerprint_of(*of, arithmetic::fast),
                          fingerprint_of(*of, arithmetic::exact));
    };
    const auto [usual, usual_fast, usual_exact] = all();
    use_matrix_registers(false);
    const auto [other, other_fast, other_exact] = all();
    use_matrix_registers(true);
    CHECK((usual == other) == (usual_fast == other_fast));
    CHECK((usual == "amx") == (usual != other));
    CHECK(usual_exact == other_exact);
    CHECK(usual_exact != usual_fast);
}

}  // namespace nodes_test
