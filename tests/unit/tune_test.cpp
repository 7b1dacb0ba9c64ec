// Goal: tune fits what was measured, chooses by SMoE's rule and says whether a run bears it out.
// Method: fits against lines and parabolas worked by hand and against planted polynomials; the rule
// on small worked cases and against a search of every grid value; the program on traces where the
// time is known to fall or rise with the parameter.
#include <doctest/doctest.h>

#include <cmath>

#include "core/base/json.h"
#include "core/base/random.h"
#include "core/base/text.h"
#include "core/report/figures.h"
#include "core/report/tuning.h"
#include "tests/unit/program.h"

using namespace moorage::core;

namespace {

metric_target target(const std::string &text) {
    const auto parsed = parse_target(text);
    if (!parsed) FAIL(parsed.failure().text);
    return *parsed;
}

// Text without its line breaks.
std::string unwrapped(const std::string &text) {
    std::string all;
    for (const char c : text)
        if (c != ' ' && c != '\n')
            all += c;
        else if (!all.ends_with(' '))
            all += ' ';
    return all;
}

tuning with(const std::string &goal, std::vector<fit_point> samples, uint32_t degree = 1) {
    tuning made;
    made.param = "router.alpha";
    made.target = target(goal);
    made.degree = degree;
    made.samples = std::move(samples);
    made.grid = {0, made.samples.back().x, 0.01, false};
    return made;
}

tuning settled(const std::string &goal, std::vector<fit_point> samples, uint32_t degree = 1) {
    tuning made = with(goal, std::move(samples), degree);
    const status done = settle(made);
    if (!done) FAIL(done.failure().text);
    return made;
}

}  // namespace

TEST_CASE("lines and parabolas by hand") {
    // Through (0, 1), (1, 3), (2, 4): sums n 3, x 3, y 8, xx 5, xy 11; slope (3 * 11 - 3 * 8) /
    // (3 * 5 - 9) = 1.5, intercept (8 - 1.5 * 3) / 3 = 7/6.
    const std::vector<fit_point> points = {{0, 1}, {1, 3}, {2, 4}};
    const auto line = fit_polynomial(points, 1);
    REQUIRE(line.ok());
    CHECK(line->coefficients()[0] == doctest::Approx(7.0 / 6));
    CHECK(line->coefficients()[1] == doctest::Approx(1.5));
    // Residuals 1/6, -1/3, 1/6; their squares sum to 1/6, the variance's to 14/3.
    const fit_quality quality = quality_of(*line, points);
    CHECK(quality.error_max == doctest::Approx(1.0 / 3));
    CHECK(quality.r2 == doctest::Approx(1 - (1.0 / 6) / (14.0 / 3)));
    const auto flat = fit_polynomial(points, 0);
    CHECK((*flat)(17) == doctest::Approx(8.0 / 3));
    // Three points, degree two: through them, 1 + 2.5 x - 0.5 x^2.
    const auto curve = fit_polynomial(points, 2);
    CHECK(curve->coefficients()[1] == doctest::Approx(2.5));
    CHECK(curve->coefficients()[2] == doctest::Approx(-0.5));
    CHECK(quality_of(*curve, points).r2 == doctest::Approx(1));
}

TEST_CASE("planted polynomials come back, wherever they are sampled") {
    random_stream random(9, 1);
    for (uint32_t round = 0; round < 200; ++round) {
        const auto degree = static_cast<uint32_t>(random.below(5));
        std::vector<double> planted;
        for (uint32_t power = 0; power <= degree; ++power) planted.push_back(4 * random.unit() - 2);
        const double start = 2 * random.unit() - 1, width = 0.5 + random.unit();
        std::vector<fit_point> points;
        const size_t count = degree + 1 + random.below(6);
        for (size_t i = 0; i < count; ++i) {
            const double x = start + width * double(i) / double(count);
            double y = 0;
            for (size_t power = planted.size(); power-- > 0;) y = y * x + planted[power];
            points.push_back({x, y});
        }
        const auto fit = fit_polynomial(points, degree);
        REQUIRE(fit.ok());
        CAPTURE(degree);
        const std::vector<double> found = fit->coefficients();
        REQUIRE(found.size() == planted.size());
        for (size_t power = 0; power < found.size(); ++power)
            CHECK(found[power] == doctest::Approx(planted[power]).epsilon(1e-6));
        for (const fit_point &one : points)
            CHECK((*fit)(one.x) == doctest::Approx(one.y).epsilon(1e-9));
    }
}

TEST_CASE("the fit's sum of squares cannot be lowered") {
    random_stream random(9, 2);
    std::vector<fit_point> points;
    for (int i = 0; i < 9; ++i) points.push_back({100.0 * i, random.unit()});
    const auto fit = fit_polynomial(points, 2);
    REQUIRE(fit.ok());
    const auto squares = [&](const std::vector<double> &terms) {
        double sum = 0;
        for (const fit_point &one : points) {
            const double error = terms[0] + one.x * (terms[1] + one.x * terms[2]) - one.y;
            sum += error * error;
        }
        return sum;
    };
    const std::vector<double> best = fit->coefficients();
    for (size_t power = 0; power < 3; ++power)
        for (const double factor : {0.999, 1.001}) {
            std::vector<double> other = best;
            other[power] *= factor;
            CHECK(squares(other) > squares(best));
        }
}

TEST_CASE("what cannot be fitted is refused") {
    CHECK_FALSE(fit_polynomial(std::vector<fit_point>{{1, 2}, {1, 3}}, 1).ok());
    CHECK(fit_polynomial(std::vector<fit_point>{{1, 2}, {1, 3}}, 0).ok());
    CHECK_FALSE(fit_polynomial(std::vector<fit_point>{}, 0).ok());
    CHECK_FALSE(fit_polynomial(std::vector<fit_point>{{1, 2}, {2, NAN}}, 1).ok());
    CHECK_FALSE(fit_polynomial(std::vector<fit_point>{{1, 2}, {2, 3}}, 9).ok());
}

TEST_CASE("the smallest grid value whose fit meets the target") {
    // T = 10 - 4 a, measured at 0, 0.3, 0.6.
    const std::vector<fit_point> line = {{0, 10}, {0.3, 8.8}, {0.6, 7.6}};
    tuning found = settled("tpot_ms=8", line);
    CHECK(*found.chosen == 0.5);
    CHECK(found.fitted == doctest::Approx(8));
    CHECK_FALSE(found.largest);
    // 10 - 4 * 0.42 = 8.32 is too much for 8.3, 0.43 gives 8.28.
    CHECK(*settled("tpot_ms=8.3", line).chosen == 0.43);
    CHECK(*settled("tpot_ms=7.6", line).chosen == 0.6);
    CHECK(*settled("tpot_ms=100", line).chosen == 0);
    // Beyond the largest measured value nothing is foretold: none.
    CHECK_FALSE(settled("tpot_ms=7.5", line).chosen.has_value());
    CHECK(settled("tpot_ms=7.5", line).best().x == 0.6);
}

TEST_CASE("by the fit, not by the measurements") {
    // Least squares through 10, 7, 8, 5 at 0, 1/3, 2/3, 1: mean 7.5, slope -4.2: T = 9.6 - 4.2 a.
    const std::vector<fit_point> points = {{0, 10}, {1.0 / 3, 7}, {2.0 / 3, 8}, {1, 5}};
    CHECK(*settled("tpot_ms=7", points).chosen == 0.62);  // 9.6 - 4.2 * 0.62 = 6.996
    // Measured 10 at 0, yet the fit says 9.6.
    CHECK(*settled("tpot_ms=9.7", points).chosen == 0);
    CHECK(*settled("tpot_ms=9.5", points).chosen == 0.03);  // 9.474; 0.02 gives 9.516
}

TEST_CASE("a parabola") {
    // T = 10 - 8 a + 4 a^2, lowest at 1.
    std::vector<fit_point> points;
    for (const double a : {0.0, 0.25, 0.5, 1.0}) points.push_back({a, 10 - 8 * a + 4 * a * a});
    // 4 a^2 - 8 a + 3 = 0 at a = 0.5.
    CHECK(*settled("tpot_ms=7", points, 2).chosen == 0.5);
    CHECK(*settled("tpot_ms=6.01", points, 2).chosen == 0.95);
    CHECK_FALSE(settled("tpot_ms=5.9", points, 2).chosen.has_value());
}

TEST_CASE("where larger values make it worse, the largest that still meets the target") {
    const std::vector<fit_point> rising = {{0, 6}, {0.6, 9}};  // perplexity 6 + 5 a
    tuning found = settled("perplexity=7", rising);
    CHECK(found.largest);
    CHECK(*found.chosen == 0.2);
    CHECK_FALSE(settled("perplexity=5.9", rising).chosen.has_value());
    found.prefer = preference::smallest;
    REQUIRE(settle(found).ok());
    CHECK(*found.chosen == 0);
    // Hits rise: the smallest; fall: the largest.
    CHECK(*settled("hit_rate=0.5", {{0, 0.2}, {1, 1}}).chosen == 0.38);
    CHECK(*settled("hit_rate=0.5", {{0, 1}, {1, 0.2}}).chosen == 0.62);
}

TEST_CASE("whole numbers are searched as whole numbers") {
    tuning found = with("tpot_ms=50", {{1, 100}, {200, 1}});
    found.grid = {1, 200, 7, true};
    REQUIRE(settle(found).ok());
    // 100 - 99 (x - 1) / 199 <= 50 from x = 101.6 on; the grid has 99 and 106.
    CHECK(*found.chosen == 106);
    const std::vector<double> values = found.grid.values();
    CHECK(values.front() == 1);
    CHECK(values[1] == 8);
    CHECK(values.back() == 200);  // the largest measured, though 1 + 28 * 7 = 197
}

TEST_CASE("the rule against a search of every grid value") {
    random_stream random(9, 3);
    for (uint32_t round = 0; round < 200; ++round) {
        std::vector<fit_point> points;
        for (int i = 0; i <= 4; ++i) points.push_back({0.2 * i, 5 + 10 * random.unit()});
        const double limit = 5 + 10 * random.unit();
        tuning found = with("tpot_ms=1", points, 1 + static_cast<uint32_t>(random.below(3)));
        found.target.value = limit;
        found.prefer = preference::smallest;
        REQUIRE(settle(found).ok());
        std::optional<double> expected;
        for (int i = 80; i >= 0; --i)
            if ((*found.fit)(i / 100.0) <= limit) expected = i / 100.0;
        CHECK(found.chosen.has_value() == expected.has_value());
        if (expected) CHECK(*found.chosen == doctest::Approx(*expected));
    }
}

TEST_CASE("targets") {
    CHECK_FALSE(target("tpot_ms=20").at_least);
    CHECK(target("hit_rate=0.8").at_least);
    CHECK(target("experts.hit_rate = 0.8").at_least);
    CHECK_FALSE(target("hit_rate<=0.8").at_least);
    CHECK(target("bytes.h2d>=1e6").at_least);
    CHECK(target("bytes.h2d>=1e6").value == 1e6);
    CHECK(target("tokens_per_s=5").text() == "tokens_per_s >= 5");
    for (const char *wrong : {"tpot_ms", "=5", "tpot_ms=", "tpot_ms=fast", "tpot_ms=5 ms",
                              "tpot_ms=inf", "<=5", "tpot_ms=nan"}) {
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
    json all = to_json(report);
    const auto figure = [&](const std::string &name) {
        const auto found = figure_of(all, name);
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
        const auto found = figure_of(all, name);
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
    all = to_json(report);
    CHECK(figure("perplexity") == doctest::Approx(7));
}

TEST_CASE("text and JSON of a search") {
    tuning found = settled("tpot_ms=8", {{0, 10}, {0.3, 8.8}, {0.6, 7.6}});
    found.measured = 8.1;
    json all = to_json(found);
    CHECK(all["chosen"]["value"] == 0.5);
    CHECK(all["chosen"]["measured"] == 8.1);
    CHECK(all["met"] == false);
    CHECK(all["best"]["measured"] == 7.6);
    CHECK(all["samples"][1]["fitted"] == 8.8);
    CHECK(all["fit"]["coefficients"].size() == 2);
    std::string text = unwrapped(to_text(found));
    CHECK(text.find("a run measures 8.1, the fit said 8 (-1.2 %): the target is missed") !=
          std::string::npos);
    CHECK(text.find("best seen") != std::string::npos);
    found.measured = 7.9;
    CHECK(to_json(found)["met"] == true);
    text = unwrapped(to_text(found));
    CHECK(text.find("the target is met") != std::string::npos);
    CHECK(text.find("best seen") == std::string::npos);
    found.param = std::string(60, 'p') + ".k";
    for (const std::string &line : split(to_text(found), '\n')) CHECK(columns_of(line) <= 80);
    // A parabola is no line, and that is said.
    CHECK(to_text(settled("tpot_ms=1", {{0, 4}, {1, 0}, {2, 4.5}})).find("--degree") !=
          std::string::npos);
    CHECK(to_text(found).find("--degree") == std::string::npos);
    CHECK(to_json(settled("tpot_ms=1", {{0, 10}, {1, 8}}))["chosen"].is_null());
}

namespace {

const std::filesystem::path binaries = MOORAGE_BINARY_DIR;

// One layer of 8 experts, asked for in a circle: an LRU cache of less than 8 hits nothing, and the
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
    moorage::test::ended tune(const std::string &arguments) const {
        return moorage::test::run_line("tune " + (folder / "run.toml").string() + " " + arguments,
                                       (folder / "errors").string());
    }
    json figures(const std::string &arguments, int code = 0) const {
        const moorage::test::ended result = tune(arguments + " --json -");
        CAPTURE(arguments);
        CAPTURE(result.errors);
        REQUIRE(result.code == code);
        const json parsed = json_or_discarded(result.out);
        REQUIRE_FALSE(parsed.is_discarded());
        return parsed;
    }
};

}  // namespace

TEST_CASE("the program: how many experts for a hit rate") {
    const bench on;
    const json found = on.figures("--param memory.experts --target hit_rate=0.5 --samples 8");
    CHECK(found["samples"].size() == 8);
    CHECK(found["samples"][0]["value"] == 1);
    CHECK(found["samples"][7]["value"] == 8);
    CHECK(found["samples"][7]["measured"] == 56.0 / 64);  // all but the first of each
    CHECK(found["prefer"] == "smallest");
    CHECK(found["met"] == true);
    const auto chosen = found["chosen"]["value"].get<double>();
    CHECK(chosen == std::round(chosen));
    CHECK(found["chosen"]["measured"] >= 0.5);
    CHECK(found["report"]["config"]["memory"]["experts"] == chosen);
    CHECK(found["report"]["experts"]["hit_rate"] == found["chosen"]["measured"]);
    const moorage::test::ended text =
        on.tune("--param memory.experts --target hit_rate=0.5 --samples 8");
    CHECK(text.code == 0);
    CHECK(unwrapped(text.out).find("the target is met") != std::string::npos);
    for (const std::string &line : split(text.out, '\n')) CHECK(columns_of(line) <= 80);
}

TEST_CASE("the program: a share that the host caps, lossy routing accounted") {
    const bench on;
    // Every choice is substituted, as far as substitution_max lets it; the smallest experts are
    // soon resident, so time falls with the share.
    const json found = on.figures(
        "--param router.substitution_max --target tpot_ms=0.005 --set "
        "router.plugin=substitute --samples 6");
    CHECK(found["grid"]["step"] == 0.01);
    CHECK(found["samples"][0]["measured"] > found["samples"][5]["measured"]);
    CHECK(found["chosen"]["fitted"] <= 0.005);
    CHECK(found["report"]["routing"]["substituted_share"] <=
          found["chosen"]["value"].get<double>());
}

TEST_CASE("the program: what cannot be met is exit code 1 with the best value seen") {
    const bench on;
    const json found = on.figures("--param memory.experts --target tpot_ms=0.0000001", 1);
    CHECK(found["chosen"].is_null());
    CHECK(found["met"] == false);
    CHECK(found["best"]["value"] == 8);
    const moorage::test::ended text = on.tune("--param memory.experts --target tpot_ms=0.0000001");
    CHECK(text.code == 1);
    CHECK(unwrapped(text.out).find("none: no value") != std::string::npos);
    CHECK(text.out.find("best seen") != std::string::npos);
}

TEST_CASE("the program: wrong usage says what is wrong") {
    const bench on;
    const auto refused = [&](const std::string &arguments, const std::string &part) {
        const moorage::test::ended result = on.tune(arguments);
        CAPTURE(arguments);
        CAPTURE(result.errors);
        CHECK(result.code == 2);
        CHECK(result.out.empty());
        CHECK(result.errors.find(part) != std::string::npos);
    };
    refused("--param memory.experts --target tpot_ms", "metric=value");
    refused("--param experts --target tpot_ms=1", "section.key");
    refused("--param router.alfa --target tpot_ms=1", "no parameter alfa");
    refused("--param router.evry --set router.plugin=substitute --target tpot_ms=1",
            "did you mean every");
    refused("--param router.weights --set router.plugin=substitute --target tpot_ms=1",
            "is no number");
    refused("--param router.every --set router.plugin=substitute --target tpot_ms=1", "--from");
    refused("--param cache.lfu.half_life --target tpot_ms=1", "cache.plugin=lfu");
    refused("--param memory.experts --target tpot_ms=1 --from 5 --to 5", "goes up");
    refused("--param memory.experts --target tpot_ms=1 --step 0.0000000001 --samples 1",
            "--samples 1");
    refused("--param memory.expertz --target tpot_ms=1 --from 1 --to 5", "expertz");
    refused("--param memory.experts --target tpot_mss=1", "did you mean tpot_ms");
}
