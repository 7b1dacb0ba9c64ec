// versions_test.cpp - goal: an expert with two versions is loaded, kept and computed in the version
// that a step asks for, and the report says which. Method: schedules of router `hobbit` on the toy
// machine, worked out by hand in the comments; conservation laws and the model's own choice over
// random settings; contradictions refused in words.
#include <doctest/doctest.h>

#include "core/base/json.h"
#include "core/base/random.h"
#include "toy_run.h"

namespace versions_test {

using namespace moorage::core;
using moorage::test::toy_run;

namespace {

// In the first version a load takes 11,000 ns, and an expert takes 100 ns for each of one or two
// tokens. The second version is half as large: 6,000 and 50.
struct bench : toy_run {
    bench() : toy_run({"plugins", "tests/policies"}) {
        config.cache.plugin = "lru";
        config.buffer_experts = 0;
        config.experts = 2;
        config.small = (folder / "small.toml").string();
        set_thresholds(0.6, 1);
    }
    void set_thresholds(double t1, double t2) {
        config.router = {"hobbit", "test", {{"t1", t1, "test"}, {"t2", t2, "test"}}};
    }
    // Each token's two experts have 3/4 and 1/4 of its weight.
    void use_choices(const std::vector<std::vector<std::vector<uint16_t>>> &chosen,
                     uint32_t experts, std::vector<uint64_t> requests) {
        trace_data data = toy::routing(chosen, experts, std::move(requests), false);
        for (size_t i = 0; i < data.chosen.size(); ++i)
            data.weights.values.push_back(i % 2 == 0 ? 0.75f : 0.25f);
        write(data);
        std::ifstream input(folder / "shape.toml");
        folder.write("small.toml", std::string((std::istreambuf_iterator<char>(input)), {}));
        change("small.toml", "weight_bytes = 2", "weight_bytes = 1");
        change("small.toml", "expert_bytes = 100_000", "expert_bytes = 50_000");
    }
    std::string refusal() {
        const auto done = run(config, shared, {});
        return done ? std::string() : done.failure().text;
    }
};

}  // namespace

// One layer, two slots. Experts, their classes, and what happens; a token begins with 170 ns until
// its gate is known, and ends with 10 ns.
//   {0, 1}  top, small   both loaded, 1 in the second version          11,000 + 6,000 + 50
//   {1, 0}  top, top     1 is here in the second: gone, loaded anew    11,000 + 100
//   {0, 1}  top, top     both here in the first: 1 though it weighs little       200
//   {2, 3}  top, small   in their places, 3 in the second version      11,000 + 6,000 + 50
//   {2, 3}  top, small   both here, 3 computed in the second                     150
TEST_CASE("an expert comes in the version asked for, and anew when a better one is") {
    bench fixture;
    fixture.use_choices({{{0, 1}}, {{1, 0}}, {{0, 1}}, {{2, 3}}, {{2, 3}}}, 4, {0, 5});
    const run_report report = fixture.run_it();
    CHECK(report.total_ms ==
          doctest::Approx((5 * 180 + 17'050 + 11'100 + 200 + 17'050 + 150) / 1e6).epsilon(1e-12));
    CHECK(report.experts.requested == 10);
    CHECK(report.experts.hits == 5);
    CHECK(report.experts.loaded == 5);
    CHECK(report.bytes.h2d == 3 * 100'000 + 2 * 50'000);
    CHECK(report.versions[0].computed == 7);
    CHECK(report.versions[1].computed == 3);
    CHECK(report.versions[0].loaded_bytes == 300'000);
    CHECK(report.versions[1].loaded_bytes == 100'000);
    CHECK(report.routing.small == 3);
    CHECK(report.experts.substituted == 3);
    CHECK(report.routing.rows_unchanged == 2);
    const json versions = to_json(report)["versions"];
    REQUIRE(versions.size() == 2);
    CHECK(versions[0]["name"] == "toy");
    CHECK(versions[1]["name"] == "small.toml");
    CHECK(versions[1]["computed_share"] == 0.3);
    CHECK(to_text(report).find("versions    70.00 % of the work in toy") != std::string::npos);
}

// One layer, two slots: both experts come in the first version, for the second token the small one
// would do. They are as they are: 200 ns.
TEST_CASE("what is here in the first version is computed in it") {
    bench fixture;
    fixture.config.router = {"small", "test", {{"from", int64_t{1}, "test"}}};
    fixture.use_choices({{{0, 1}}, {{0, 1}}}, 2, {0, 2});
    const run_report report = fixture.run_it();
    CHECK(report.total_ms == doctest::Approx((2 * 180 + 22'100 + 200) / 1e6).epsilon(1e-12));
    CHECK(report.versions[0].computed == 4);
    CHECK(report.versions[1].computed == 0);
}

// Two requests of a token each, side by side: {0, 1} and {1, 2}. Expert 1 is small for the first
// and top for the second, so it comes in the first version, as 0 does; 2 is small.
TEST_CASE("of tokens side by side the best version that any asks for is computed") {
    bench fixture;
    fixture.config.batch = 2;
    fixture.config.experts = 4;
    fixture.use_choices({{{0, 1}}, {{1, 2}}}, 4, {0, 1, 2});
    const run_report report = fixture.run_it();
    CHECK(report.versions[0].computed == 3);
    CHECK(report.versions[1].computed == 1);
    CHECK(report.versions[0].loaded_bytes == 200'000);
    CHECK(report.versions[1].loaded_bytes == 50'000);
    CHECK(report.routing.small == 2);
    // Exact requests need the first version, whatever other requests in the step use.
    fixture.config.exact_requests = {0};
    const run_report first = fixture.run_it();
    CHECK(first.routing.small == 1);
    CHECK(first.routing.held_exact == 1);
    CHECK(first.versions[1].computed == 1);
    fixture.config.exact_requests = {1};
    CHECK(fixture.run_it().versions[1].computed == 0);
    // And a cap holds back what it would hold back of any departure: one choice of the four.
    fixture.config.exact_requests.clear();
    fixture.config.substitution_max = 0.4;
    const run_report capped = fixture.run_it();
    CHECK(capped.routing.held_cap == 2);
    CHECK(capped.versions[1].computed == 0);
    CHECK(capped.bytes.h2d == 300'000);
}

// 0 and 1 find free slots, 1 in the small version. 2 and 3 do not, and the CPU computes them, 3 in
// the first version though small would do. Then 0 and 1 are unchanged.
TEST_CASE("the CPU computes in the first version, which host memory has") {
    bench fixture;
    fixture.config.dispatch.plugin = "cpu_all";
    fixture.use_choices({{{0, 1}}, {{2, 3}}, {{0, 1}}}, 4, {0, 3});
    const run_report report = fixture.run_it();
    CHECK(report.experts.on_cpu == 2);
    CHECK(report.experts.hits == 2);
    CHECK(report.routing.small == 3);
    CHECK(report.versions[0].computed == 4);
    CHECK(report.versions[1].computed == 2);
    CHECK(report.bytes.h2d == 150'000);
}

// The first two experts are the first token's, top and small. With t2 = 0.5 the third is dropped
// only if it is absent.
TEST_CASE("what is left out is computed in no version") {
    bench fixture;
    fixture.set_thresholds(0.5, 0.5);
    fixture.use_choices({{{0, 1}}, {{0, 1}}, {{1, 0}}, {{0, 1}}}, 4, {0, 4});
    const run_report report = fixture.run_it();
    CHECK(report.routing.dropped == 2);  // until 1 is asked for first
    CHECK(report.routing.small == 0);
    CHECK(report.versions[0].computed == 6);
    CHECK(report.versions[1].computed == 0);
}

namespace {

// Four layers of twelve experts, forty tokens of four requests.
struct random_run : bench {
    random_stream random;
    explicit random_run(uint64_t seed) : random(seed, 7) {
        std::vector<std::vector<std::vector<uint16_t>>> chosen;
        for (uint32_t token = 0; token < 40; ++token) {
            chosen.emplace_back();
            for (uint32_t layer = 0; layer < 4; ++layer) {
                const auto first = static_cast<uint16_t>(random.below(12));
                const auto distance = static_cast<uint16_t>(1 + random.below(11));
                chosen.back().push_back({first, static_cast<uint16_t>((first + distance) % 12)});
            }
        }
        use_choices(chosen, 12, {0, 10, 20, 30, 40});
    }
    template <size_t N>
    const char *random_name(const char *const (&names)[N]) {
        return names[random.below(N)];
    }
    void draw_config() {
        config.cache.plugin =
            random_name({"lru", "lfu", "sieve", "lcp", "static", "hybrimoe", "tide"});
        config.prefetch.plugin = random_name({"none", "random", "moe_infinity", "tide"});
        config.dispatch.plugin =
            random_name({"load_all", "cost", "overlap", "hybrimoe", "freetoken"});
        config.transport.plugin = random_name({"direct", "chunked"});
        config.per_layer = random.below(2) == 1;
        config.experts = static_cast<uint32_t>(4 + random.below(44));
        config.buffer_experts = static_cast<uint32_t>(1 + random.below(4));
        config.batch = static_cast<uint32_t>(1 + random.below(4));
        config.prefill = static_cast<uint32_t>(random.below(2) * 3);
        config.split = random.below(2) ? 1 : 0.5;
        config.seed = random.below(100);
    }
};

}  // namespace

TEST_CASE("whatever the strategy: all is computed once, nothing is at fault") {
    uint64_t small = 0, better = 0;
    for (uint64_t seed = 0; seed < 60; ++seed) {
        CAPTURE(seed);
        random_run fixture(seed);
        fixture.draw_config();
        CAPTURE(fixture.config.cache.plugin);
        CAPTURE(fixture.config.prefetch.plugin);
        CAPTURE(fixture.config.dispatch.plugin);
        const run_report report = fixture.run_it();
        CHECK(report.faults.empty());
        CHECK(report.versions[0].computed + report.versions[1].computed ==
              report.routing.choices - report.routing.dropped);
        CHECK(report.versions[0].loaded_bytes + report.versions[1].loaded_bytes <=
              report.bytes.h2d);
        CHECK(report.experts.requested ==
              report.experts.hits + report.experts.partial_hits + report.experts.misses);
        small += report.versions[1].computed;
        better += report.versions[1].computed < report.routing.small;
    }
    CHECK(small > 500);
    CHECK(better > 5);  // runs in which another token asked for more
}

TEST_CASE("a router that never lets the second version do, runs as if there were one") {
    for (uint64_t seed = 0; seed < 20; ++seed) {
        CAPTURE(seed);
        random_run fixture(seed);
        fixture.draw_config();
        fixture.set_thresholds(1, 1);
        const run_report two_versions = fixture.run_it();
        CHECK(two_versions.versions[1].computed == 0);
        fixture.config.small.clear();
        fixture.config.router = {"topk", "test", {}};
        const run_report plain = fixture.run_it();
        CHECK(two_versions.total_ms == plain.total_ms);
        CHECK(two_versions.experts.hits == plain.experts.hits);
        CHECK(two_versions.bytes.h2d == plain.bytes.h2d);
    }
}

TEST_CASE("what is no smaller version of the experts is refused") {
    bench fixture;
    fixture.use_choices({{{0, 1}}}, 4, {0, 1});
    fixture.config.small = (fixture.folder / "shape.toml").string();
    CHECK(fixture.refusal().empty());  // of the same size
    std::swap(fixture.config.small, fixture.config.shape);
    fixture.config.shape = (fixture.folder / "small.toml").string();
    CHECK(fixture.refusal().find("correct [source] small_shape") != std::string::npos);
    fixture.config.shape = (fixture.folder / "shape.toml").string();
    fixture.config.small = (fixture.folder / "small.toml").string();
    fixture.change("small.toml", "experts = 4", "experts = 5");
    CHECK(fixture.refusal().find("are no smaller version of toy") != std::string::npos);
}

}  // namespace versions_test
