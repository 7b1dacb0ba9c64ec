// segments_pipeline_test.cpp - goal: split experts are loaded, computed and kept segment by segment
// by the rules. Method: runs on the toy machine worked by hand. Runs on random traces: every
// requested segment must have been computed, once.
//
// The toy's experts have 5000 rows in parts of 640, so split = 0.5 is 2560 rows: a top segment has
// 51,200 bytes (6,120 ns over the link, 52 ns on the GPU), a bottom 48,800 (5,880 ns, 49 ns).
#include <doctest/doctest.h>

#include "core/base/json.h"
#include "core/pipeline/run.h"
#include "core/source/synth.h"
#include "tests/unit/toy_run.h"

namespace segments_pipeline_test {

using namespace moorage::core;
namespace test = moorage::test;

namespace {

struct counter final : span_sink {
    uint64_t segments = 0;  // computed on the GPU
    void span(track track_id, const char *kind, uint32_t, uint32_t, uint64_t, uint64_t) override {
        segments += track_id == gpu && std::string_view(kind) == "expert";
    }
};

struct bench : test::toy_run {
    counter computed;

    bench() : toy_run({"plugins", "tests/policies"}) {
        config.experts = 4;
        config.split = 0.5;
    }
    void prefetch(const std::string &list) {
        config.prefetch.plugin = "orders";
        config.prefetch.params = {{"list", list, "test"}};
    }
    // A GPU so slow that everything ordered arrives while it computes.
    void slow_down() {
        change("device.toml", "memory_bytes_per_s = 1000e9", "memory_bytes_per_s = 0.5e9");
    }
    run_report run_it() {
        computed = {};
        auto done = run(config, shared, {.sink = &computed});
        if (!done) FAIL(done.failure().text);
        CHECK(done->faults.empty());
        CHECK(done->bytes.prefetched == done->bytes.prefetch_used + done->bytes.prefetch_wasted);
        const expert_counts &experts = done->experts;
        CHECK(experts.requested == experts.hits + experts.partial_hits + experts.misses);
        const bool split = done->config["memory"].contains("split");
        CHECK(computed.segments == (split ? 2 : 1) * (experts.requested - experts.on_cpu));
        return std::move(done).value();
    }
};

}  // namespace

TEST_CASE("the top computes while the bottom arrives; the top stays") {
    bench fixture;
    fixture.write(toy::routing({{{0}}, {{0}}}, 4, {0, 2}, false));
    const run_report report = fixture.run_it();
    // Token 0: gate 170; top on the link to 6,290, bottom to 12,170; top computed 6,290 to 6,342,
    // bottom 12,170 to 12,219; head 12,229.
    CHECK(report.ttft_ms.mean == doctest::Approx(0.012229));
    // Token 1: top 170 to 222, bottom on the link 170 to 6,050, computed to 6,099; head 6,109.
    CHECK(report.tpot_ms.mean == doctest::Approx(0.006109));
    CHECK(report.experts.misses == 1);
    CHECK(report.experts.partial_hits == 1);
    CHECK(report.experts.loaded == 2);
    CHECK(report.bytes.h2d == 100'000 + 48'800);
    // The GPU waits 170 to 6,290 and 6,342 to 12,170, then 222 to 6,050.
    CHECK(report.time.stall == doctest::Approx(1e-6 * (6120 + 5828 + 5828)));
    CHECK(report.time.compute == doctest::Approx(1e-6 * 2 * (170 + 52 + 49 + 10)));
    CHECK(report.config["memory"]["split"].get<double>() == doctest::Approx(0.512));
}

TEST_CASE("partial hits compute all their tops first") {
    bench fixture;
    fixture.write(toy::routing({{{0, 1}}, {{0, 1}}, {{0, 2}}}, 4, {0, 3}, false));
    const run_report report = fixture.run_it();
    // Token 0: link 0T 6,290, 0B 12,170, 1T 18,290, 1B 24,170; computed to 24,219; head 24,229.
    CHECK(report.ttft_ms.mean == doctest::Approx(0.024229));
    // Token 1: tops 170 to 274; bottoms on the link to 6,050 and 11,930; to 11,979; head 11,989.
    CHECK(report.tpot_ms.p50 == doctest::Approx(0.011989));
    // Token 2: 0T at once; link 0B 6,050, 2T 12,170, 2B 18,050; to 18,099; head 18,109.
    CHECK(report.tpot_ms.p99 == doctest::Approx(0.018109));
    CHECK(report.experts.partial_hits == 3);
    CHECK(report.experts.misses == 3);
}

TEST_CASE("a slot holds a top, so there are experts / share of them") {
    bench fixture;
    fixture.write(toy::routing({{{0}}, {{1}}, {{2}}, {{0}}, {{1}}, {{2}}}, 8, {0, 6}, false));
    fixture.config.experts = 2;
    run_report report = fixture.run_it();
    CHECK(report.config["memory"]["slots"] == 3);  // 2 / 0.512 = 3.9
    CHECK(report.experts.partial_hits == 3);
    CHECK(report.experts.misses == 3);
    CHECK(report.config["memory"]["bytes"] == 200'000);
    fixture.config.split = 1;
    report = fixture.run_it();
    CHECK_FALSE(report.config["memory"].contains("slots"));
    CHECK(report.experts.misses == 6);
    fixture.config.split = 0.2;  // 1280 rows: share 0.256, 7 slots
    report = fixture.run_it();
    CHECK(report.config["memory"]["slots"] == 7);
    CHECK(report.bytes.h2d == 3 * 100'000 + 3 * 74'400);
    fixture.config.split = 0.9;  // 4480 rows: share 0.896, 2 slots
    report = fixture.run_it();
    CHECK(report.config["memory"]["slots"] == 2);
    CHECK(report.experts.misses == 6);
}

TEST_CASE("every border of a part divides an expert without a byte too many") {
    bench fixture;
    fixture.write(toy::routing({{{0}}}, 4, {0, 1}, false));
    for (uint32_t part = 1; part < 8; ++part) {
        CAPTURE(part);
        fixture.config.split = 640.0 * part / 5000;
        const run_report report = fixture.run_it();
        CHECK(report.bytes.h2d == 100'000);
        // 170, two copies of 1,000 + 20 ns a row of 10 bytes... 12,800 bytes a part at 10 a ns.
        const uint64_t bottom = 100'000 - 12'800 * part;
        const uint64_t bottom_ns = (bottom + 999) / 1000;
        CHECK(report.total_ms * 1e6 == doctest::Approx(170 + 12'000 + bottom_ns + 10));
    }
}

TEST_CASE("a prefetched bottom waits in the buffer and makes a partial hit a hit") {
    bench fixture;
    fixture.write(toy::routing({{{0}, {0}, {0}}, {{0}, {0}, {0}}}, 4, {0, 2}, false));
    fixture.prefetch("0:8b");  // at layer 0, of expert 0 of layer 2
    const run_report report = fixture.run_it();
    // Token 0, layer 0: done at 12,219; the prefetch is on the link 12,170 to 18,050. Layer 1: gate
    // 12,389, top 18,050 to 24,170, bottom to 30,050, done 30,099. Layer 2: gate 30,269, its bottom
    // is there; top to 36,389, computed to 36,441, bottom to 36,490; head 36,500.
    CHECK(report.ttft_ms.mean == doctest::Approx(0.036500));
    // Token 1, layer 0: gate 36,670, bottom to 42,550, done 42,599; prefetch to 48,430. Layer 1:
    // gate 42,769, top to 42,821, bottom 48,430 to 54,310, done 54,359. Layer 2: gate 54,529, a
    // hit: 54,630; head 54,640.
    CHECK(report.tpot_ms.mean == doctest::Approx(0.018140));
    CHECK(report.experts.hits == 1);
    CHECK(report.experts.partial_hits == 3);
    CHECK(report.experts.misses == 2);
    CHECK(report.layers[2].experts.hits == 1);
    CHECK(report.bytes.h2d == 300'000 + 3 * 48'800);
    CHECK(report.bytes.prefetched == 2 * 48'800);
    CHECK(report.bytes.prefetch_used == 2 * 48'800);
}

TEST_CASE("a late bottom is waited for, after a top that is demanded behind it") {
    bench fixture;
    fixture.write(toy::routing({{{0}, {0}}}, 4, {0, 1}, false));
    fixture.prefetch("0:4b");
    const run_report report = fixture.run_it();
    // Layer 0 as above, prefetch on the link 12,170 to 18,050. Layer 1: gate 12,389; its top
    // follows to 24,170; computed to 24,222, the bottom to 24,271; head 24,281.
    CHECK(report.total_ms == doctest::Approx(0.024281));
    CHECK(report.experts.partial_hits == 1);
    CHECK(report.bytes.h2d == 200'000);
    CHECK(report.bytes.prefetch_used == 48'800);
}

TEST_CASE("a bottom that nobody asks for is wasted, and its slot is free again") {
    bench fixture;
    fixture.write(toy::routing({{{0}, {1}}, {{0}, {1}}, {{0}, {1}}}, 4, {0, 3}, false));
    fixture.prefetch("0:6b");  // expert 2 of layer 1
    fixture.config.buffer_experts = 1;
    const run_report report = fixture.run_it();
    // Under way when layer 1 is routed, three times over: its bytes have all set out.
    CHECK(report.bytes.prefetched == 3 * 48'800);
    CHECK(report.bytes.prefetch_wasted == 3 * 48'800);
    CHECK(report.experts.misses == 2);
    CHECK(report.experts.partial_hits == 4);
}

TEST_CASE("more experts than cache and staging hold pass through") {
    bench fixture;
    fixture.write(toy::routing({{{0, 1, 2, 3}}, {{0, 1, 2, 3}}}, 4, {0, 2}, false));
    fixture.config.experts = 1;  // one slot
    fixture.config.buffer_experts = 0;
    const run_report report = fixture.run_it();
    // Three tops and two bottoms at a time. Link: 0T 6,290, 0B 12,170, 1T 18,290, 1B 24,170, 2T
    // 30,290; 2B has room when 0B is computed (12,219), 3T when 1T is (18,342), 3B when 1B is
    // (24,219): all before the link is done. 2B 36,170, 3T 42,290, 3B 48,170, computed to 48,219;
    // head 48,229.
    CHECK(report.ttft_ms.mean == doctest::Approx(0.048229));
    // Token 1 has the top of 0: link 0B 6,050, then as before to 42,050 and 42,099; head 42,109.
    CHECK(report.tpot_ms.mean == doctest::Approx(0.042109));
    CHECK(report.experts.misses == 7);
    CHECK(report.experts.partial_hits == 1);
    CHECK(report.bytes.h2d == 800'000 - 51'200);
}

TEST_CASE("whole experts pass through staging, too, two at a time") {
    bench fixture;
    fixture.write(toy::routing({{{0, 1, 2, 3}}}, 4, {0, 1}, false));
    fixture.config.split = 1;
    fixture.config.experts = 1;
    fixture.config.buffer_experts = 0;
    // Link to 11,170, 22,170, 33,170; the fourth has room at 22,270 (the first stays in its slot,
    // the second is staged) and follows to 44,170; computed to 44,270; head 44,280.
    CHECK(fixture.run_it().total_ms == doctest::Approx(0.044280));
}

TEST_CASE("prefill through staging, then decode with what stayed") {
    bench fixture;
    fixture.write(toy::routing({{{0}}, {{1}}, {{2}}, {{3}}, {{0}}}, 4, {0, 5}, false));
    fixture.config.experts = 1;
    fixture.config.buffer_experts = 0;
    fixture.config.prefill = 4;
    const run_report report = fixture.run_it();
    // One pass with four experts, one token each, is the step above; then expert 0 as a partial
    // hit.
    CHECK(report.ttft_ms.mean == doctest::Approx(0.048229));
    CHECK(report.tpot_ms.mean == doctest::Approx(0.006109));
    CHECK(report.tokens == 5);
}

TEST_CASE("experts on the CPU are computed whole, a late bottom for them is wasted") {
    bench fixture;
    fixture.write(toy::routing({{{0}, {0}}}, 4, {0, 1}, false));
    fixture.config.dispatch.plugin = "cpu_all";
    fixture.config.dispatch.params = {{"fill", false, "test"}};
    fixture.prefetch("0:4b");
    const run_report report = fixture.run_it();
    // Two layers of 170 + 2,500 and the head; the prefetch sets out at 170.
    CHECK(report.total_ms == doctest::Approx(0.005350));
    CHECK(report.experts.on_cpu == 2);
    CHECK(report.bytes.prefetch_wasted == 48'800);
}

TEST_CASE("an expert of the running step is not ordered for the next visit of its layer") {
    // Its place goes with the step: bytes that came later would find none.
    for (const double split : {1.0, 0.5}) {
        CAPTURE(split);
        bench fixture;
        fixture.config.split = split;
        fixture.write(toy::routing({{{0}}, {{0}}}, 4, {0, 2}, false));
        fixture.config.dispatch.plugin = "cpu_all";
        fixture.config.dispatch.params = {{"fill", false, "test"}};
        fixture.prefetch("0:0w");
        const run_report report = fixture.run_it();
        CHECK(report.experts.on_cpu == 2);
        CHECK(report.bytes.prefetched == 0);
    }
}

TEST_CASE("prefetched segments in every place do not keep a demanded one out") {
    bench fixture;
    // All layers ask for experts 0 to 5 of 16; there are 11 frames. From token 1 on layer 1 finds 2
    // tops of layer 2 in the buffer and 5 bottoms of its own, two of them of its cached experts.
    // Its demand takes the other frames, and its own orders all that the buffer may still have.
    const std::vector<std::vector<uint16_t>> layers(3, {0, 1, 2, 3, 4, 5});
    fixture.write(toy::routing({layers, layers, layers}, 16, {0, 3}, false));
    fixture.slow_down();
    fixture.config.per_layer = true;
    fixture.config.experts = 4;
    fixture.config.buffer_experts = 9;
    fixture.prefetch(
        "0:45t 0:46t 0:16b 0:17b 0:18b 0:19b 0:20b 1:32b 1:33b 1:34b 1:35b 1:36b 1:37b "
        "2:38t 2:39t 2:40t 2:41t 2:42t 2:43t");
    const run_report report = fixture.run_it();
    CHECK(report.experts.requested == 3 * 3 * 6);
}

TEST_CASE("slots that a budget moves from layer to layer are not lost") {
    bench fixture;
    std::vector<std::vector<std::vector<uint16_t>>> tokens;
    for (uint16_t token = 0; token < 40; ++token) {
        const uint16_t first = token % 4;
        const std::vector<uint16_t> chosen = {first, static_cast<uint16_t>((first + 1) % 4)};
        tokens.push_back({chosen, chosen});
    }
    fixture.write(toy::routing(tokens, 4, {0, 40}, false));
    fixture.config.per_layer = true;
    fixture.config.budget.plugin = "seesaw";
    for (const double split : {1.0, 0.5}) {
        CAPTURE(split);
        fixture.config.split = split;
        const run_report report = fixture.run_it();
        CHECK(report.experts.requested == 40 * 2 * 2);
        CHECK(report.experts.misses > 20);  // moved experts must be loaded again
    }
}

TEST_CASE("every segment of every step is computed, whatever the settings") {
    bench fixture;
    const synth_options options{.layers = 4,
                                .experts = 10,
                                .top_k = 3,
                                .tokens = 120,
                                .requests = 5,
                                .reuse = 0.4,
                                .predictions = 6,
                                .prediction_accuracy = 0.7,
                                .seed = 9};
    auto data = synthesize(options);
    REQUIRE(data.ok());
    fixture.write(*data);
    for (uint32_t round = 0; round < 96; ++round) {
        CAPTURE(round);
        fixture.config.split = 0.1 + 0.05 * (round % 19);
        fixture.config.dispatch.plugin =
            std::vector{"load_all", "cpu_all", "cost", "overlap"}[round % 4];
        fixture.config.prefetch.plugin = "next_gate";
        fixture.config.prefetch.params.clear();
        if (round % 4 == 2)
            fixture.prefetch("0:11b 0:12b 0:20t 1:22b 1:31t 2:30w 2:33b 3:0b 3:1b 3:2t 3:11t");
        fixture.config.transport.plugin = round / 6 % 2 ? "chunked" : "direct";
        fixture.config.per_layer = round / 12 % 2;
        fixture.config.budget.plugin = round % 5 == 1 ? "seesaw" : "uniform";
        fixture.config.batch = round < 48 ? 1 : 4;
        fixture.config.prefill = round % 5 == 4 ? 16 : 0;
        fixture.config.experts = 1 + round * 7 % 45;
        fixture.config.buffer_experts = round % 6;
        if (fixture.config.buffer_experts == 0) {
            fixture.config.prefetch.plugin = "none";
            fixture.config.prefetch.params.clear();
        }
        const run_report report = fixture.run_it();
        CHECK(report.tokens == 120);
        CHECK(report.bytes.h2d <=
              report.experts.loaded * 100'000 + report.bytes.prefetched + report.bytes.behind);
        CHECK(report.time.compute + report.time.stall <= report.total_ms + 1e-9);
        CHECK(to_json(report).dump() == to_json(fixture.run_it()).dump());
    }
}

}  // namespace segments_pipeline_test
