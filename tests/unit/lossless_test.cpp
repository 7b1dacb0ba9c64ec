// Goal: lossless strategies change nothing. The text of a model has the same bytes with any cache,
// prefetch, dispatch, transport, split, memory and executor. Method: a property over random
// settings of the demo model and of one of each architecture, compared with the run that computes
// every expert in place; and the conservation laws of the report on each of them.
#include <doctest/doctest.h>

#include "core/base/random.h"
#include "core/pipeline/run.h"
#include "toy_machine.h"

namespace lossless_test {

using namespace moorage::core;

namespace {

struct bench {
    run_resources shared;
    run_config config;
    random_stream random{20, 3};

    bench() {
        REQUIRE(
            shared.scan(std::vector{std::filesystem::path(MOORAGE_BINARY_DIR) / "plugins"}).ok());
        config.file = "test.toml";
        config.executor = "cpu";
        config.profile = "host";
        config.model = std::filesystem::path(MOORAGE_SOURCE_DIR) / "configs/demo";
        config.prompts = {"The president said that", "def main(", "Il y avait"};
        config.max_tokens = 12;
        config.prefill = 512;
        config.threads = 2;
    }
    run_report run_it() {
        auto done = run(config, shared, {});
        if (!done) FAIL(done.failure().text);
        return std::move(done).value();
    }
    template <size_t N>
    const char *one_of(const char *const (&names)[N]) {
        return names[random.below(N)];
    }
    // Changes anything except the batch and the prefill, which change the sums.
    void draw() {
        config.executor = one_of({"cpu", "cpu", "emulator"});
        config.profile = one_of({"host", "rtx_4060_ti_16gb", "rtx_4090"});
        config.cache.plugin =
            one_of({"lru", "llru", "lfu", "fifo", "sieve", "marking", "random", "lcp", "score",
                    "echo", "tide", "static", "llama_cpp_cache", "moe_infinity", "hybrimoe"});
        config.prefetch.plugin = one_of({"none", "next_gate", "smoe", "moepic", "echo", "tide",
                                         "random", "moe_infinity", "hybrimoe", "deepspeed_stream"});
        config.dispatch.plugin =
            one_of({"load_all", "cpu_all", "cost", "overlap", "balance", "hybrimoe", "freetoken"});
        // A budget that cuts the experts of every layer elsewhere, and again after a few tokens.
        config.budget.plugin = one_of({"uniform", "adapmoe", "moepic"});
        config.budget.params.clear();
        if (config.budget.plugin == "moepic")
            config.budget.params = {{"tau", int64_t{10}, "test"}, {"when", "due", "test"}};
        config.transport.plugin = one_of({"direct", "chunked"});
        config.per_layer = random.below(2) == 1;
        config.experts = static_cast<uint32_t>(1 + random.below(220));
        config.buffer_experts = static_cast<uint32_t>(random.below(9));
        // Contradictions are refused (composition_test), so none is drawn.
        if (!config.per_layer) config.budget.plugin = "uniform", config.budget.params.clear();
        if (config.prefetch.plugin == "deepspeed_stream")
            config.buffer_experts = *config.buffer_experts + 24;
        if (config.buffer_experts == 0) config.prefetch.plugin = "none";
        config.split = random.below(2) ? 1 : 0.3 + 0.4 * random.unit();
        config.threads = static_cast<uint32_t>(1 + random.below(4));
        config.seed = random.below(100);
    }
};

}  // namespace

TEST_CASE("the text is the same whatever the strategy") {
    bench fixture;
    for (const uint32_t batch : {1u, 3u}) {
        fixture.config = bench().config;
        fixture.config.batch = batch;
        const text_report expected = fixture.run_it().text;
        REQUIRE(expected.texts.size() == 3);
        REQUIRE(expected.written == 36);
        for (uint32_t round = 0; round < 30; ++round) {
            fixture.draw();
            CAPTURE(round);
            CAPTURE(fixture.config.executor);
            CAPTURE(fixture.config.split);
            CAPTURE(*fixture.config.experts);
            CAPTURE(fixture.config.dispatch.plugin);
            CAPTURE(fixture.config.prefetch.plugin);
            CAPTURE(fixture.config.cache.plugin);
            CAPTURE(fixture.config.budget.plugin);
            const run_report report = fixture.run_it();
            CHECK(report.text.texts == expected.texts);
            const expert_counts &experts = report.experts;
            CHECK(experts.requested == experts.hits + experts.partial_hits + experts.misses);
            CHECK(report.bytes.prefetched ==
                  report.bytes.prefetch_used + report.bytes.prefetch_wasted);
            CHECK(report.faults.empty());
            CHECK(report.virtual_time == (fixture.config.executor == "emulator"));
        }
    }
}

TEST_CASE("a scored text has the same likelihood whatever the strategy") {
    bench fixture;
    fixture.config.prompts.clear();
    fixture.config.text = std::filesystem::path(MOORAGE_SOURCE_DIR) / "tests/README.md";
    fixture.config.window = 64;
    fixture.config.tokens = 200;
    const text_report expected = fixture.run_it().text;
    REQUIRE(expected.scored > 100);
    for (uint32_t round = 0; round < 6; ++round) {
        fixture.draw();
        const run_report report = fixture.run_it();
        CHECK(report.text.scored == expected.scored);
        CHECK(report.text.nll == expected.nll);
    }
}

// Twelve tokens of a small model: the same likelihood by eight strategies as by none.
static void check_score(bench &fixture) {
    fixture.config.batch = static_cast<uint32_t>(1 + fixture.random.below(3));
    fixture.config.prefill = fixture.random.below(2) ? 4 : 0;
    const text_report expected = fixture.run_it().text;
    REQUIRE(expected.scored == 12);
    for (uint32_t round = 0; round < 8; ++round) {
        fixture.draw();
        fixture.config.experts = static_cast<uint32_t>(1 + fixture.random.below(40));
        CAPTURE(round);
        CAPTURE(fixture.config.split);
        CAPTURE(fixture.config.executor);
        CHECK(fixture.run_it().text.nll == expected.nll);
    }
}

TEST_CASE("every architecture scores the same, whatever the strategy") {
    bench fixture;
    toy::folder folder;
    folder.write("windows.json", "[[5, 9, 33, 101, 7, 7, 42, 150], [1, 2, 3], [11, 13, 17, 19]]");
    fixture.config.prompts.clear();
    fixture.config.text = folder / "windows.json";
    for (const char *name : {"mixtral", "qwen2_moe", "qwen3_moe", "olmoe", "deepseek_v2_lite",
                             "deepseek_v3", "phimoe", "granitemoe", "gpt_oss", "glm4_moe"}) {
        CAPTURE(name);
        const std::filesystem::path text = fixture.config.text;
        fixture.config = bench().config;
        fixture.config.prompts.clear();
        fixture.config.text = text;
        fixture.config.model = std::filesystem::path(MOORAGE_SOURCE_DIR) / "tests/golden" / name;
        check_score(fixture);
    }
}

TEST_CASE("quantised weights in fast arithmetic: the same text whatever the strategy") {
    const std::filesystem::path source(MOORAGE_SOURCE_DIR);
    bench fixture;
    for (const uint32_t batch : {1u, 3u}) {
        fixture.config = bench().config;
        fixture.config.model = source / "configs/demo-q4_0.gguf";
        fixture.config.arithmetic_mode = arithmetic::fast;
        fixture.config.batch = batch;
        const text_report expected = fixture.run_it().text;
        REQUIRE(expected.written == 36);
        for (const uint32_t threads : {1u, 2u, 3u, 4u}) {
            fixture.config.threads = threads;
            CHECK(fixture.run_it().text.texts == expected.texts);
        }
        for (uint32_t round = 0; round < 16; ++round) {
            fixture.draw();
            CAPTURE(round);
            CAPTURE(fixture.config.split);
            CAPTURE(fixture.config.executor);
            CAPTURE(fixture.config.threads);
            CAPTURE(fixture.config.dispatch.plugin);
            CAPTURE(fixture.config.prefetch.plugin);
            CAPTURE(fixture.config.cache.plugin);
            CHECK(fixture.run_it().text.texts == expected.texts);
        }
        // Rounding does take place: exact arithmetic gives another likelihood.
        fixture.config = bench().config;
        fixture.config.model = source / "configs/demo-q4_0.gguf";
        fixture.config.prompts.clear();
        fixture.config.text = source / "tests/README.md";
        fixture.config.window = 64;
        fixture.config.tokens = 65;
        fixture.config.batch = batch;
        fixture.config.arithmetic_mode = arithmetic::fast;
        const double fast = fixture.run_it().text.nll;
        fixture.config.arithmetic_mode = arithmetic::exact;
        CHECK(fixture.run_it().text.nll != fast);
    }
}

TEST_CASE("every quantised architecture scores the same in fast arithmetic") {
    bench fixture;
    toy::folder folder;
    folder.write("windows.json", "[[5, 9, 33, 101, 7, 7, 42, 150], [1, 2, 3], [11, 13, 17, 19]]");
    for (const char *name :
         {"deepseek2-q4_0", "gpt-oss-mxfp4", "mixtral-qkv-q4_1", "qwen3moe-tied-iq4_nl"}) {
        CAPTURE(name);
        fixture.config = bench().config;
        fixture.config.prompts.clear();
        fixture.config.text = folder / "windows.json";
        fixture.config.model = std::filesystem::path(MOORAGE_SOURCE_DIR) /
                               "tests/golden/quantised/models" / (std::string(name) + ".gguf");
        fixture.config.arithmetic_mode = arithmetic::fast;
        check_score(fixture);
    }
}

TEST_CASE("an emulated run of a model repeats itself to the byte") {
    bench fixture;
    fixture.config.executor = "emulator";
    fixture.config.profile = "rtx_4060_ti_16gb";
    fixture.config.experts = 60;
    fixture.config.split = 0.5;
    fixture.config.prefetch.plugin = "next_gate";
    const std::string first = json_text(fixture.run_it());
    fixture.config.threads = 1;
    CHECK(json_text(fixture.run_it()) == first);
}

TEST_CASE("drawn tokens repeat with their seed and change with it") {
    bench fixture;
    fixture.config.temperature = 1.5;
    fixture.config.seed = 1;
    const text_report first = fixture.run_it().text;
    CHECK(fixture.run_it().text.texts == first.texts);
    fixture.config.seed = 2;
    CHECK(fixture.run_it().text.texts != first.texts);
}

}  // namespace lossless_test
