// Goal: the host's time inside policies is known by call, and on request passes in virtual time.
// Method: a declared price a call, which must lengthen the run by the price of its calls and
// nothing else; measured times as properties only; the program's answers on `help`.
#include <doctest/doctest.h>

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "core/base/json.h"
#include "core/base/text.h"
#include "core/report/figure_table.h"
#include "core/report/time_parts.h"
#include "tests/unit/program.h"
#include "tests/unit/toy_run.h"

namespace policy_time_test {

using namespace moorage::core;

namespace {

trace_data circle() {
    std::vector<std::vector<std::vector<uint16_t>>> chosen;
    for (uint16_t token = 0; token < 64; ++token)
        chosen.push_back({{static_cast<uint16_t>(token % 8)}});
    return toy::routing(chosen, 8, {0, 64}, false);
}

run_report run_charged(policy_charge charge, uint64_t call_ns = 1000) {
    moorage::test::toy_run fixture;
    fixture.write(circle());
    fixture.config.experts = 4;
    fixture.config.cache.plugin = "lru";
    fixture.config.policy_time = charge;
    fixture.config.policy_call_ns = call_ns;
    return fixture.run_it();
}

uint64_t calls_of(const run_report &report) {
    uint64_t calls = 0;
    for (const policy_time &policy : report.policy_times) calls += policy.calls;
    return calls;
}

time_causes causes_sum(const run_report &report) {
    const auto phases = causes_of(report);
    time_causes sum = phases[0];
    return sum += phases[1];
}

std::string refused(const std::string &section) {
    const auto config =
        parse_run_config("[emulator]\n" + section +
                             "\n[hardware]\nprofile = \"d\"\n[source]\n"
                             "trace = \"t\"\nshape = \"s\"\n[memory]\nexperts = 1\n",
                         "run.toml", {});
    return config ? "" : config.failure().text;
}

}  // namespace

TEST_CASE("a declared price a call is what the run takes longer") {
    const run_report plain = run_charged(policy_charge::none);
    CHECK(plain.policy_times.empty());
    CHECK(causes_sum(plain)[cause::policy] == 0);
    CHECK(to_json(plain)["shares"]["policies"].is_null());
    for (const uint64_t call_ns : {1'000u, 250'000u}) {
        const run_report charged = run_charged(policy_charge::declared, call_ns);
        CHECK(charged.experts.hits == plain.experts.hits);
        const uint64_t calls = calls_of(charged);
        REQUIRE(calls > 64);
        const double longer_ns = 1e6 * (charged.total_ms - plain.total_ms);
        const double all_ns = static_cast<double>(calls * call_ns);
        CHECK(longer_ns <= all_ns * 1.000001);
        CHECK(longer_ns >= all_ns - 12 * static_cast<double>(call_ns));  // after the last step
        const json report_json = to_json(charged);
        const time_causes waited = causes_sum(charged);
        CHECK(waited[cause::policy] == std::llround(longer_ns));
        CHECK(waited[cause::compute] == causes_sum(plain)[cause::compute]);
        CHECK(waited.sum() == std::llround(1e6 * charged.total_ms));
        CHECK(report_json["shares"]["policies"].get<double>() > 0);
        CHECK(report_json["policy_times"]["lru"].contains("cache victims"));
        CHECK(to_text(charged).find("of the time inside them: ") != std::string::npos);
    }
}

TEST_CASE("measured time passes, and is told by call") {
    const run_report plain = run_charged(policy_charge::none);
    const run_report charged = run_charged(policy_charge::measured);
    CHECK(charged.total_ms > plain.total_ms);
    CHECK(charged.tpot_ms.mean > plain.tpot_ms.mean);
    CHECK(calls_of(charged) == calls_of(run_charged(policy_charge::declared)));
    for (const policy_time &policy : charged.policy_times) CHECK(policy.ms >= 0);
}

TEST_CASE("keys of [emulator] are checked") {
    CHECK(refused("policy_time = \"sometimes\"").find("none, measured or declared") !=
          std::string::npos);
    CHECK(refused("policy_call_ns = 5").find("policy_time = \"declared\"") != std::string::npos);
    CHECK(refused("policy_times = \"none\"").find("policy_time") != std::string::npos);
    CHECK(refused("policy_time = \"declared\"\npolicy_call_ns = 5") == "");
}

TEST_CASE("figures are found by their names, whole or shortened") {
    CHECK(path_of_figure("tpot_ms") == "tpot_ms.mean");
    CHECK(path_of_figure("hit_rate") == "experts.hit_rate");
    CHECK(path_of_figure("layers.3.hit_rate") == "layers.*.hit_rate");
    CHECK(path_of_figure("h2d") == "bytes.h2d");
    CHECK_FALSE(path_of_figure("it_rate"));
    CHECK_FALSE(path_of_figure(""));
    REQUIRE(find_figure("layers.12.hit_rate") != nullptr);
    CHECK(find_figure("layers.12.hit_rate")->better == better_when::larger);
    CHECK(figure_text(figure_unit::share, 0.7125) == "71.2 %");
    CHECK(figure_text(figure_unit::ms, json()) == "-");
    // Each number of a report is one of them.
    const json report_json = to_json(run_charged(policy_charge::declared));
    for (const char *key : {"tokens", "tpot_ms", "warnings", "layers", "misfit", "policy_times"}) {
        CAPTURE(key);
        CHECK(report_json.contains(key));
        CHECK(path_of_figure(key));
    }
}

TEST_CASE("the program says what a figure means") {
    const moorage::test::program runner;
    const auto hit_rate_help = runner.run({"help", "hit_rate"});
    CHECK(hit_rate_help.code == 0);
    CHECK(
        hit_rate_help.output.starts_with("experts.hit_rate: hits divided by requested experts\n"));
    const auto figures_help = runner.run({"help", "figures"});
    CHECK(figures_help.code == 0);
    for (const auto &[path, figure] : all_figures())
        CHECK(figures_help.output.find(path) != std::string::npos);
    for (const std::string &line : split(figures_help.output, '\n')) CHECK(line.size() <= 80);
    constexpr std::pair<const char *, const char *> headings[] = {
        {"TPOT ms", "tpot_ms.mean: "},
        {"tpot", "tpot_ms.mean: "},
        {"TTFT", "ttft_ms.mean: "},
        {"hit rate", "experts.hit_rate: "},
        {"misses/OPT", "misses_over_optimum: "},
        {"wasted", "shares.wasted: "},
        {"late", "shares.late: "},
        {"latency", "cluster.latency_ms.mean: "},
        {"local", "cluster.local_ratio: "},
        {"change", "text.nll_change: "},
        {"x opt", "x opt: misses divided by "},
        {"moves", "moves: "},
        {"share", "share: share of all experts"},
        {"network", "network: part of a run's time"},
        {"LINK WAIT", "link wait: part of a run's time in which the device waits for transfers"},
        {"launches", "launches: part of a run's time"}};
    for (const auto &row : headings) {
        const std::string heading = row.first;
        const std::string part = row.second;
        CAPTURE(heading);
        const auto heading_help = runner.run({"help", heading});
        CHECK(heading_help.code == 0);
        CHECK(heading_help.output.find(part) != std::string::npos);
    }
    for (const auto &row : all_figures()) {
        const std::string_view label = row.second->label;
        CAPTURE(label);
        CHECK(path_of_label(label));
    }
    for (size_t i = 0; i < cause_count; ++i)
        CHECK(runner.run({"help", std::string(label_of(static_cast<cause>(i)))}).code == 0);
    const auto wrong = runner.run({"help", "hit_rat"});
    CHECK(wrong.code == 2);
    CHECK(wrong.says("hit_rate"));
}

}  // namespace policy_time_test
