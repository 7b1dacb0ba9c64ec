// pretended_causes_test.cpp - goal: all of a run's time on the GPU has a cause, and all waits are
// among them. Method: golden models over the pretended GPU whose runs must wait for the link, for
// the CPU or for the disk. The clock is real, so only rules that hold at any speed are checked.
#include <cmath>

#include "tests/gpu/pretended_run.h"

namespace pretended_causes_test {

using namespace moorage::test;

namespace {

time_causes causes_of(pretended_run &run, const pretended::settings &settings) {
    pretended::begin(settings);
    const auto report = run();
    REQUIRE_MESSAGE(report.ok(), (report ? "" : report.failure().text));
    time_causes total;
    for (const auto &layer : report->causes)
        for (const time_causes &phase : layer) total += phase;
    CHECK(std::llabs(std::llround(report->total_ms * 1e6) - std::llround(double(total.sum()))) <=
          1);
    CHECK(total[cause::compute] > 0);
    CHECK(total[cause::launch] > 0);
    CHECK(total[cause::host] > 0);
    CHECK(total[cause::policy] > 0);
    CHECK(total[cause::away] == 0);
    return total;
}

}  // namespace

TEST_CASE("links, the CPU and the disk are told apart, and the sum is the clock") {
    // If streams run ahead of the host, nothing is waited for.
    for (const pretended::order stream_order : {pretended::order::drawn, pretended::order::lazy}) {
        CAPTURE(static_cast<int>(stream_order));
        pretended_run run("olmoe");
        const time_causes loads = causes_of(run, {.stream_order = stream_order});
        CHECK(loads[cause::link] > 0);
        CHECK(loads[cause::cpu] == 0);
        CHECK(loads[cause::disk] == 0);
        run.config.dispatch.plugin = "cpu_all";
        CHECK(causes_of(run, {.stream_order = stream_order})[cause::cpu] > 0);
        run.config.dispatch.plugin = "load_all";
        run.read_disk();
        CHECK(causes_of(run, {.stream_order = stream_order})[cause::disk] > 0);
    }
}

}  // namespace pretended_causes_test
