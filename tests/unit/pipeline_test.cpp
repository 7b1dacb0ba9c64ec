// Goal: a whole run (source, router, cache, dispatch, transport, prefetch, emulator, report)
// follows the rules. Method: runs on the toy machine worked by hand; the counts of a run compared
// with the replay of the same trace; conservation laws on random traces under random settings;
// equal bytes for equal runs.
#include "core/pipeline/run.h"

#include <doctest/doctest.h>

#include "core/cache/replay.h"
#include "core/source/synth.h"
#include "tests/unit/toy_run.h"

namespace pipeline_test {

using namespace moorage::core;
namespace test = moorage::test;

namespace {

struct bench : test::toy_run {
    bench() { config.experts = 4; }
};

// Two layers, one expert each: 0 1 | 0 1 | 2 1.
trace_data three_tokens(bool predict) {
    return toy::routing({{{0}, {1}}, {{0}, {1}}, {{2}, {1}}}, 4, {0, 3}, predict);
}

}  // namespace

TEST_CASE("load_all by hand") {
    bench fixture;
    fixture.write(three_tokens(false));
    const run_report report = fixture.run_it();
    // Token 0: each layer gate 170, load 11,000, compute 100; twice, then the head's 10: 22,550.
    // Token 1: all resident: 2 x (170 + 100) + 10 = 550. Token 2: 11,270 + 270 + 10 = 11,550.
    CHECK(report.tokens == 3);
    CHECK(report.requests == 1);
    CHECK(report.ttft_ms.mean == doctest::Approx(0.022550));
    CHECK(report.tpot_ms.mean == doctest::Approx((0.000550 + 0.011550) / 2));
    CHECK(report.tpot_ms.p50 == doctest::Approx(0.000550));
    CHECK(report.tpot_ms.p99 == doctest::Approx(0.011550));
    CHECK(report.total_ms == doctest::Approx(0.034650));
    CHECK(report.experts.requested == 6);
    CHECK(report.experts.hits == 3);
    CHECK(report.experts.misses == 3);
    CHECK(report.experts.loaded == 3);
    CHECK(report.bytes.h2d == 300'000);
    CHECK(report.time.stall == doctest::Approx(0.033));
    CHECK(report.time.transfer == doctest::Approx(0.033));
    CHECK(report.time.compute == doctest::Approx(6 * 0.000270 + 3 * 0.00001));
    CHECK(report.layers[0].experts.misses == 2);
    CHECK(report.layers[1].experts.misses == 1);
    CHECK(report.opt_misses == 3);
    CHECK(report.virtual_time);
}

TEST_CASE("cpu_all by hand: nothing is loaded, nothing is cached") {
    bench fixture;
    fixture.write(three_tokens(false));
    fixture.config.dispatch.plugin = "cpu_all";
    fixture.config.dispatch.params = {{"fill", false, "test"}};
    const run_report report = fixture.run_it();
    // Every token: 2 x (170 + 2500) + 10 = 5350.
    CHECK(report.ttft_ms.mean == doctest::Approx(0.005350));
    CHECK(report.tpot_ms.mean == doctest::Approx(0.005350));
    CHECK(report.experts.on_cpu == 6);
    CHECK(report.experts.hits == 0);
    CHECK(report.experts.loaded == 0);
    CHECK(report.bytes.h2d == 0);
    CHECK(report.bytes.d2h == 6 * 5 * 2);  // activations of 5 values
}

TEST_CASE("cost by hand: the CPU is faster here, so it gets every absent expert") {
    bench fixture;
    fixture.write(three_tokens(false));
    fixture.config.dispatch.plugin = "cost";
    fixture.config.dispatch.params = {{"fill", false, "test"}};
    CHECK(fixture.run_it().experts.on_cpu == 6);
    fixture.config.dispatch.params.push_back(
        {"keep", 4.44, "test"});  // 11,100 ns are 4.44 times 2500
    const run_report report = fixture.run_it();
    CHECK(report.experts.on_cpu == 0);
    CHECK(report.experts.loaded == 3);
}

TEST_CASE("cpu_all and cost fill the cache once, then leave it as it is") {
    bench fixture;
    fixture.write(three_tokens(false));
    fixture.config.experts = 2;
    for (const char *name : {"cpu_all", "cost"}) {
        CAPTURE(name);
        fixture.config.dispatch.plugin = name;
        const run_report report = fixture.run_it();
        // Token 0 loads both of its experts, token 1 hits them: 22,550 and 550. Token 2: expert 2
        // of layer 0 on the CPU, 170 + 2500; layer 1 hits, 270; head 10.
        CHECK(report.ttft_ms.mean == doctest::Approx(0.022550));
        CHECK(report.tpot_ms.p50 == doctest::Approx(0.000550));
        CHECK(report.tpot_ms.p99 == doctest::Approx(0.002950));
        CHECK(report.experts.loaded == 2);
        CHECK(report.experts.on_cpu == 1);
    }
}

TEST_CASE("unified memory copies nothing") {
    bench fixture;
    fixture.write(three_tokens(false));
    fixture.change("device.toml", "unified_memory = false", "unified_memory = true");
    const run_report report = fixture.run_it();
    // Every token: 2 x (170 + 100) + 10.
    CHECK(report.ttft_ms.mean == doctest::Approx(0.000550));
    CHECK(report.tpot_ms.p99 == doctest::Approx(0.000550));
    CHECK(report.experts.misses == 3);
    CHECK(report.bytes.h2d == 0);
    REQUIRE(report.warnings.size() == 1);
    CHECK(report.warnings[0].find("unified memory") != std::string::npos);
}

TEST_CASE("next_gate by hand: loads overlap with compute, late ones are waited for") {
    bench fixture;
    fixture.write(three_tokens(true));
    fixture.config.prefetch.plugin = "next_gate";
    const run_report report = fixture.run_it();
    // Token 0: demand 170 to 11,170; the prefetch for layer 1 follows on the link to 22,170; layer
    // 1 is routed at 11,270 + 170 and waits for it; 22,270, head 22,280.
    CHECK(report.ttft_ms.mean == doctest::Approx(0.022280));
    // Token 1: resident, 550; at its layer 1's gate, 440 in, expert 2 of layer 0 is fetched: from
    // 22,720 to 33,720. Token 2 begins at 22,830, computes it from 33,720 to 33,820, then layer 1:
    // 34,090, head 34,100.
    CHECK(report.tpot_ms.p50 == doctest::Approx(0.000550));
    CHECK(report.tpot_ms.p99 == doctest::Approx(0.011270));
    CHECK(report.total_ms == doctest::Approx(0.034100));
    CHECK(report.experts.misses == 1);
    CHECK(report.experts.partial_hits == 2);
    CHECK(report.bytes.h2d == 300'000);
    CHECK(report.bytes.prefetched == 200'000);
    CHECK(report.bytes.prefetch_used == 200'000);
    CHECK(report.bytes.prefetch_wasted == 0);
    // Known for all visits but the first token's layer 0.
    CHECK(report.predicted == 5);
    CHECK(report.predicted_right == 5);
}

TEST_CASE("a late prefetch of an expert that the CPU computes is wasted") {
    bench fixture;
    fixture.write(three_tokens(true));
    fixture.config.prefetch.plugin = "next_gate";
    fixture.config.dispatch.plugin = "cpu_all";
    fixture.config.dispatch.params = {{"fill", false, "test"}};
    const run_report report = fixture.run_it();
    // A layer takes 170 + 2500, a load 11,000: no prefetch arrives in time. That of token 0's layer
    // 1 is on the link from 170 on and ends there; further ones are cut off while they wait for it,
    // until one starts at 11,170, during token 2's layer 0 (10,700 to 13,370).
    CHECK(report.ttft_ms.mean == doctest::Approx(0.005350));
    CHECK(report.tpot_ms.mean == doctest::Approx(0.005350));
    CHECK(report.experts.on_cpu == 6);
    CHECK(report.bytes.prefetched == 200'000);
    CHECK(report.bytes.prefetch_used == 0);
    CHECK(report.bytes.prefetch_wasted == 200'000);
}

TEST_CASE("a batch shares loads, and prefill is one pass") {
    bench fixture;
    fixture.write(toy::routing({{{0}}, {{1}}, {{0}}, {{1}}}, 4, {0, 2, 4}, false));
    fixture.config.batch = 2;
    run_report report = fixture.run_it();
    // Both requests ask for 0, then for 1: 170 + 11,000 + 100 + 10 for either pass.
    CHECK(report.tokens == 4);
    CHECK(report.experts.requested == 2);
    CHECK(report.experts.misses == 2);
    CHECK(report.ttft_ms.mean == doctest::Approx(0.011280));
    CHECK(report.total_ms == doctest::Approx(0.022560));
    fixture.config.batch = 1;
    fixture.config.prefill = 8;  // all but the last token of a request
    report = fixture.run_it();
    CHECK(report.tokens == 4);
    CHECK(report.experts.requested == 4);
    CHECK(report.experts.misses == 2);
    // TTFT: the prefill pass; TPOT: the decode pass after it; the second request hits.
    CHECK(report.ttft_ms.mean == doctest::Approx((0.011280 + 0.000280) / 2));
    CHECK(report.tpot_ms.mean == doctest::Approx((0.011280 + 0.000280) / 2));
}

TEST_CASE("without prefetch a run hits and misses exactly as the replay in token order") {
    bench fixture;
    const synth_options options{.layers = 5,
                                .experts = 12,
                                .top_k = 3,
                                .tokens = 400,
                                .requests = 7,
                                .reuse = 0.3,
                                .domains = 2,
                                .seed = 5};
    auto data = synthesize(options);
    REQUIRE(data.ok());
    fixture.write(*data);
    const trace &source = **fixture.shared.open(fixture.config.trace);
    for (const bool per_layer : {false, true}) {
        for (const uint32_t slots : {2u, 7u, 15u, 30u, 60u}) {
            for (const char *name :
                 {"lru", "lfu", "llru", "fifo", "sieve", "clock", "belady", "random"}) {
                CAPTURE(name);
                CAPTURE(slots);
                CAPTURE(per_layer);
                fixture.config.cache.plugin = name;
                fixture.config.experts = slots;
                fixture.config.per_layer = per_layer;
                fixture.config.seed = 3;
                const run_report report = fixture.run_it();
                const future coming(source);
                replay_job job{.cache_policy = *fixture.shared.policies().find(name, "cache"),
                               .slots = slots,
                               .seed = 3};
                job.pools = per_layer ? sharing::per_layer : sharing::shared;
                const auto counted = replay(source, &coming, job);
                REQUIRE(counted.ok());
                CHECK(report.experts.hits == counted->hits);
                CHECK(report.experts.misses == counted->misses);
                CHECK(report.bytes.h2d == counted->misses * 100'000);
                CHECK(report.opt_misses <= report.experts.misses);
            }
        }
    }
}

TEST_CASE("conservation under random settings") {
    bench fixture;
    const synth_options options{.layers = 4,
                                .experts = 10,
                                .top_k = 2,
                                .tokens = 300,
                                .requests = 9,
                                .reuse = 0.4,
                                .predictions = 6,
                                .prediction_accuracy = 0.7,
                                .seed = 8};
    auto data = synthesize(options);
    REQUIRE(data.ok());
    fixture.write(*data);
    for (uint32_t round = 0; round < 48; ++round) {
        fixture.config.dispatch.plugin = std::vector{"load_all", "cpu_all", "cost"}[round % 3];
        fixture.config.prefetch.plugin = round / 3 % 2 ? "next_gate" : "none";
        fixture.config.transport.plugin = round / 6 % 2 ? "chunked" : "direct";
        fixture.config.per_layer = round / 12 % 2;
        fixture.config.batch = round < 24 ? 1 : 3;
        fixture.config.prefill = round % 5 == 4 ? 6 : 0;
        fixture.config.experts = 1 + round % 40;
        fixture.config.buffer_experts = 1 + round % 4;
        CAPTURE(round);
        const run_report report = fixture.run_it();
        CHECK(report.tokens == 300);
        CHECK(report.requests == 9);
        const expert_counts &experts = report.experts;
        CHECK(experts.requested == experts.hits + experts.partial_hits + experts.misses);
        CHECK(experts.loaded + experts.on_cpu <= experts.requested);
        CHECK(report.bytes.prefetched == report.bytes.prefetch_used + report.bytes.prefetch_wasted);
        CHECK(report.bytes.h2d <= experts.loaded * 100'000 + report.bytes.prefetched);
        CHECK(report.bytes.h2d == report.bytes.demand + report.bytes.prefetched);
        CHECK(report.bytes.prefetch_cut_off <= report.bytes.prefetch_wasted);
        uint64_t moved = 0;
        double stall_ms = 0;
        for (const layer_report &layer : report.layers)
            moved += layer.h2d_bytes, stall_ms += layer.stall_ms;
        CHECK(moved == report.bytes.h2d);
        CHECK(stall_ms == doctest::Approx(report.time.stall));
        CHECK(report.time.compute + report.time.stall <= report.total_ms + 1e-9);
        CHECK(report.time.transfer <= report.total_ms + 1e-9);
        CHECK(report.faults.empty());
        // Nothing is faster than reading every expert of the run once on the GPU or the CPU.
        CHECK(report.total_ms * 1e6 >=
              static_cast<double>(report.tokens / fixture.config.batch / 8));
        CHECK(json_text(report) == json_text(fixture.run_it()));
    }
}

TEST_CASE("what cannot be run is refused, with the remedy") {
    bench fixture;
    fixture.write(three_tokens(false));
    const auto refusal = [&] {
        const auto done = run(fixture.config, fixture.shared, {});
        REQUIRE_FALSE(done.ok());
        return done.failure().text;
    };
    SUBCASE("a policy that does not exist") {
        fixture.config.cache.plugin = "lrv";
        CHECK(refusal().find("lru") != std::string::npos);
    }
    SUBCASE("a tensor that the trace lacks") {
        fixture.config.prefetch.plugin = "next_gate";
        CHECK(refusal().find("pred_experts") != std::string::npos);
    }
    SUBCASE("the future of a batch") {
        fixture.config.cache.plugin = "belady";
        fixture.config.batch = 2;
        CHECK(refusal().find("batch = 1") != std::string::npos);
    }
    SUBCASE("less memory than one expert") {
        fixture.config.experts.reset();
        fixture.config.bytes = 99'999;
        CHECK(refusal().find("100000") != std::string::npos);
    }
    SUBCASE("an unknown parameter") {
        fixture.config.cache.params = {{"half_live", 1.0, "run.toml:3"}};
        const std::string text = refusal();
        CHECK(text.find("run.toml:3") != std::string::npos);
        CHECK(text.find("half_live") != std::string::npos);
    }
    SUBCASE("a shape that is not the trace's") {
        toy::write_files(fixture.folder, 2, 5, 1);
        CHECK(refusal().find("5") != std::string::npos);
    }
}

TEST_CASE("wrong advice ends the run or is replaced, as configured; both name the policy") {
    bench fixture;
    fixture.write(three_tokens(false));
    const std::filesystem::path bad = std::filesystem::path(MOORAGE_BINARY_DIR) / "bad";
    REQUIRE(fixture.shared.scan(std::vector{bad / "victim_absent.so"}).ok());
    fixture.config.cache.plugin = "victim_absent";
    fixture.config.experts = 2;
    const auto ended = run(fixture.config, fixture.shared, {});
    REQUIRE_FALSE(ended.ok());
    CHECK(ended.failure().text.find("victim_absent") != std::string::npos);
    CHECK(ended.failure().text.find("on_fault") != std::string::npos);
    fixture.config.fault_action = on_fault::replace;
    const run_report report = fixture.run_it();
    CHECK(report.tokens == 3);
    REQUIRE(report.faults.count("victim_absent") == 1);
    // One eviction is needed: expert 2 of token 2's layer 0 in a cache of two.
    CHECK(report.faults.at("victim_absent") >= 1);
    CHECK(report.experts.requested == 6);
}

TEST_CASE("what a user should know is said: working set, memory, room to spare") {
    bench fixture;
    fixture.write(three_tokens(false));
    fixture.config.experts = 1;
    run_report report = fixture.run_it();
    REQUIRE(report.warnings.size() == 1);
    CHECK(report.warnings[0].find("exactly 0 %") != std::string::npos);
    CHECK(report.experts.hits == 0);
    fixture.config.experts = 100;
    report = fixture.run_it();
    REQUIRE(report.warnings.size() == 1);
    CHECK(report.warnings[0].find("has 8") != std::string::npos);
}

}  // namespace pipeline_test
