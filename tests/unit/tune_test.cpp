// Goal: tune answers with values that were run, finds the edge of the values that meet the targets,
// and never answers a value that does not fit or is worse than one it has seen. Method: planted
// figures of one and several parameters, whose answers follow by hand or from a search of every
// value; the program on traces where the figure is known to rise or fall with the parameter.
#include <doctest/doctest.h>

#include <cmath>
#include <functional>

#include "core/base/json.h"
#include "core/base/random.h"
#include "core/base/text.h"
#include "core/report/figures.h"
#include "tools/comparison/frontier.h"
#include "tools/comparison/tuning.h"
#include "tests/unit/program.h"

namespace tune_test {

using namespace moorage::core;

namespace {

metric_target target(const std::string &text) {
    const auto parsed = parse_target(text);
    if (!parsed) FAIL(parsed.failure().text);
    return *parsed;
}

// Text without its line breaks.
std::string unwrap(const std::string &text) {
    std::string result;
    for (const char c : text)
        if (c != ' ' && c != '\n')
            result += c;
        else if (!result.ends_with(' '))
            result += ' ';
    return result;
}

tuned_param number_param(const std::string &name, double low, double high, double step = 1) {
    return {.name = name, .grid = {low, high, step, step == 1}};
}

// The result of a run at a point: a figure for each target, none if the run fails.
using figure_model = std::function<std::vector<double>(const tuned_point &)>;

struct search_run {
    tuning found;
    size_t runs = 0;
    size_t again = 0;  // points that were run twice
};

search_run run_search(std::vector<tuned_param> params, const std::string &targets,
                      const figure_model &figures, search_limits limits = {},
                      double fits_to = INFINITY) {
    search_run search;
    search.found.params = std::move(params);
    search.found.targets = *parse_targets(targets);
    std::vector<tuned_point> seen;
    const run_points run = [&](std::span<const tuned_point> points) -> result<std::vector<trial>> {
        std::vector<trial> trials;
        for (const tuned_point &point : points) {
            search.again += std::ranges::find(seen, point) != seen.end();
            seen.push_back(point);
            ++search.runs;
            trials.push_back({point, figures(point), point[0] > fits_to ? "too much" : ""});
            if (trials.back().figures.empty()) search.found.failed.emplace_back();
        }
        return trials;
    };
    const status done = search_values(search.found, run, limits);
    if (!done) FAIL(done.failure().text);
    CHECK(search.again == 0);
    CHECK(search.runs == search.found.trials.size());
    return search;
}

double chosen_value(const search_run &search) {
    REQUIRE(search.found.chosen.has_value());
    return search.found.trials[*search.found.chosen].point[0];
}

}  // namespace

TEST_CASE("the smallest value that meets the target, to the last one") {
    // 1000 / x <= 30 from 33.3 on.
    const search_run falling =
        run_search({number_param("n", 1, 1440)}, "tpot_ms=30",
                   [](const tuned_point &point) { return std::vector<double>{1000 / point[0]}; });
    CHECK(chosen_value(falling) == 34);
    CHECK(falling.found.params[0].prefer == preference::smallest);
    CHECK(falling.runs <= 6 + 2 * 6);  // thirds of a gap of 288: 96, 32, 11, 4, 2, 1
    // More of it makes the figure worse: the largest.
    const search_run rising =
        run_search({number_param("n", 0, 1000)}, "tpot_ms=30",
                   [](const tuned_point &point) { return std::vector<double>{point[0] / 10}; });
    CHECK(chosen_value(rising) == 300);
    CHECK(rising.found.params[0].prefer == preference::largest);
    tuned_param least = number_param("n", 0, 1000);
    least.prefer = preference::smallest;
    CHECK(chosen_value(run_search({least}, "tpot_ms=30", [](const tuned_point &point) {
              return std::vector<double>{point[0] / 10};
          })) == 0);
    // A share, in hundredths: 10 - 4 a <= 8.3 from 0.425 on.
    CHECK(chosen_value(run_search({number_param("a", 0, 1, 0.01)}, "tpot_ms=8.3",
                                  [](const tuned_point &point) {
                                      return std::vector<double>{10 - 4 * point[0]};
                                  })) == 0.43);
}

TEST_CASE("what does not fit is no answer") {
    // 30 ms would need 632 to 1440; of them 656 fit. No sample (1, 288, 576, 864, ...) meets it and
    // fits.
    const figure_model time = [](const tuned_point &point) {
        return std::vector<double>{18960 / point[0]};
    };
    const search_run found = run_search({number_param("n", 1, 1440)}, "tpot_ms=30", time, {}, 656);
    CHECK(chosen_value(found) == 632);
    // Nothing that fits is fast enough.
    const search_run none = run_search({number_param("n", 1, 1440)}, "tpot_ms=25", time, {}, 656);
    CHECK_FALSE(none.found.chosen.has_value());
    REQUIRE(none.found.best().has_value());
    CHECK(none.found.trials[*none.found.best()].point[0] == 656);
    CHECK(to_json(none.found)["chosen"].is_null());
    CHECK(to_text(none.found).find("does not fit") != std::string::npos);
}

TEST_CASE("the best value where a figure has several valleys") {
    // Valleys of depth 5 at 200 and 4 at 700; samples at 0, 166, 333, 500, 666, 833, 1000.
    const figure_model figure = [](const tuned_point &point) {
        return std::vector<double>{10 - 5 * std::exp(-std::pow((point[0] - 200) / 60, 2)) -
                                   4 * std::exp(-std::pow((point[0] - 700) / 60, 2))};
    };
    CHECK(chosen_value(
              run_search({number_param("n", 0, 1000)}, "tpot_ms", figure, {.samples = 7})) == 200);
    // Only the valley meets the bound; its edge is where 10 - 5 exp(-u^2) = 5.5, u = 0.3246:
    // 180.53.
    const search_run bound =
        run_search({number_param("n", 0, 1000)}, "tpot_ms=5.5", figure, {.samples = 7});
    CHECK(chosen_value(bound) >= 181);
    CHECK(bound.found.trials[*bound.found.chosen].figures[0] <= 5.5);
}

TEST_CASE("never worse than its own samples, whatever the figure") {
    random_stream random(15, 3);
    for (uint32_t round = 0; round < 200; ++round) {
        std::vector<double> figures;
        for (int i = 0; i <= 60; ++i) figures.push_back(5 + 10 * random.unit());
        const double limit = 5 + 10 * random.unit();
        tuned_param param = number_param("n", 0, 60);
        param.prefer = preference::smallest;
        const search_run search =
            run_search({param}, format("tpot_ms={}", limit), [&](const tuned_point &point) {
                return std::vector<double>{figures[static_cast<size_t>(point[0])]};
            });
        const tuning &found = search.found;
        for (const trial &tried : found.trials) {
            if (!found.meets(tried)) continue;
            REQUIRE(found.chosen.has_value());
            CHECK(found.trials[*found.chosen].point[0] <= tried.point[0]);
        }
        if (found.chosen) CHECK(found.trials[*found.chosen].figures[0] <= limit);
        // The value before the answer was run, or is the smallest of all, where samples met it.
        if (found.chosen && found.trials[*found.chosen].point[0] > 0 && !found.stopped) {
            const double previous = found.trials[*found.chosen].point[0] - 1;
            CHECK(std::ranges::any_of(
                found.trials, [&](const trial &tried) { return tried.point[0] == previous; }));
        }
    }
}

TEST_CASE("figures that rise or fall: the same as a search of every value") {
    random_stream random(15, 4);
    for (uint32_t round = 0; round < 200; ++round) {
        std::vector<double> figures = {20 * random.unit()};
        const bool falls = random.unit() < 0.5;
        for (int i = 1; i <= 400; ++i)
            figures.push_back(figures.back() + (falls ? -1 : 1) * random.unit() * random.unit());
        const double limit = figures[0] + (figures.back() - figures[0]) * random.unit();
        const search_run search =
            run_search({number_param("n", 0, 400)}, format("tpot_ms={:.17g}", limit),
                       [&](const tuned_point &point) {
                           return std::vector<double>{figures[static_cast<size_t>(point[0])]};
                       });
        double expected = -1;
        for (int i = 0; i <= 400; ++i)
            if (figures[size_t(i)] <= limit && (expected < 0 || !falls)) expected = i;
        CHECK(chosen_value(search) == expected);
    }
}

TEST_CASE("several parameters and targets") {
    // Words have figures of their own, a number adds to them: 20 / n of b, 40 / n of a.
    const tuned_param words{.name = "p", .words = {"a", "b", "c"}};
    const figure_model figures = [](const tuned_point &point) {
        const double factor = point[1] == 0 ? 40 : point[1] == 1 ? 20 : 60;
        return std::vector<double>{factor / point[0], 5 + point[0] / 100};
    };
    // b: 20 / n <= 0.5 from 40 on; quality 5 + n / 100 <= 5.5 up to 50.
    const search_run found =
        run_search({number_param("n", 1, 200), words}, "tpot_ms<=0.5,perplexity<=5.5", figures);
    REQUIRE(found.found.chosen.has_value());
    const trial &chosen = found.found.trials[*found.found.chosen];
    CHECK(chosen.point[0] == 40);
    CHECK(chosen.point[1] == 1);
    // Both at once cannot be: 20 / n <= 0.3 from 67 on.
    CHECK_FALSE(
        run_search({number_param("n", 1, 200), words}, "tpot_ms<=0.3,perplexity<=5.5", figures)
            .found.chosen.has_value());
    // As fast as quality allows: n = 50 of b.
    const search_run goal =
        run_search({number_param("n", 1, 200), words}, "tpot_ms,perplexity<=5.5", figures);
    REQUIRE(goal.found.chosen.has_value());
    CHECK(goal.found.trials[*goal.found.chosen].point == tuned_point{50, 1});
    // Words alone are all run, once.
    CHECK(run_search({words}, "tpot_ms", [](const tuned_point &point) {
              return std::vector<double>{point[0] == 2 ? 1.0 : 2.0};
          }).runs == 3);
}

TEST_CASE("failed runs are no answer, and the number of runs is bounded") {
    const search_run search =
        run_search({number_param("n", 1, 100)}, "tpot_ms=50", [](const tuned_point &point) {
            return point[0] < 40 ? std::vector<double>() : std::vector<double>{100 - point[0]};
        });
    CHECK(chosen_value(search) == 50);
    CHECK(search.found.failed.size() > 0);
    const search_run few =
        run_search({number_param("n", 0, 100000)}, "tpot_ms=50",
                   [](const tuned_point &point) { return std::vector<double>{100000 - point[0]}; },
                   {.samples = 6, .runs_max = 9});
    CHECK(few.runs == 9);
    CHECK(few.found.stopped);
    CHECK_FALSE(run_search({number_param("n", 1, 10)}, "tpot_ms=50",
                           [](const tuned_point &) { return std::vector<double>(); })
                    .found.best()
                    .has_value());
}

TEST_CASE("values of a grid") {
    const std::vector<double> values = value_grid{1, 200, 7, true}.values();
    CHECK(values.front() == 1);
    CHECK(values[1] == 8);
    CHECK(values.back() == 200);  // the largest, though 1 + 28 * 7 = 197
}

TEST_CASE("what nothing beats, against every pair") {
    random_stream random(15, 5);
    for (uint32_t round = 0; round < 100; ++round) {
        tuning search{.params = {number_param("n", 0, 9)}, .targets = {target("tpot_ms")}};
        for (int i = 0; i < 12; ++i)
            search.trials.push_back({{double(random.below(10))},
                                     {double(random.below(6))},
                                     random.unit() < 0.2 ? "too much" : ""});
        const std::vector<size_t> front = pareto_set(search);
        for (size_t i = 0; i < search.trials.size(); ++i) {
            const auto beats = [&](const trial &a, const trial &b) {
                return a.counts() && a.point[0] <= b.point[0] && a.figures[0] <= b.figures[0] &&
                       (a.point[0] < b.point[0] || a.figures[0] < b.figures[0]);
            };
            const bool beaten = std::ranges::any_of(
                search.trials, [&](const trial &rival) { return beats(rival, search.trials[i]); });
            const bool on_frontier = std::ranges::find(front, i) != front.end();
            CHECK(on_frontier == (search.trials[i].counts() && !beaten));
        }
    }
}

TEST_CASE("a frontier runs where the curve bends") {
    tuning search{.params = {number_param("n", 0, 1000)}, .targets = {target("tpot_ms")}};
    const run_points run = [](std::span<const tuned_point> points) -> result<std::vector<trial>> {
        std::vector<trial> trials;
        for (const tuned_point &point : points)
            trials.push_back({point, {point[0] < 700 ? 10.0 : 1.0}, ""});
        return trials;
    };
    REQUIRE(trace_frontier(search, run, {.samples = 5, .runs_max = 24}).ok());
    CHECK(search.trials.size() == 24);
    const std::vector<size_t> front = pareto_set(search);
    REQUIRE(front.size() == 2);
    CHECK(search.trials[front[0]].point[0] == 0);
    CHECK(search.trials[front[1]].point[0] >= 700);
    CHECK(search.trials[front[1]].point[0] < 710);  // the step was followed
    const std::string text = frontier_text(search);
    for (const std::string &line : split(text, '\n')) CHECK(columns_of(line) <= 80);
    CHECK(frontier_json(search)["frontier"].size() == 2);
    CHECK(frontier_json(search)["frontier"][1]["figures"]["tpot_ms"] == 1);
    CHECK(frontier_html(search).find("\"frontier\":[{") != std::string::npos);
}

TEST_CASE("targets") {
    CHECK_FALSE(target("tpot_ms=20").at_least);
    CHECK(target("hit_rate=0.8").at_least);
    CHECK(target("experts.hit_rate = 0.8").at_least);
    CHECK_FALSE(target("hit_rate<=0.8").at_least);
    CHECK(target("bytes.h2d>=1e6").at_least);
    CHECK(*target("bytes.h2d>=1e6").value == 1e6);
    const auto several = parse_targets("tpot_ms<=30, perplexity=6.4,hits");
    REQUIRE(several.ok());
    REQUIRE(several->size() == 3);
    CHECK((*several)[1].text() == "perplexity <= 6.4");
    CHECK((*several)[2].at_least);
    CHECK_FALSE(parse_targets("tpot_ms<=30,tpot_ms<=20").ok());
    // 33 is a tenth beyond 30; 0.6 a quarter below 0.8.
    CHECK(target("tpot_ms=30").missed_by(33) == doctest::Approx(0.1));
    CHECK(target("hit_rate=0.8").missed_by(0.6) == doctest::Approx(0.25));
    CHECK(target("tpot_ms=30").missed_by(30) == 0);
    CHECK(target("tpot_ms").missed_by(1e9) == 0);
    CHECK(target("tokens_per_s=5").text() == "tokens_per_s >= 5");
    CHECK_FALSE(target("tpot_ms").value.has_value());
    CHECK(target("tpot_ms").text() == "smallest tpot_ms");
    CHECK(target("hit_rate").text() == "largest hit_rate");
    for (const char *wrong : {"", "=5", "tpot_ms=", "tpot_ms=fast", "tpot_ms=5 ms", "tpot_ms<5",
                              "tpot_ms=inf", "<=5", "tpot_ms=nan", "tpot_ms>"}) {
        CAPTURE(wrong);
        const auto parsed = parse_target(wrong);
        REQUIRE_FALSE(parsed.ok());
        CHECK(parsed.failure().usage);
    }
}

TEST_CASE("figures of a report by name") {
    run_report report;
    report.tpot_ms = {20, 18.5, 44.25};
    report.experts.requested = 10;
    report.experts.hits = 4;
    report.bytes.h2d = 1000;
    report.layers.resize(2);
    report.layers[1].experts = {.requested = 4, .hits = 3};
    json report_json = to_json(report);
    const auto figure = [&](const std::string &name) {
        const auto found = figure_of(report_json, name);
        if (!found) FAIL(found.failure().text);
        return *found;
    };
    CHECK(figure("tpot_ms") == 20);
    CHECK(figure("tpot_ms.p99") == 44.25);
    CHECK(figure("hit_rate") == 0.4);
    CHECK(figure("experts.hits") == 4);
    CHECK(figure("bytes.h2d") == 1000);
    CHECK(figure("h2d") == 1000);
    CHECK(figure("layers.1.hit_rate") == 0.75);
    const auto refused = [&](const std::string &name) {
        const auto found = figure_of(report_json, name);
        REQUIRE_FALSE(found.ok());
        return found.failure().text;
    };
    CHECK(refused("tpot_mss").find("did you mean tpot_ms") != std::string::npos);
    CHECK(refused("layers.2.hit_rate").find("no figure") != std::string::npos);
    CHECK(refused("accuracy").find("not measured") != std::string::npos);
    CHECK(refused("ttft_ms").find("was not measured") != std::string::npos);
    CHECK(refused("perplexity").find("text") != std::string::npos);
    CHECK(refused("executor").find("no figure") != std::string::npos);
    report.text.model = "demo";
    report.text.scored = 2;
    report.text.nll = std::log(7);
    report_json = to_json(report);
    CHECK(figure("perplexity") == doctest::Approx(7));
}

TEST_CASE("text and JSON of a search") {
    search_run search =
        run_search({number_param("router.alpha", 0, 1, 0.1)}, "tpot_ms=8",
                   [](const tuned_point &point) { return std::vector<double>{10 - 4 * point[0]}; });
    const json search_json = to_json(search.found);
    CHECK(search_json["chosen"]["value"] == 0.5);
    CHECK(search_json["chosen"]["measured"] == 8);
    CHECK(search_json["chosen"]["values"]["router.alpha"] == 0.5);
    CHECK(search_json["met"] == true);
    CHECK(search_json["prefer"] == "smallest");
    CHECK(search_json["samples"][0]["value"] == 0);
    CHECK(search_json["samples"][0]["met"] == false);
    const std::string text = unwrap(to_text(search.found));
    CHECK(text.find("router.alpha = 0.5, the smallest value from 0 to 1 by 0.1 that meets tpot_ms "
                    "<= 8: tpot_ms 8; 0.4 gives tpot_ms 8.4") != std::string::npos);
    search.found.params[0].name = std::string(60, 'p') + ".k";
    for (const std::string &line : split(to_text(search.found), '\n'))
        CHECK(columns_of(line) <= 80);
}

TEST_CASE("a star is at what meets a bound, and at the best where there is none") {
    const auto stars = [](const char *target) {
        const search_run search =
            run_search({number_param("router.alpha", 0, 1, 0.5)}, target,
                       [](const auto &point) { return std::vector<double>{10 - 4 * point[0]}; });
        std::vector<std::string> values;
        for (const std::string &line : split(to_text(search.found), '\n'))
            if (line.ends_with(" *")) values.push_back(line.substr(0, line.find(' ', 2)));
        return values;
    };
    CHECK(stars("tpot_ms=8") == std::vector<std::string>{"  0.5", "  1"});
    CHECK(stars("tpot_ms") == std::vector<std::string>{"  1"});
}

namespace {

const std::filesystem::path binaries = MOORAGE_BINARY_DIR;

// One layer of 8 experts, asked for in a circle. An LRU cache of less than 8 hits nothing. The
// substituting router takes the smallest experts, which are soon all there.
struct bench {
    toy::folder folder;

    bench() {
        std::vector<std::vector<std::vector<uint16_t>>> chosen;
        for (uint16_t token = 0; token < 64; ++token)
            chosen.push_back({{static_cast<uint16_t>(token * 5 % 8)}});
        const trace_data data = toy::routing(chosen, 8, {0, 64}, false);
        toy::write_files(folder, 1, 8, 1);
        REQUIRE(write_trace(data, folder / "trace.safetensors").ok());
        folder.write("run.toml",
                     "[hardware]\nprofile = \"device.toml\"\nlink = \"link.toml\"\n"
                     "node = \"node.toml\"\n[source]\ntrace = \"trace.safetensors\"\n"
                     "shape = \"shape.toml\"\n[memory]\nexperts = 4\n[cache]\nplugin = \"random\"\n"
                     "[plugins]\npath = [\"" +
                         (binaries / "tests/policies/substitute.so").string() + "\"]\n");
    }
    moorage::test::program_result tune(const std::string &arguments) const {
        return moorage::test::run_line("tune " + (folder / "run.toml").string() + " " + arguments,
                                       (folder / "errors").string());
    }
    json figures(const std::string &arguments, int code = 0) const {
        const moorage::test::program_result result = tune(arguments + " --json -");
        CAPTURE(arguments);
        CAPTURE(result.errors);
        REQUIRE(result.code == code);
        const json parsed = json_or_discarded(result.output);
        REQUIRE_FALSE(parsed.is_discarded());
        return parsed;
    }
};

}  // namespace

TEST_CASE("the program: how many experts for a hit rate") {
    const bench fixture;
    const json found = fixture.figures("--param memory.experts --target hit_rate=0.5 --samples 8");
    CHECK(found["samples"].size() == 8);
    CHECK(found["samples"][0]["value"] == 1);
    CHECK(found["samples"][7]["value"] == 8);
    CHECK(found["samples"][7]["measured"] == 56.0 / 64);  // all but the first of each
    for (const json &sample : found["samples"])
        if (sample["met"] == true) CHECK(found["chosen"]["value"] <= sample["value"]);
    CHECK(found["prefer"] == "smallest");
    CHECK(found["met"] == true);
    const auto chosen = found["chosen"]["value"].get<double>();
    CHECK(chosen == std::round(chosen));
    CHECK(found["chosen"]["measured"] >= 0.5);
    CHECK(found["report"]["config"]["memory"]["experts"] == chosen);
    CHECK(found["report"]["experts"]["hit_rate"] == found["chosen"]["measured"]);
    const moorage::test::program_result text =
        fixture.tune("--param memory.experts --target hit_rate=0.5 --samples 8");
    CHECK(text.code == 0);
    CHECK(unwrap(text.output)
              .find("the smallest value from 1 to 8 by 1 that meets hit_rate >= "
                    "0.5") != std::string::npos);
    const json &memory = found["report"]["config"]["memory"];
    CHECK(unwrap(text.output)
              .find(format("{} of all 8 experts, {}; for cache policy random", percent(chosen, 8),
                           human_bytes(memory["bytes"].get<double>()))) != std::string::npos);
    for (const std::string &line : split(text.output, '\n')) CHECK(columns_of(line) <= 80);
}

TEST_CASE("the program: bounds of a range have units, those of experts are shares of all") {
    const bench fixture;
    // There are 8 experts: 25 % are 2, 87.5 % are 7.
    const auto samples = [&](const std::string &range) {
        return fixture.figures("--param " + range + " --target hit_rate --samples 3")["samples"];
    };
    CHECK(samples("memory.experts=25%:87.5%") == samples("memory.experts=2:7"));
    CHECK(samples("memory.split=50%:100%") == samples("memory.split=0.5:1"));
    const moorage::test::program_result wrong =
        fixture.tune("--param memory.bytes=1:2GBs --target hit_rate");
    CHECK(wrong.code == 2);
    CHECK(wrong.errors.find("did you mean GB") != std::string::npos);
}

TEST_CASE("the program: a share that the host caps, lossy routing accounted") {
    const bench fixture;
    // Every choice is substituted, as far as substitution_max lets it; the smallest experts are
    // soon resident, so time falls with the share.
    const json found = fixture.figures(
        "--param router.substitution_max --target tpot_ms=0.005 --set "
        "router.plugin=substitute --samples 6");
    CHECK(found["grid"]["step"] == 0.01);
    CHECK(found["samples"].front()["measured"] > found["samples"].back()["measured"]);
    CHECK(found["chosen"]["measured"] <= 0.005);
    CHECK(found["report"]["routing"]["substituted_share"] <=
          found["chosen"]["value"].get<double>());
}

TEST_CASE("the program: what cannot be met is exit code 1 with the best value seen") {
    const bench fixture;
    const json found = fixture.figures("--param memory.experts --target tpot_ms=0.0000001", 1);
    CHECK(found["chosen"].is_null());
    CHECK(found["met"] == false);
    CHECK(found["best"]["value"] == 8);
    const moorage::test::program_result text =
        fixture.tune("--param memory.experts --target tpot_ms=0.0000001");
    CHECK(text.code == 1);
    CHECK(unwrap(text.output).find("none: none of") != std::string::npos);
    CHECK(text.output.find("best seen") != std::string::npos);
}

TEST_CASE("the program: wrong usage says what is wrong") {
    const bench fixture;
    const auto refused = [&](const std::string &arguments, const std::string &part) {
        const moorage::test::program_result result = fixture.tune(arguments);
        CAPTURE(arguments);
        CAPTURE(result.errors);
        CHECK(result.code == 2);
        CHECK(result.output.empty());
        CHECK(result.errors.find(part) != std::string::npos);
    };
    refused("--param memory.experts --target =5", "metric=value");
    refused("--param experts --target tpot_ms=1", "section.key");
    refused("--param router.alfa --target tpot_ms=1", "no parameter alfa");
    refused("--param router.evry --set router.plugin=substitute --target tpot_ms=1",
            "did you mean every");
    refused("--param router.weights --set router.plugin=substitute --target tpot_ms=1",
            "is no number");
    refused("--param router.every --set router.plugin=substitute --target tpot_ms=1", "FROM:TO");
    refused("--param cache.lfu.half_life --target tpot_ms=1", "cache.plugin=lfu");
    refused("--param memory.experts --target tpot_ms=1 --from 5 --to 5", "goes up");
    refused("--param memory.experts --target tpot_ms=1 --samples 1", "--samples 1");
    refused("--param memory.experts=8:1 --target tpot_ms=1", "goes up");
    refused("--param memory.experts=1:x --target tpot_ms=1", "FROM:TO");
    refused("--param memory.experts=1:2:3:4 --target tpot_ms=1", "FROM:TO");
    refused("--param memory.experts --param memory.experts --target tpot_ms=1", "twice");
    refused("--param memory.experts --target tpot_ms=1 --html x.html", "--frontier");
    refused("--frontier memory.experts", "section.key:metric");
    refused("--frontier memory.experts:tpot_ms=3", "no bound");
    refused("--frontier memory.experts:tpot_ms --param memory.buffer_experts=1:4", "one number");
    refused("--target tpot_ms=1", "--param");
    refused("--param memory.expertz --target tpot_ms=1 --from 1 --to 5", "expertz");
    refused("--param memory.expert --target tpot_ms=1", "did you mean memory.experts");
    refused("--param memry.experts --target tpot_ms=1", "did you mean memory.experts");
    refused("--param cache.plugn=lru,lfu --target tpot_ms=1", "--param cache.plugn: ");
    refused("--param memory.experts --target tpot_mss=1", "did you mean tpot_ms");
    // Parameters that a cluster has no use for, as a number and as words.
    const std::string cluster = MOORAGE_SOURCE_DIR "/configs/clusters/local.toml ";
    for (const char *param : {"memory.experts", "hardware.link=a,b", "cache.plugin=lru,lfu"}) {
        const moorage::test::program_result result =
            moorage::test::run_line("tune " + cluster + "--target tpot_ms --param " + param,
                                    fixture.folder / "cluster.err");
        CAPTURE(result.errors);
        CHECK(result.code == 2);
        CHECK(result.says("it has no effect"));
        CHECK(result.says("local.toml"));
    }
}

TEST_CASE("the program: words and a number, and a frontier of both") {
    const bench fixture;
    const json found = fixture.figures(
        "--param memory.experts --param cache.plugin=lru,belady --target hit_rate=0.5");
    CHECK(found["chosen"]["values"]["cache.plugin"] == "belady");
    // In a circle of 8 with n slots the optimum misses 8 - n of every 7 or so. lru hits only with
    // 8.
    CHECK(found["chosen"]["values"]["memory.experts"] < 8);
    const json drawn =
        fixture.figures("--frontier memory.experts:hit_rate --param cache.plugin=lru,belady");
    CHECK(drawn["samples"].size() == 16);
    double previous = -1;
    for (const json &sample : drawn["frontier"]) {
        CHECK(sample["figures"]["hit_rate"] >= previous);
        previous = sample["figures"]["hit_rate"].get<double>();
    }
}

}  // namespace tune_test
