// Goal: a run's figures come out right as JSON and text. Method: a report whose numbers allow every
// derived one to be worked out by hand, the contract's key order written out, and properties
// (width, equal bytes) over extreme reports.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "core/base/json.h"
#include "core/base/random.h"
#include "core/base/text.h"
#include "core/report/figures.h"
#include "core/report/report.h"

namespace report_test {

using namespace moorage::core;

namespace {

// 1000 tokens in 20 s: 25 % computing, 60 % waiting, 15 % launches, those of prefill. 8000 experts
// asked for, 6000 hit.
run_report hand_made() {
    run_report report;
    report.tokens = 1000;
    report.requests = 4;
    report.executor = "emulator";
    report.profile = "rtx3090";
    report.title = "a title";
    report.seed = 7;
    report.virtual_time = true;
    report.total_ms = 20000;
    report.tpot_ms = {20, 18.5, 44.25};
    report.ttft_ms = {1500, 1400, 2000};
    report.tokens_per_s = 50;
    report.experts = {.requested = 8000,
                      .hits = 6000,
                      .partial_hits = 100,
                      .misses = 1900,
                      .substituted = 3,
                      .on_cpu = 400,
                      .remote = 5,
                      .loaded = 1500};
    report.bytes = {.h2d = 2'000'000'000,
                    .d2h = 0,
                    .network = 0,
                    .prefetched = 400'000'000,
                    .prefetch_used = 300'000'000,
                    .prefetch_wasted = 100'000'000};
    report.time = {.compute = 5000, .transfer = 10000, .stall = 12000, .cpu = 1000, .policy = 0};
    report.causes.resize(3);
    report.causes[0][1][cause::compute] = 5'000'000'000;
    report.causes[1][1][cause::link] = 12'000'000'000;
    report.causes[2][0][cause::launch] = 3'000'000'000;
    report.has_predictions = true;
    report.predicted = 4000;
    report.predicted_right = 3000;
    for (uint64_t i = 0; i < 2; ++i) {
        layer_report layer;
        layer.experts = {.requested = 4000, .hits = 2000 + 2000 * i, .misses = 2000 - 2000 * i};
        layer.h2d_bytes = 1'000'000'000;
        layer.stall_ms = 4000 + 4000 * double(i);
        layer.slots = 16;
        layer.predicted = 2000 * i;
        layer.predicted_right = 1500 * i;
        report.layers.push_back(layer);
    }
    *report.config = {{"cache", {{"plugin", "lru"}}}};
    report.opt_misses = 1000;
    return report;
}

std::vector<std::string> keys_of(const json &object) {
    std::vector<std::string> keys;
    for (const auto &[key, value] : object.items()) keys.push_back(key);
    return keys;
}

using names = std::vector<std::string>;

// The first `count` keys: more may follow in the report, none may come between.
names first_keys(names keys, size_t count) {
    keys.resize(std::min(keys.size(), count));
    return keys;
}

bool fits(const std::string &text, size_t columns) {
    const std::vector<std::string> lines = split(text, '\n');
    return std::all_of(lines.begin(), lines.end(),
                       [&](const std::string &line) { return columns_of(line) <= columns; });
}

bool contains(const std::string &text, const std::string &part) {
    return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("summaries use the mean and nearest-rank percentiles") {
    time_collection none;
    CHECK(none.summary().mean == 0);
    CHECK(none.summary().p99 == 0);
    time_collection single;
    single.add(3'000'000);
    CHECK(single.summary().mean == 3);
    CHECK(single.summary().p50 == 3);
    CHECK(single.summary().p99 == 3);
    // Five values: rank 3 for 50 % (2.5 rounded up), rank 5 for 99 %.
    time_collection five;
    for (const uint64_t ms : {50, 10, 40, 20, 30}) five.add(ms * 1'000'000);
    const summary_ms of_five = five.summary();
    CHECK(of_five.mean == 30);
    CHECK(of_five.p50 == 30);
    CHECK(of_five.p99 == 50);
    // 1 to 200 ms: rank 100 and rank 198, not 99 and 199.
    time_collection many;
    for (uint64_t i = 200; i >= 1; --i) many.add(i * 1'000'000);
    const summary_ms of_many = many.summary();
    CHECK(of_many.mean == 100.5);
    CHECK(of_many.p50 == 100);
    CHECK(of_many.p99 == 198);
}

TEST_CASE("beyond what is kept the mean is exact and percentiles are near those of all values") {
    // Against a sorted copy; from nanoseconds to hours, so that every width of range has its turn.
    for (const uint64_t seed : {1, 2, 3}) {
        random_stream draw(seed, 0);
        time_collection times;
        std::vector<uint64_t> sorted;
        const size_t count = time_collection::exact_max + 1 + draw.below(50'000);
        uint128 sum = 0;
        for (size_t i = 0; i < count; ++i) {
            const uint64_t ns = draw.next() >> (22 + draw.below(seed == 1 ? 42 : 8));
            sorted.push_back(ns);
            times.add(ns);
            sum += ns;
        }
        std::sort(sorted.begin(), sorted.end());
        const summary_ms found = times.summary();
        CHECK(times.count() == count);
        CHECK(found.mean == doctest::Approx(double(sum) / double(count) / 1e6).epsilon(1e-12));
        for (const auto &[percent, ms] : {std::pair{50u, found.p50}, std::pair{99u, found.p99}}) {
            const double exact = double(sorted[(count * percent + 99) / 100 - 1]) / 1e6;
            CHECK(std::abs(ms - exact) <= exact / 4096);
        }
    }
    // Small values keep a range each.
    time_collection small;
    for (size_t i = 0; i < 2 * time_collection::exact_max; ++i) small.add(i % 4096);
    CHECK(small.summary().p50 == 2047 / 1e6);
    CHECK(small.summary().p99 == 4055 / 1e6);
}

TEST_CASE("counts add up and give a hit rate") {
    expert_counts sum{.requested = 8,
                      .hits = 6,
                      .partial_hits = 1,
                      .misses = 1,
                      .substituted = 2,
                      .on_cpu = 3,
                      .remote = 4,
                      .loaded = 5};
    CHECK(sum.hit_rate() == 0.75);
    sum += {.requested = 2,
            .hits = 0,
            .partial_hits = 10,
            .misses = 20,
            .substituted = 30,
            .on_cpu = 40,
            .remote = 50,
            .loaded = 60};
    CHECK(sum.requested == 10);
    CHECK(sum.hit_rate() == 0.6);
    CHECK(sum.partial_hits == 11);
    CHECK(sum.misses == 21);
    CHECK(sum.substituted == 32);
    CHECK(sum.on_cpu == 43);
    CHECK(sum.remote == 54);
    CHECK(sum.loaded == 65);
    CHECK(expert_counts{}.hit_rate() == 0);
}

TEST_CASE("JSON has the contract's keys in its order") {
    const json report = parse_json(to_json(hand_made()).dump());
    CHECK(first_keys(keys_of(report), 17) ==
          names{"tokens", "requests", "executor", "profile", "seed", "virtual_time", "tpot_ms",
                "ttft_ms", "tokens_per_s", "experts", "bytes", "time_ms", "prediction", "layers",
                "config", "faults", "title"});
    CHECK(keys_of(report["tpot_ms"]) == names{"mean", "p50", "p99"});
    CHECK(keys_of(report["ttft_ms"]) == names{"mean", "p50", "p99"});
    CHECK(keys_of(report["experts"]) == names{"requested", "hits", "partial_hits", "misses",
                                              "hit_rate", "substituted", "on_cpu", "remote",
                                              "loaded"});
    CHECK(keys_of(report["bytes"]) == names{"h2d", "d2h", "network", "prefetched", "prefetch_used",
                                            "prefetch_wasted", "behind", "first_fill", "refill",
                                            "prefetch_cut_off", "demand"});
    CHECK(keys_of(report["time_ms"]) == names{"compute", "transfer", "stall", "cpu", "policy"});
    CHECK(keys_of(report["prediction"]) == names{"accuracy"});
    CHECK(first_keys(keys_of(report["layers"][0]), 8) == names{"requested", "hits", "partial_hits",
                                                               "misses", "hit_rate", "h2d_bytes",
                                                               "stall_ms", "slots"});
}

TEST_CASE("JSON values are those of the report") {
    run_report source = hand_made();
    source.faults = {{"mine", 3}, {"lfu", 1}};
    source.warnings = {"small"};
    const json report = parse_json(to_json(source).dump());
    CHECK(report["tokens"] == 1000);
    CHECK(report["virtual_time"] == true);
    CHECK(report["tpot_ms"]["p99"] == 44.25);
    CHECK(report["ttft_ms"]["p50"] == 1400);
    CHECK(report["experts"]["hit_rate"] == 0.75);
    CHECK(report["experts"]["remote"] == 5);
    CHECK(report["bytes"]["prefetch_wasted"] == 100'000'000);
    CHECK(report["time_ms"]["stall"] == 12000);
    CHECK(report["prediction"]["accuracy"] == 0.75);
    REQUIRE(report["layers"].size() == 2);
    CHECK(report["layers"][0]["hit_rate"] == 0.5);
    CHECK(report["layers"][1]["hit_rate"] == 1);
    CHECK(report["layers"][1]["stall_ms"] == 8000);
    CHECK(report["layers"][1]["prediction_accuracy"] == 0.75);
    // This layer never had a prediction, so there is nothing to be accurate about.
    CHECK(report["layers"][0]["prediction_accuracy"].is_null());
    CHECK(report["config"]["cache"]["plugin"] == "lru");
    CHECK(report["faults"] == json{{"lfu", 1}, {"mine", 3}});
    CHECK(report["opt_misses"] == 1000);
    CHECK(report["warnings"] == json{"small"});
}

TEST_CASE("what was not measured is null or empty, not zero of something") {
    run_report source = hand_made();
    source.has_predictions = false;
    source.opt_misses = 0;
    *source.config = nullptr;
    const json report = to_json(source);
    CHECK(report["prediction"]["accuracy"].is_null());
    CHECK(report["opt_misses"].is_null());
    CHECK(report["config"] == json::object());
    CHECK(report["faults"] == json::object());
    CHECK(to_json(run_report{})["layers"] == json::array());
}

TEST_CASE("perplexity is e to the mean loss") {
    text_report text;
    text.nll = 2;
    text.own_nll = 1.5;
    CHECK(text.perplexity() == doctest::Approx(7.38905609893));
    CHECK(text.nll_change() == doctest::Approx(0.5));
}

TEST_CASE("the last bits of a sum do not reach the bytes") {
    run_report left = hand_made(), right = hand_made();
    left.time.compute = 0.1 + 0.2 + 0.3;   // 0.6000000000000001
    right.time.compute = 0.3 + 0.2 + 0.1;  // 0.6
    left.time.policy = -0.0;
    REQUIRE(left.time.compute != right.time.compute);
    CHECK(to_json(left).dump() == to_json(right).dump());
    CHECK(to_json(left)["time_ms"]["compute"] == 0.6);
    // But a nanosecond does.
    right.time.compute += 1e-6;
    CHECK(to_json(left).dump() != to_json(right).dump());
}

TEST_CASE("text shows the figures worked out by hand") {
    run_report source = hand_made();
    source.faults = {{"mine", 2}};
    source.warnings = {"the cache is small"};
    const std::string text = to_text(source);
    CAPTURE(text);
    CHECK(text.starts_with("a title\n1,000 tokens of 4 requests, emulator, rtx3090, seed 7"));
    CHECK(contains(text, "mean 20.0 ms"));
    CHECK(contains(text, "p99 44.2 ms"));
    CHECK(contains(text, "mean 1.50 s"));
    CHECK(contains(text, "50.0 tokens/s"));
    CHECK(contains(text, "75.0 % of 8,000 experts"));
    CHECK(contains(text, "6,000 hits, 100 partial hits, 1,900 misses, 1,500 loaded"));
    CHECK(contains(text, "1,000 misses offline; this run has 1.90 times as many"));
    CHECK(contains(text, "2.00 GB to the GPU (2.00 MB a token)"));
    CHECK(contains(text, "400 MB moved ahead, 75.0 % used, 25.0 % wasted"));
    CHECK(contains(text, "75.0 % of the experts asked for were among the first predicted"));
    // 5000, 12000 and 10000 of 20000 ms; 20 ms a token.
    CHECK(contains(text, "20.0 ms a token"));
    CHECK(contains(text, "computing   ██████████ "));
    CHECK(contains(text, "25.0 %    5.00 ms"));
    CHECK(contains(text, "60.0 %    12.0 ms"));
    CHECK(contains(text, "15.0 %    3.00 ms"));
    CHECK_FALSE(contains(text, "disk wait"));
    CHECK(contains(text, "prefill     15.0 % of it: launches and synchronises 100.0 %"));
    CHECK(
        contains(text, "decode      85.0 % of it: waits for transfers 70.6 % and computes 29.4 %"));
    CHECK(contains(text, "meanwhile   the link is busy 50.0 % and the CPU computes 5.0 %"));
    CHECK(contains(text, "hit rate    ▅█\n"));  // 0.5 of 7 steps is 3.5, rounded up; 1
    CHECK(contains(text, "50.0 % in layer 0 to 100.0 % in layer 1"));
    CHECK(contains(text, "fault: plugin mine broke the rules 2 times"));
    CHECK(contains(text, "warning: the cache is small"));
    CHECK(fits(text, 80));
}

TEST_CASE("text leaves out what was not there") {
    run_report source = hand_made();
    source.has_predictions = false;
    source.opt_misses = 0;
    source.bytes.prefetched = 0;
    source.time.cpu = 0;
    const std::string text = to_text(source);
    CHECK_FALSE(contains(text, "optimum"));
    CHECK_FALSE(contains(text, "prefetch"));
    CHECK_FALSE(contains(text, "prediction"));
    CHECK_FALSE(contains(text, "CPU experts"));
    CHECK_FALSE(contains(text, "warning"));
}

TEST_CASE("text keeps to 80 columns whatever the figures") {
    run_report source = hand_made();
    const uint64_t most = std::numeric_limits<uint64_t>::max();
    source.tokens = source.requests = source.seed = most;
    source.title = std::string(300, 'x');
    source.profile = std::string(120, 'y');
    source.experts = {most, most, most, most, most, most, most, most};
    source.bytes = {most, most, most, most, most, most};
    source.opt_misses = most;
    source.warnings = {std::string(200, 'z') + " and more words after a word too long for a line"};
    source.faults[std::string(100, 'p')] = most;
    source.layers.assign(400, source.layers.front());
    CHECK(fits(to_text(source), 80));
    CHECK(fits(to_text(run_report{}), 80));
}

TEST_CASE("figures are written with three digits and their unit") {
    CHECK(with_commas(0) == "0");
    CHECK(with_commas(999) == "999");
    CHECK(with_commas(1000) == "1,000");
    CHECK(with_commas(1234567) == "1,234,567");
    CHECK(human_ms(0) == "0 ms");
    CHECK(human_ms(0.000999) == "999 ns");
    CHECK(human_ms(0.0123) == "12.3 us");
    CHECK(human_ms(0.9996) == "1.00 ms");
    CHECK(human_ms(12.34) == "12.3 ms");
    CHECK(human_ms(999.6) == "1.00 s");
    CHECK(human_ms(95123) == "95.1 s");
    CHECK(three_digits(0) == "0");
    CHECK(three_digits(0.012345) == "0.0123");
    CHECK(three_digits(12345.6) == "12346");
    CHECK(percent(1, 3) == "33.3 %");
    CHECK(percent(1, 0) == "-");
}

TEST_CASE("text is measured, cut and wrapped by code points") {
    CHECK(columns_of("▁█é") == 3);
    CHECK(shortened("abcdef", 6) == "abcdef");
    CHECK(shortened("abcdef", 4) == "abc…");
    CHECK(shortened("éééé", 3) == "éé…");
    CHECK(padded_left("é", 3) == "  é");
    CHECK(padded_right("é", 3) == "é  ");
    CHECK(wrapped("one two three", 7) == std::vector<std::string>{"one two", "three"});
    CHECK(wrapped("abcdefgh ij", 3) == std::vector<std::string>{"abc", "def", "gh", "ij"});
    CHECK(wrapped("", 10) == std::vector<std::string>{""});
    // A number and its unit stay together.
    CHECK(wrapped("takes 12.5 %, or 3 s", 10) ==
          std::vector<std::string>{"takes", "12.5 %, or", "3 s"});
    CHECK(wrapped("of 12 sets 7 ms", 5) == std::vector<std::string>{"of 12", "sets", "7 ms"});
}

TEST_CASE("bars and lines of blocks are in proportion") {
    CHECK(block_bar(0, 4) == "");
    CHECK(block_bar(0.5, 4) == "██");
    CHECK(block_bar(1.0 / 32, 4) == "▏");
    CHECK(block_bar(7, 2) == "██");
    const std::vector<double> values = {0, 1, 2, 4};
    CHECK(spark_line(values, 4, 10) == "▁▃▅█");  // 0, 1.75, 3.5 and 7 of 7 steps, rounded
    CHECK(spark_line(values, 4, 2) == "▂▆");     // means 0.5 and 3: 0.875 and 5.25 steps
    CHECK(spark_line(values, 0, 10) == "▁▁▁▁");
}

TEST_CASE("a time of nothing is none") {
    run_report report;
    report.tokens = 1;
    report.ttft_ms = {3, 3, 3};  // a request's first token, and no other
    const json figures = to_json(report);
    for (const char *key : {"mean", "p50", "p99"}) {
        CHECK(figures["tpot_ms"][key].is_null());
        CHECK(figures["ttft_ms"][key] == 3);
    }
    CHECK(contains(to_text(report), "TPOT        -\n"));
    CHECK(contains(to_text(report), "TTFT        mean 3.00 ms"));
}

}  // namespace report_test
