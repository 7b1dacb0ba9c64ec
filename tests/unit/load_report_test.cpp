// load_report_test.cpp - goal: a load's report counts times from the planned send times, and gives
// the outcome of every request. Method: outcomes made by hand, with figures worked out in the
// comments.
#include <doctest/doctest.h>

#include "core/base/json.h"
#include "tools/node/load_report.h"
#include "core/report/figures.h"

namespace load_report_test {

using namespace moorage::core;

namespace {

constexpr uint64_t ms = 1'000'000;

node_plan plan_of_two() {
    node_plan plan;
    plan.servers = {{"one", {"a:1"}}, {"two", {"b:1"}}};
    return plan;
}

load_outcome answered(uint64_t sent_ms, uint64_t first_ms, uint64_t ended_ms, size_t tokens) {
    load_outcome outcome;
    outcome.end = load_end::answered;
    outcome.sent_ns = sent_ms * ms;
    outcome.first_ns = first_ms * ms;
    outcome.ended_ns = ended_ms * ms;
    outcome.written.assign(tokens, 3);
    return outcome;
}

json status_of(uint64_t calls, uint64_t activations, uint64_t elsewhere, uint64_t sent_bytes,
               uint64_t returned_bytes) {
    return {{"incarnation", 7},
            {"served", {{"calls", 5}}},
            {"called", {{"calls", calls}, {"activations", activations}, {"elsewhere", elsewhere}}},
            {"peers",
             {{{"server", "one"}},
              {{"server", "two"},
               {"called_us", 250 * calls},
               {"hidden_bytes", {{"there", sent_bytes}, {"back", returned_bytes}}}}}}};
}

}  // namespace

TEST_CASE("times count from when a request was due") {
    // Due at 0, 100, 200 ms at a home that stood still until 5,000 and then wrote three tokens in
    // 20 ms each. The last was even sent late. Latencies are 5,060, 5,020 and 4,980, not 60 each.
    const std::vector<load_request> requests = {
        {0, 0, {{1, 2}, 3}}, {0, 100 * ms, {{1, 2}, 3}}, {0, 200 * ms, {{1, 2}, 3}}};
    const std::vector<load_outcome> outcomes = {
        answered(0, 5020, 5060, 3), answered(100, 5080, 5120, 3), answered(4000, 5140, 5180, 3)};
    const run_report report = report_of(plan_of_two(), requests, outcomes, {});
    REQUIRE(report.cluster.has_value());
    CHECK(report.cluster->latency_ms.mean == doctest::Approx(5020));
    CHECK(report.cluster->latency_ms.p50 == doctest::Approx(5020));
    CHECK(report.cluster->latency_ms.p99 == doctest::Approx(5060));
    CHECK(report.ttft_ms.p99 == doctest::Approx(5020));
    CHECK(report.tpot_ms.mean == doctest::Approx(20));
    CHECK(report.requests == 3);
    CHECK(report.tokens == 12);  // two of the prompt and two of three written each
    CHECK(report.total_ms == doctest::Approx(5180));
    CHECK(summary_of(report).find("3 requests: 3 answered; sent ") == 0);
    CHECK((*report.config)["load"]["sent_late_ms"]["p99"] == doctest::Approx(3800));
}

TEST_CASE("those that were not answered are counted and named, and in no time") {
    const std::vector<load_request> requests(5, {1, 0, {{1}, 4}});
    std::vector<load_outcome> outcomes(5, answered(0, 10, 20, 1));
    outcomes[1].end = outcomes[2].end = load_end::refused;
    outcomes[1].text = outcomes[2].text = "busy: 9 requests wait already";
    outcomes[3].end = load_end::lost;
    outcomes[3].text = "the connection ended";
    outcomes[3].ended_ns = 900 * ms;
    outcomes[4] = {};
    const run_report report = report_of(plan_of_two(), requests, outcomes, {});
    CHECK(report.requests == 1);
    CHECK(report.cluster->latency_ms.p99 == doctest::Approx(20));
    const auto says = [&](const std::string &text) {
        return std::ranges::count(report.warnings, text) == 1;
    };
    CHECK(says("two: refused: busy: 9 requests wait already; 2 requests"));
    CHECK(says("two: lost: the connection ended; 1 request"));
    CHECK(says("two: stopped; 1 request"));
    CHECK(summary_of(report).find("5 requests: 1 answered, 2 refused, 1 lost, 1 stopped; sent ") ==
          0);
    const load_ends ends = ends_of(outcomes);
    CHECK(ends[0] + ends[1] + ends[2] + ends[3] + ends[4] + ends[5] == 5);
}

TEST_CASE("what nodes count is the difference of two looks") {
    load_seen seen;
    seen.start = {counts_of(status_of(10, 100, 40, 1000, 2000), 2), std::nullopt};
    seen.end = {counts_of(status_of(25, 300, 90, 1600, 5000), 2), std::nullopt};
    const run_report report =
        report_of(plan_of_two(), {{0, 0, {{1}, 1}}}, {answered(0, 1, 1, 1)}, seen);
    CHECK(report.cluster->calls == 15);
    CHECK(report.cluster->remote_call_ms == doctest::Approx(0.25));
    CHECK(report.experts.requested == 200);
    CHECK(report.experts.hits == 150);
    CHECK(report.cluster->local_ratio == doctest::Approx(0.75));
    CHECK(report.cluster->homes.front().local_ratio.value() == doctest::Approx(0.75));
    REQUIRE(report.cluster->links.size() == 2);
    CHECK(report.cluster->links[0].source == "one");
    CHECK(report.cluster->links[0].activation_bytes == 600);
    CHECK(report.cluster->links[1].source == "two");
    CHECK(report.cluster->links[1].activation_bytes == 3000);
    CHECK(report.bytes.network == 3600);
    // The other one says nothing.
    CHECK(report.warnings.size() == 1);
    // Started again meanwhile: its counts mean nothing.
    seen.end[0]->incarnation = 8;
    CHECK(report_of(plan_of_two(), {}, {}, seen).cluster->calls == 0);
}

TEST_CASE("what a load does not measure is null, and its experts add up") {
    load_seen seen;
    seen.start = {counts_of(status_of(10, 100, 40, 1000, 2000), 2), std::nullopt};
    seen.end = {counts_of(status_of(25, 300, 90, 1600, 5000), 2), std::nullopt};
    const run_report report =
        report_of(plan_of_two(), {{0, 0, {{1}, 1}}}, {answered(0, 1, 1, 1)}, seen);
    // 200 choices of tokens, of which 50 were computed elsewhere.
    const json document = to_json(report);
    CHECK(document["experts"]["hits"] == 150);
    CHECK(document["experts"]["misses"] == 50);
    CHECK(document["experts"]["remote"] == 50);
    CHECK(document["cluster"]["experts_ms_per_token"].is_null());
    CHECK(document["cluster"]["links"][0]["utilisation"].is_null());
    CHECK(document["cluster"]["latency_ms"]["mean"] == 1);
    const std::string text = to_text(report);
    CHECK(text.find("experts that tokens choose") != std::string::npos);
    CHECK(text.find("each once") == std::string::npos);
    // A home without a count has no share, rather than all of it.
    const run_report unknown =
        report_of(plan_of_two(), {{0, 0, {{1}, 1}}}, {answered(0, 1, 1, 1)}, load_seen{});
    CHECK(to_json(unknown)["cluster"]["homes"][0]["local_ratio"].is_null());
    CHECK(to_json(report)["cluster"]["homes"][0]["local_ratio"] == 0.75);
}

TEST_CASE("where nothing was answered there are no times") {
    const run_report report = report_of(plan_of_two(), {{0, 0, {{1}, 1}}}, {{}}, {});
    const json document = to_json(report);
    for (const char *figure : {"mean", "p50", "p99"}) {
        CHECK(document["tpot_ms"][figure].is_null());
        CHECK(document["ttft_ms"][figure].is_null());
        CHECK(document["cluster"]["latency_ms"][figure].is_null());
    }
    const std::string text = to_text(report);
    for (const char *line : {"TPOT        -\n", "TTFT        -\n", "latency     -\n"})
        CHECK_MESSAGE(text.find(line) != std::string::npos, text);
}

TEST_CASE("a status that is anything") {
    for (const char *text : {"null", "[]", "3", "{}", R"({"served": 3})", R"({"served": {},
             "called": [], "peers": {"a": 1}})",
                             R"({"served": {"calls": "x"}, "peers": [1, null,
             {"hidden_bytes": 3}, {"hidden_bytes": {"there": -1}}]})"}) {
        CAPTURE(text);
        const auto counts = counts_of(json::parse(text), 2);
        if (!counts) continue;
        CHECK(counts->calls == 0);
        CHECK(counts->servers == std::vector<node_counts::link_bytes>(2));
    }
}

}  // namespace load_report_test
