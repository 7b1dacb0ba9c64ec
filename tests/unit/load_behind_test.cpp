// load_behind_test.cpp - goal: experts that the CPU computes are loaded behind it by the rules.
// Method: runs on the toy machine worked by hand (an expert takes 100 ns on the GPU, 11,000 ns over
// the link, 2,500 ns on the CPU; a layer's gate is there after 170 ns, the head takes 10 ns).
#include <doctest/doctest.h>

#include "core/pipeline/run.h"
#include "tests/unit/toy_run.h"

namespace load_behind_test {

using namespace moorage::core;
namespace test = moorage::test;

namespace {

struct bench : test::toy_run {
    bench() {
        config.cache.plugin = "lru";
        config.dispatch.plugin = "overlap";
        config.dispatch.params = {{"fill", false, "test"}};
        config.experts = 2;
    }
    // One expert a token, one layer.
    run_report run_it(const std::vector<uint16_t> &experts, uint32_t expert_count = 4) {
        std::vector<std::vector<std::vector<uint16_t>>> tokens;
        for (const uint16_t expert : experts) tokens.push_back({{expert}});
        const trace_data data = toy::routing(tokens, expert_count, {0, experts.size()}, false);
        write(data);
        run_report done = toy_run::run_it();
        CHECK(done.faults.empty());
        return done;
    }
};

}  // namespace

TEST_CASE("the CPU computes until the load has crossed, the GPU from then on") {
    bench fixture;
    // A token on the CPU: 170 + 2,500 + 10. The load sets out at 170 and is there at 11,170; token
    // 4 has its gate at 10,890, token 5 at 13,570: it alone takes 170 + 100 + 10.
    const run_report report = fixture.run_it({0, 0, 0, 0, 0, 0});
    CHECK(report.total_ms == doctest::Approx(1e-6 * (5 * 2680 + 280)));
    CHECK(report.experts.on_cpu == 5);
    CHECK(report.experts.hits == 1);
    CHECK(report.experts.misses == 1);        // of the first token
    CHECK(report.experts.partial_hits == 4);  // on its way
    CHECK(report.bytes.behind == 100'000);    // once
    CHECK(report.bytes.h2d == 100'000);
    CHECK(report.experts.loaded == 0);
}

TEST_CASE("a step takes a load over when what is left of it is the shorter way") {
    bench fixture;
    fixture.config.transport.plugin = "chunked";
    fixture.config.transport.params = {{"chunk_bytes", int64_t{10'000}, "test"}};
    // Ten pieces of 2,000 ns from 170 on. Tokens 0 to 6 are computed on the CPU. At the gate of
    // token 7 (18,930) nine have crossed, and 2,000 + 100 ns for the last are less than 2,500: it
    // waits until 20,170.
    const run_report report = fixture.run_it({0, 0, 0, 0, 0, 0, 0, 0});
    CHECK(report.experts.on_cpu == 7);
    CHECK(report.total_ms == doctest::Approx(1e-6 * (20'170 + 100 + 10)));
    CHECK(report.experts.loaded == 1);
    CHECK(report.bytes.h2d == 100'000);
}

TEST_CASE("an expert on its way can be evicted; what is under way still ends") {
    bench fixture;
    fixture.config.experts = 1;
    // The load of 0 sets out at 170. Token 1 wants the slot for 1, whose load has to wait for the
    // link until 11,170, after the end.
    const run_report report = fixture.run_it({0, 1});
    CHECK(report.experts.on_cpu == 2);
    CHECK(report.total_ms == doctest::Approx(1e-6 * 2 * 2680));
    CHECK(report.bytes.behind == 100'000);
    // With more tokens it is the last that was asked for that arrives: 1 sets out at 11,170 and is
    // there at 22,170, token 9 (gate at 24,290) has it.
    bench again;
    again.config.experts = 1;
    const run_report longer = again.run_it({0, 1, 1, 1, 1, 1, 1, 1, 1, 1});
    CHECK(longer.experts.hits == 1);
    CHECK(longer.experts.on_cpu == 9);
}

TEST_CASE("loads that have ended make room for others under way") {
    bench fixture;
    fixture.config.experts = 20;
    // Twenty experts, each asked for ten times in a row. A load of 11,000 ends within the 26,800 of
    // its tokens, so at most two are under way, and all twenty arrive.
    std::vector<uint16_t> experts;
    for (uint16_t expert = 0; expert < 20; ++expert) experts.insert(experts.end(), 10, expert);
    const run_report report = fixture.run_it(experts, 20);
    CHECK(report.bytes.behind == 20 * 100'000);
    CHECK(report.experts.misses == 20);
}

TEST_CASE("no load behind when none is allowed, or the cache refuses") {
    bench fixture;
    fixture.config.dispatch.params.push_back({"behind", int64_t{0}, "test"});
    const std::vector<uint16_t> tokens = {0, 0, 0};
    CHECK(fixture.run_it(tokens).bytes.behind == 0);
    fixture.config.dispatch.params.pop_back();
    fixture.config.cache.plugin = "static";
    fixture.config.cache.params = {{"which", "nothing", "test"}};
    CHECK(fixture.run_it(tokens).bytes.behind == 0);
}

}  // namespace load_behind_test
