// causes_test.cpp - goal: a run's time is split by cause, layer and phase, and all of it is there.
// Method: a schedule worked by hand on the toy machine. On the CPU, where the clock is real, only
// rules that hold at any speed.
#include <doctest/doctest.h>

#include <cmath>

#include "core/pipeline/run.h"
#include "tests/unit/toy_run.h"

namespace causes_test {

using namespace moorage::core;
using moorage::test::toy_run;

namespace {

time_causes sum_of(const run_report &report) {
    time_causes sum;
    for (const auto &layer : report.causes)
        for (const time_causes &phase : layer) sum += phase;
    return sum;
}

result<run_report> demo_on(const char *executor, const char *profile) {
    run_config config;
    config.file = "test.toml";
    config.model = std::filesystem::path(MOORAGE_SOURCE_DIR) / "configs/demo";
    config.executor = executor;
    config.profile = profile;
    config.experts = 24;
    config.prompts = {"To be"};
    config.max_tokens = 4;
    run_resources shared;
    const auto plugins = std::filesystem::path(MOORAGE_BINARY_DIR) / "plugins";
    if (const status found = shared.scan(std::vector{plugins}); !found) return found.failure();
    return run(config, shared, {});
}

}  // namespace

TEST_CASE("two layers, one miss each") {
    // Attention 170 a layer (20 computes), a load 11,000, an expert 100, the head 10.
    toy_run run;
    run.write(toy::routing({{{0}, {1}}}, 4, {0, 1}, false));
    run.config.cache.plugin = "lru";
    run.config.dispatch.plugin = "load_all";
    run.config.experts = 2;
    const run_report report = run.run_it();
    REQUIRE(report.causes.size() == 3);
    for (size_t layer = 0; layer < 2; ++layer) {
        CHECK(report.causes[layer][0].sum() == 0);
        CHECK(report.causes[layer][1].ns ==
              std::array<uint64_t, cause_count>{120, 150, 11'000, 0, 0, 0});
    }
    CHECK(report.causes[2][1].ns == std::array<uint64_t, cause_count>{10, 0, 0, 0, 0, 0});
    CHECK(sum_of(report).sum() == std::llround(report.total_ms * 1e6));
}

TEST_CASE("in real time what neither computes nor waits is the host's, and the sum is the clock") {
    const auto report = demo_on("cpu", "host");
    REQUIRE_MESSAGE(report.ok(), (report.ok() ? std::string() : report.failure().text));
    const time_causes causes = sum_of(*report);
    CHECK(causes[cause::compute] > 0);
    CHECK(causes[cause::host] > 0);
    CHECK(causes[cause::policy] > 0);
    double policies_ms = 0;
    for (const policy_time &policy : report->policy_times) policies_ms += policy.ms;
    CHECK(double(causes[cause::policy]) <= 1e6 * policies_ms + 1);
    CHECK(std::llabs(std::llround(report->total_ms * 1e6) - std::llround(double(causes.sum()))) <=
          1);
}

TEST_CASE("real tokens in virtual time: launches and links are told apart, the host takes none") {
    const auto report = demo_on("emulator", "rtx_4060_ti_16gb");
    REQUIRE_MESSAGE(report.ok(), (report.ok() ? std::string() : report.failure().text));
    const time_causes causes = sum_of(*report);
    CHECK(causes[cause::launch] > 0);
    CHECK(causes[cause::link] > 0);
    CHECK(causes[cause::host] == 0);
    CHECK(causes.sum() == std::llround(report->total_ms * 1e6));
}

}  // namespace causes_test
