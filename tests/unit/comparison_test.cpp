// Goal: a comparison shows the differences between runs, marks the fastest fairly and fits the
// terminal. Method: few hand-made runs with known table lines, groups and sentences, and the width
// as a property over long names and many rows.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include "core/base/json.h"
#include "core/base/text.h"
#include "tools/comparison/comparison.h"
#include "core/report/figures.h"
#include "tools/comparison/text_table.h"

namespace comparison_test {

using namespace moorage::core;

namespace {

struct choice {
    std::string profile = "rtx3090", cache = "lru";
    uint64_t slots = 64;
    double tpot_ms = 20;
    uint64_t misses = 300;
};

// 100 tokens asking for 1000 experts; half the time computing, half waiting.
comparison_row row_of(const choice &chosen) {
    comparison_row row;
    run_report &report = row.report;
    report.tokens = 100;
    report.requests = 1;
    report.executor = "emulator";
    report.profile = chosen.profile;
    report.tpot_ms.mean = chosen.tpot_ms;
    report.tokens_per_s = 1000 / chosen.tpot_ms;
    report.total_ms = chosen.tpot_ms * 100;
    report.experts.requested = 1000;
    report.experts.misses = chosen.misses;
    report.experts.hits = 1000 - chosen.misses;
    report.bytes.h2d = chosen.misses * 10'000'000;
    report.time.compute = report.total_ms / 4;
    report.time.stall = report.total_ms / 2;
    report.time.transfer = report.total_ms * 0.55;
    report.causes = {{{}, {}}};
    report.causes[0][1][cause::compute] = static_cast<uint64_t>(report.total_ms * 0.25e6);
    report.causes[0][1][cause::link] = static_cast<uint64_t>(report.total_ms * 0.75e6);
    report.opt_misses = 200;
    *report.config = {{"run", {{"batch", 1}, {"seed", 0}}},
                      {"hardware", {{"profile", chosen.profile}}},
                      {"source", {{"trace", "data/prose.safetensors"}}},
                      {"memory", {{"experts", chosen.slots}, {"sharing", "shared"}}},
                      {"cache", {{"plugin", chosen.cache}}},
                      {"dispatch", {{"plugin", "load_all"}}}};
    row.slots = chosen.slots;
    row.experts_all = 256;
    return row;
}

comparison compared(std::vector<comparison_row> rows) {
    comparison table;
    table.title = "a comparison";
    table.rows = std::move(rows);
    return table;
}

std::vector<std::string> headings(const comparison_view &view) {
    std::vector<std::string> names;
    for (const key_column &column : view.columns) names.push_back(column.heading);
    return names;
}

using names = std::vector<std::string>;
using flags = std::vector<bool>;

bool contains(const std::string &text, const std::string &part) {
    return text.find(part) != std::string::npos;
}

bool fits(const std::string &text, size_t columns) {
    const std::vector<std::string> lines = split(text, '\n');
    return std::all_of(lines.begin(), lines.end(),
                       [&](const std::string &line) { return columns_of(line) <= columns; });
}

}  // namespace

TEST_CASE("only settings that differ become columns; profile and size are there anyway") {
    const comparison table =
        compared({row_of({}), row_of({.cache = "lfu", .slots = 128}), row_of({.profile = "h100"})});
    const comparison_view view = view_of(table);
    CHECK(view.settings == names{"hardware.profile", "memory.experts", "cache.plugin"});
    CHECK(headings(view) == names{"cache"});
    CHECK(view.labels == names{"lru", "lfu", "lru"});
    CHECK(view.profiles == names{"rtx3090", "h100"});
    CHECK(view.slots == std::vector<uint64_t>{64, 128, 64});
    CHECK(view.share == std::vector<double>{0.25, 0.5, 0.25});
}

TEST_CASE("a stage's parameters count among rows of the same plugin only") {
    std::vector<comparison_row> rows;
    for (const char *plugin : {"lru", "lfu", "lfu"}) rows.push_back(row_of({.cache = plugin}));
    rows[1].report.config["cache"]["half_life"] = 0.0;
    rows[2].report.config["cache"]["half_life"] = 16.0;
    rows[1].report.config["cache"]["forget"] = true;  // in both lfu rows: tells nothing
    rows[2].report.config["cache"]["forget"] = true;
    const comparison_view view = view_of(compared(rows));
    CHECK(headings(view) == names{"cache"});
    CHECK(view.labels == names{"lru", "lfu(half_life=0)", "lfu(half_life=16)"});
}

TEST_CASE("other settings have columns of their own, and bare values a name") {
    std::vector<comparison_row> rows = {row_of({}), row_of({}), row_of({})};
    rows[1].report.config["run"]["batch"] = 8;
    rows[2].report.config["memory"]["sharing"] = "per-layer";
    rows[2].report.config["dispatch"]["plugin"] = "cost";
    rows[1].report.config["source"]["trace"] = "data/code.safetensors";
    const comparison_view view = view_of(compared(rows));
    CHECK(headings(view) == names{"dispatch", "batch", "trace", "sharing"});
    CHECK(view.labels[1] == "load_all + batch 8 + code + shared");
    CHECK(view.labels[2] == "cost + batch 1 + prose + per-layer");
}

TEST_CASE("columns of equal names are told apart by their section") {
    std::vector<comparison_row> rows = {row_of({}), row_of({})};
    rows[1].report.config["run"]["limit"] = 1;
    rows[1].report.config["memory"]["limit"] = 2;
    CHECK(headings(view_of(compared(rows))) == names{"limit", "memory.limit"});
}

TEST_CASE("a size in bytes is a column only where the slots do not tell it") {
    std::vector<comparison_row> rows = {row_of({}), row_of({.slots = 128})};
    rows[0].report.config["memory"] = {{"bytes", 1000}};
    rows[1].report.config["memory"] = {{"bytes", 2000}};
    CHECK(headings(view_of(compared(rows))) == names{"cache"});  // the name of last resort
    rows[1].slots = 64;
    CHECK(headings(view_of(compared(rows))) == names{"bytes"});
}

TEST_CASE("slots come from the row, the layers or the config, in this order") {
    comparison_row row = row_of({.slots = 64});
    CHECK(view_of(compared({row})).slots[0] == 64);
    row.slots = 0;
    CHECK(view_of(compared({row})).slots[0] == 64);
    row.report.layers.resize(3);
    for (layer_report &layer : row.report.layers) layer.slots = 5;
    CHECK(view_of(compared({row})).slots[0] == 15);
    row.report.layers.clear();
    *row.report.config = nullptr;
    CHECK(view_of(compared({row})).slots[0] == 0);
}

TEST_CASE("the fastest is marked by profile and size, ties together, bounds never") {
    const comparison table = compared({
        row_of({.cache = "lru", .tpot_ms = 20}),
        row_of({.cache = "lfu", .tpot_ms = 15}),
        row_of({.cache = "sieve", .tpot_ms = 15}),
        row_of({.cache = "belady", .tpot_ms = 9}),
        row_of({.cache = "lru", .slots = 128, .tpot_ms = 10}),
        row_of({.cache = "lfu", .slots = 128, .tpot_ms = 10}),
        row_of({.profile = "h100", .cache = "lru", .tpot_ms = 5}),
    });
    const comparison_view view = view_of(table);
    CHECK(view.offline == flags{false, false, false, true, false, false, false});
    // Nothing is best where all are equal, or alone.
    CHECK(view.best == flags{false, true, true, false, false, false, false});
    // More memory at less time stands beside less of it at more; a profile of its own says nothing.
    CHECK(view.pareto == flags{false, true, true, false, true, true, false});
    CHECK(view.group[0] == view.group[3]);
    CHECK(view.group[0] != view.group[4]);
    CHECK(view.group[0] != view.group[6]);
}

TEST_CASE("what nothing beats is found as all pairs say, in memory, time and quality") {
    // By hand: b beats a (less of all); c is slower but better; d does not fit; the quality of e is
    // unknown.
    const auto scored = [](uint64_t slots, double tpot_ms, double nll) {
        comparison_row row = row_of({.slots = slots, .tpot_ms = tpot_ms});
        row.report.text.scored = 100;
        row.report.text.nll = nll;
        return row;
    };
    comparison table = compared({scored(64, 20, 2), scored(32, 10, 1.9), scored(64, 15, 1.5),
                                 scored(16, 5, 1), row_of({.slots = 16, .tpot_ms = 4})});
    table.rows[3].report.misfit = "it wants 9 GB of 8";
    table.rows[4].report.lossy = true;
    const comparison_view view = view_of(table);
    CHECK(view.pareto == flags{false, true, true, false, false});
    CHECK_FALSE(quality_of(table.rows[4].report));
    const std::string text = to_text(table);
    CHECK(contains(text, " 5.00 !"));
    CHECK(contains(text, "does not fit: it wants 9 GB of 8"));
    CHECK(contains(text, "* Pareto-optimal in memory, TPOT and quality among rows"));
    // Drawn rows against the definition, pair by pair.
    std::srand(3);
    for (int round = 0; round < 200; ++round) {
        std::vector<comparison_row> rows;
        for (int i = 0; i < 8; ++i)
            rows.push_back(scored(16u << std::rand() % 3, 5 + std::rand() % 4, std::rand() % 3));
        const comparison_view drawn = view_of(compared(rows));
        flags expected(rows.size(), true);
        for (size_t i = 0; i < rows.size(); ++i)
            for (size_t j = 0; j < rows.size(); ++j) {
                const double a[] = {double(rows[i].slots), rows[i].report.tpot_ms.mean,
                                    rows[i].report.text.nll};
                const double b[] = {double(rows[j].slots), rows[j].report.tpot_ms.mean,
                                    rows[j].report.text.nll};
                bool no_worse = true, somewhere = false;
                for (int k = 0; k < 3; ++k) no_worse &= b[k] <= a[k], somewhere |= b[k] < a[k];
                if (no_worse && somewhere) expected[i] = false;
            }
        if (std::find(expected.begin(), expected.end(), false) == expected.end())
            expected.assign(rows.size(), false);
        CHECK(drawn.pareto == expected);
    }
}

TEST_CASE("rows of other memory, work or quality are not ranked") {
    CHECK(contains(to_text(compared({row_of({.slots = 64}), row_of({.slots = 128, .tpot_ms = 5})})),
                   "none is called fastest, as the rows differ in memory"));
    comparison table = compared({row_of({}), row_of({.cache = "lfu", .tpot_ms = 5})});
    CHECK(contains(to_text(table), "lfu is fastest, 4.00 times as fast as lru"));
    table.rows[1].report.config["run"]["batch"] = 4;
    CHECK(contains(to_text(table), "none is called fastest, as the rows differ in work"));
    table.rows[1].report.config["run"]["batch"] = 1;
    table.rows[1].report.lossy = true;
    CHECK(contains(to_text(table), "none is called fastest, as the rows differ in quality"));
}

TEST_CASE("a choice that is not the model's own beats no lossless row, whatever its text says") {
    comparison table = compared({row_of({.tpot_ms = 10}), row_of({.cache = "lfu", .tpot_ms = 12}),
                                 row_of({.cache = "sieve", .tpot_ms = 9})});
    table.rows[2].report.lossy = true;
    table.rows[2].report.text.own_nll = 2;
    table.rows[2].report.text.nll = 1.9;  // by chance the better one
    CHECK(view_of(table).pareto == flags{true, false, true});
    table.rows[2].report.tpot_ms.mean = 10;  // nothing gained
    CHECK(view_of(table).pareto == flags{true, false, false});
}

TEST_CASE("what three digits do not tell apart is equally fast") {
    const comparison table =
        compared({row_of({.tpot_ms = 25.84}), row_of({.cache = "lfu", .tpot_ms = 25.79}),
                  row_of({.cache = "sieve", .tpot_ms = 25.86})});
    CHECK(view_of(table).pareto == flags{true, true, false});
    CHECK(contains(to_text(table), "- rtx3090: lru and lfu are equally fast\n"));
    CHECK_FALSE(contains(to_text(table), "is fastest"));
}

TEST_CASE("the mark says who is not ranked, and two clocks are not compared") {
    comparison table = compared({row_of({}), row_of({.cache = "lfu", .tpot_ms = 10}),
                                 row_of({.cache = "belady", .tpot_ms = 5})});
    table.rows[2].offline = true;
    CHECK(
        contains(to_text(table),
                 "* Pareto-optimal in memory, TPOT and quality among rows of the same work; belady "
                 "sees the future and\nis not ranked\n"));
    table.rows[1].report.virtual_time = !table.rows[0].report.virtual_time;
    CHECK(view_of(table).pareto == flags(3, false));
}

TEST_CASE("repeats make intervals, and faster is what they exclude chance from") {
    // The deviation of 1, 2, 3 is 1; t for two degrees of freedom is 4.303; 4.303 / sqrt(3) =
    // 2.484.
    const double three[] = {1, 2, 3};
    CHECK(half_interval(three) == doctest::Approx(2.4843).epsilon(1e-4));
    CHECK(half_interval(std::vector<double>{0.1, 0.1, 0.1}) == 0);  // their mean is not 0.1
    comparison_row a = row_of({.tpot_ms = 9}), b = row_of({.cache = "lfu", .tpot_ms = 10});
    CHECK(is_faster(a, b));  // as measured, once
    a.repeats_ms = {9, 18, 27};
    b.repeats_ms = {10, 20, 30};  // a ninth slower each time, however far the texts are apart
    CHECK(is_faster(a, b));
    CHECK_FALSE(is_faster(b, a));
    b.repeats_ms = {10, 18.5, 26};
    CHECK_FALSE(is_faster(a, b));
    comparison table = compared({b, a});
    const std::string text = to_text(table);
    CHECK(contains(text, "lru and lfu are not told apart by 3 repeats"));
    CHECK(contains(text, "± "));
    CHECK(to_json(table)["results"][1]["repeats"]["mean"] == 18);
}

TEST_CASE("a row of repeats has the mean of every figure, and the causes of all") {
    // Hit rates 0.7 and 0.5, 20 and 30 ms, 3 and 5 GB over 100 tokens, a quarter of it computing.
    comparison_row a = row_of({.tpot_ms = 20, .misses = 300}),
                   b = row_of({.tpot_ms = 30, .misses = 500});
    b.report.causes[0][1] = {};
    b.report.causes[0][1][cause::compute] = 3'000'000'000;  // all of its time
    a.repeats_ms = {20, 30};
    const json repeats[] = {to_json(a.report), to_json(b.report)};
    a.means = mean_figures(repeats);
    a.more_causes = b.report.causes[0][1];
    CHECK((*a.means)["experts"]["hit_rate"] == 0.6);
    CHECK((*a.means)["tokens_per_s"] == doctest::Approx((50 + 1000 / 30.0) / 2));
    CHECK_FALSE(a.means->contains("config"));
    CHECK_FALSE(a.means->contains("layers"));
    CHECK(mean_or(a, "tpot_ms.mean", 7) == 25);
    CHECK(mean_or(a, "tpot_ms.none", 7) == 7);
    CHECK(mean_or(b, "tpot_ms.mean", 7) == 7);
    const comparison table = compared({a, row_of({.cache = "lfu", .tpot_ms = 40})});
    const std::string text = to_text(table);
    CHECK(contains(text, "60.0 %"));
    CHECK(contains(text, "40.0"));  // MB a token, of 30 and 50
    CHECK(contains(text, "41.7"));  // tokens/s
    CHECK(to_json(table)["results"][0]["repeats"]["means"]["experts"]["hit_rate"] == 0.6);
    // lfu computes 1 of 4 s, the repeats 0.5 of 2 and 3 of 3.
    CHECK(contains(text, "50.0 %"));
}

TEST_CASE("a row that repeats do not tell from the fastest is not beaten by it") {
    comparison_row a = row_of({.tpot_ms = 9}), b = row_of({.cache = "lfu", .tpot_ms = 10}),
                   c = row_of({.cache = "fifo", .tpot_ms = 12});
    CHECK(view_of(compared({a, b, c})).pareto == std::vector<bool>{true, false, false});
    a.repeats_ms = {9, 18, 27};
    b.repeats_ms = {10, 18.5, 26};  // slower in the mean of ratios, by chance
    c.repeats_ms = {12, 24, 36};
    CHECK(view_of(compared({a, b, c})).pareto == std::vector<bool>{true, true, false});
    c.repeats_ms = {12, 12, 36};  // no row beats another
    CHECK(view_of(compared({a, b, c})).pareto == flags(3, false));
}

TEST_CASE("the table has the figures worked out by hand") {
    // 400 misses of 10 MB over 100 tokens: 40 MB a token. 400 / 200 = 2.
    const comparison table = compared({row_of({.cache = "lru", .tpot_ms = 20, .misses = 400}),
                                       row_of({.cache = "lfu", .tpot_ms = 12.5, .misses = 250}),
                                       row_of({.profile = "h100", .tpot_ms = 8, .misses = 400})});
    const std::string text = to_text(table);
    CAPTURE(text);
    const std::vector<std::string> lines = split(text, '\n');
    REQUIRE(lines.size() > 9);
    CHECK(lines[0] == "a comparison");
    CHECK(lines[1] == "");
    CHECK(lines[2] == "rtx3090");
    CHECK(lines[3] ==
          "  cache  experts   share  hit rate  MB/token  TPOT ms    tokens/s  misses/OPT");
    CHECK(lines[4] ==
          "  lru         64  25.0 %    60.0 %      40.0    20.00        50.0        2.00");
    CHECK(lines[5] ==
          "  lfu         64  25.0 %    75.0 %      25.0    12.50 *      80.0        1.25");
    CHECK(lines[6] == "");
    CHECK(lines[7] == "h100");
    CHECK(lines[9] ==
          "  lru         64  25.0 %    60.0 %      40.0     8.00       125.0        2.00");
}

TEST_CASE("sizes given one after the other are set apart, else policies, mixed ones are not") {
    const std::vector<comparison_row> by_size = {row_of({.cache = "lru"}), row_of({.cache = "lfu"}),
                                                 row_of({.cache = "lru", .slots = 128}),
                                                 row_of({.cache = "lfu", .slots = 128})};
    const std::vector<std::string> lines = split(to_text(compared(by_size)), '\n');
    CHECK(lines[6] == "");
    CHECK(contains(lines[7], "128"));
    const std::vector<std::string> by_policy =
        split(to_text(compared({by_size[0], by_size[2], by_size[1], by_size[3]})), '\n');
    CHECK(by_policy[6] == "");
    CHECK(contains(by_policy[7], "lfu"));
    const std::vector<std::string> mixed =
        split(to_text(compared({by_size[0], by_size[3], by_size[2], by_size[1]})), '\n');
    CHECK(std::none_of(mixed.begin() + 4, mixed.begin() + 8,
                       [](const std::string &line) { return line.empty(); }));
}

TEST_CASE("a win that is shared is said to be") {
    const comparison table =
        compared({row_of({.cache = "lru", .tpot_ms = 10}), row_of({.cache = "lfu", .tpot_ms = 10}),
                  row_of({.cache = "fifo", .tpot_ms = 12}),
                  row_of({.cache = "lru", .slots = 128, .tpot_ms = 9}),
                  row_of({.cache = "lfu", .slots = 128, .tpot_ms = 8})});
    CHECK(contains(reading(table, view_of(table)).at(0),
                   "lfu is fastest at 2 of 2 sizes (at 1 of them not alone)"));
}

TEST_CASE("bytes are in units in which the smallest can be read") {
    // 3 MB and 3 GB a token.
    comparison table = compared({row_of({.misses = 30}), row_of({.cache = "lfu", .misses = 300})});
    table.rows[1].report.bytes.h2d = 300'000'000'000;
    const std::string text = to_text(table);
    CHECK(contains(text, "MB/token"));
    CHECK(contains(text, " 3000.00 "));
    CHECK(contains(text, " 3.00 "));
    table.rows[0].report.bytes.h2d = 0;  // nothing moved needs no digits
    CHECK(contains(to_text(table), "GB/token"));
}

TEST_CASE("columns without anything known are left out") {
    comparison_row row = row_of({});
    row.experts_all = 0;
    row.report.opt_misses = 0;
    const std::string text = to_text(compared({row}));
    CHECK_FALSE(contains(text, "share"));
    CHECK_FALSE(contains(text, "misses/OPT"));
    CHECK_FALSE(contains(text, "fastest"));
}

TEST_CASE("the reading names the fastest, its lead and what takes the time") {
    // lfu over lru: 20 / 10 and 8 / 4, twice as fast; belady over lfu: 10 / 8 and 4 / 3.2.
    const comparison table = compared({
        row_of({.cache = "lru", .slots = 64, .tpot_ms = 20}),
        row_of({.cache = "lfu", .slots = 64, .tpot_ms = 10}),
        row_of({.cache = "belady", .slots = 64, .tpot_ms = 8}),
        row_of({.cache = "lru", .slots = 128, .tpot_ms = 8}),
        row_of({.cache = "lfu", .slots = 128, .tpot_ms = 4}),
        row_of({.cache = "belady", .slots = 128, .tpot_ms = 3.2}),
    });
    const names lines = reading(table, view_of(table));
    REQUIRE(lines.size() == 2);
    CAPTURE(lines[0]);
    CAPTURE(lines[1]);
    CHECK(
        lines[0].starts_with("rtx3090: lfu is fastest at 2 of 2 sizes, 2.00 times as fast as lru"));
    CHECK(contains(lines[0], "belady, which sees the future, would be 1.25 times as fast as lfu"));
    CHECK(lines[1] ==
          "rtx3090: over all rows, the GPU waits for transfers 75.0 % and computes "
          "25.0 % of the time");
}

TEST_CASE("the reading says what the time goes to, down to half a percent of it") {
    comparison_row row = row_of({});
    row.report.causes = {{{}, {}}};
    time_causes &causes = row.report.causes[0][1];
    causes[cause::compute] = 630, causes[cause::cpu] = 365, causes[cause::launch] = 5;
    comparison table = compared({row});
    CHECK(contains(reading(table, view_of(table)).at(0),
                   "the GPU computes 63.0 %, waits for the CPU 36.5 % and launches and "
                   "synchronises 0.5 % of the time"));
    table.rows[0].report.causes[0][1][cause::launch] = 4;
    CHECK_FALSE(contains(reading(table, view_of(table)).at(0), "synchronises"));
}

TEST_CASE("what lossy runs change stands beside their speed") {
    auto rows = std::vector{row_of({.cache = "lru"}), row_of({.cache = "score", .tpot_ms = 10})};
    for (comparison_row &row : rows) {
        row.report.routing = {.choices = 1000, .rows = 500, .rows_unchanged = 500};
        row.report.text.model = "demo";
        row.report.text.scored = 100;
        row.report.text.nll = 1.5;
    }
    CHECK(to_text(compared(rows)).find("substituted") == std::string::npos);
    CHECK(to_text(compared(rows)).find("lossy") == std::string::npos);
    run_report &lossy = rows[1].report;
    lossy.lossy = true;
    lossy.experts.substituted = 42;
    lossy.routing.rows_unchanged = 460;
    lossy.text.own_nll = 1.49;  // exp(0.01) - 1 = 1.005 %
    const std::string text = to_text(compared(rows));
    CHECK(text.find("perplexity   change  substituted\n") != std::string::npos);
    CHECK(text.find("     4.482  +1.01 %       4.20 %\n") != std::string::npos);
    CHECK(text.find("     4.482        -       0.00 %\n") != std::string::npos);
    CHECK(text.find("lossy: 1 of 2 runs may change the model's routing; the most does score with "
                    "64") != std::string::npos);
    CHECK(text.find("perplexity +1.01 %") != std::string::npos);
}

TEST_CASE("more hits that are not faster are pointed out, but not within a percent") {
    comparison table = compared({row_of({.cache = "lru", .tpot_ms = 20, .misses = 300}),
                                 row_of({.cache = "lfu", .tpot_ms = 25, .misses = 200})});
    names lines = reading(table, view_of(table));
    REQUIRE(lines.size() == 3);
    CHECK(
        contains(lines[2], "with 64 experts on rtx3090, lfu hits most (80.0 %), yet lru (70.0 %)"));
    table.rows[1].report.tpot_ms.mean = 20.1;
    CHECK(reading(table, view_of(table)).size() == 2);
}

TEST_CASE("equal warnings are told once, with their number; many are cut short") {
    comparison table = compared({row_of({}), row_of({.cache = "lfu"}), row_of({.cache = "fifo"})});
    table.rows[0].report.warnings = {"small"};
    table.rows[2].report.warnings = {"small"};
    table.rows[1].report.faults = {{"mine", 5}};
    names lines = reading(table, view_of(table));
    CHECK(std::count(lines.begin(), lines.end(), "warning (2 of 3 runs): small") == 1);
    CHECK(std::count(lines.begin(), lines.end(),
                     "warning (1 of 3 runs): plugin mine broke the rules") == 1);
    for (int i = 0; i < 9; ++i) table.rows[1].report.warnings.push_back("w" + std::to_string(i));
    lines = reading(table, view_of(table));
    CHECK(lines.back() == "7 further warnings are in the JSON report");
}

TEST_CASE("text keeps to its columns however long the names, and the figures stay") {
    std::vector<comparison_row> rows;
    for (uint64_t i = 0; i < 30; ++i) {
        comparison_row row = row_of({.cache = "a_policy_with_a_very_long_name_" + std::to_string(i),
                                     .slots = 64 + i % 3,
                                     .tpot_ms = 1e6 + double(i)});
        for (const char *stage : {"router", "budget", "prefetch", "dispatch", "transport"})
            row.report.config[stage] = {{"plugin", std::string(40, 'p') + std::to_string(i)}};
        row.report.config["run"]["another_long_setting_name"] = std::to_string(i);
        row.report.config["run"]["and_one_more_of_them"] = std::to_string(i);
        row.report.warnings = {std::string(300, 'w')};
        row.report.bytes.h2d = UINT64_MAX;
        rows.push_back(std::move(row));
    }
    comparison table = compared(rows);
    table.title = std::string(250, 't');
    const std::string text = to_text(table);
    CHECK(fits(text, 100));
    CHECK(contains(text, "hit rate"));
    CHECK(contains(text, "1000000"));
    for (const size_t columns : {80u, 91u, 100u, 160u})
        CHECK(fits(to_text(table, columns), columns));
    CHECK_FALSE(fits(to_text(table, 160), 120));  // and uses them
}

TEST_CASE("a table that is too wide loses spare figures before the names of its rows") {
    const auto widths = [](size_t columns_max) {
        return fitted_widths({{"config", {std::string(24, 'c')}, true},
                              {"cache", {"lru"}, true},
                              {"TPOT", {"12.5"}},
                              {"share", {"25.0 %"}, false, 1},
                              {"late", {"3.0 %"}, false, 2}},
                             columns_max);
    };
    using column_widths = std::vector<size_t>;
    CHECK(widths(54) == column_widths{24, 5, 4, 6, 5});  // 44 and a gap of 2 before each
    CHECK(widths(50) == column_widths{20, 5, 4, 6, 5});  // names are cut to 20
    CHECK(widths(49) == column_widths{20, 5, 4, 6, 0});
    CHECK(widths(43) == column_widths{20, 5, 4, 6, 0});
    CHECK(widths(42) == column_widths{20, 5, 4, 0, 0});
    CHECK(widths(35) == column_widths{20, 5, 4, 0, 0});
    CHECK(widths(34) == column_widths{19, 5, 4, 0, 0});  // then to 8
    CHECK(widths(23) == column_widths{8, 5, 4, 0, 0});
    CHECK(widths(22) == column_widths{8, 0, 4, 0, 0});  // and the last name goes, never the first
    CHECK(widths(3) == column_widths{8, 0, 4, 0, 0});
    // A name that alone distinguishes rows stays at any width.
    CHECK(fitted_widths({{"router", {"topk", "topk"}, true},
                         {"prefetch", {"none", "echo"}, true},
                         {"link", {"pcie", "pcie"}, true},
                         {"TPOT", {"12.5", "9.0"}}},
                        10) == column_widths{6, 8, 0, 4});
    const std::vector<table_column> two = {{"config", {"a"}, true}, {"late", {"3"}, false, 1}};
    CHECK(left_out(two, {6, 0}) == "hidden, as the table is too narrow: late");
    CHECK(left_out(two, {6, 4}) == "");
}

TEST_CASE("no rows, and rows without a config, are no failure") {
    CHECK(contains(to_text(comparison{}), "nothing was run"));
    CHECK(to_json(comparison{})["results"] == json::array());
    comparison_row bare;
    CHECK(contains(to_text(compared({bare, bare})), "none"));
}

TEST_CASE("JSON has each run's report and the settings that differ") {
    std::vector<comparison_row> rows = {row_of({}), row_of({.cache = "lfu", .slots = 128})};
    rows[1].report.config["cache"]["half_life"] = 16.0;
    const json written = parse_json(to_json(compared(rows)).dump());
    CHECK(written["title"] == "a comparison");
    REQUIRE(written["results"].size() == 2);
    CHECK(written["results"][0]["settings"] ==
          json{{"memory.experts", 64}, {"cache.plugin", "lru"}});
    CHECK(written["results"][1]["settings"] ==
          json{{"memory.experts", 128}, {"cache.plugin", "lfu"}, {"cache.half_life", 16.0}});
    CHECK(written["results"][1]["slots"] == 128);
    CHECK(written["results"][1]["experts"]["hits"] == 700);
    json alone = to_json(rows[1].report);
    for (const auto &[key, value] : alone.items()) CHECK(written["results"][1][key] == value);
}

TEST_CASE("rows of several configurations go by their names, and by what differs within one") {
    std::vector<comparison_row> rows = {row_of({.cache = "lru", .tpot_ms = 30}),
                                        row_of({.cache = "score", .tpot_ms = 20}),
                                        row_of({.cache = "score", .tpot_ms = 10})};
    rows[0].config = "fiddler", rows[1].config = rows[2].config = "smoe";
    rows[2].report.config["run"]["batch"] = 3;
    rows[2].report.config["dispatch"]["plugin"] = "balance";
    const comparison_view view = view_of(compared(std::move(rows)));
    std::vector<std::string> headings;
    for (const key_column &column : view.columns) headings.push_back(column.heading);
    // The cache follows from the name; dispatch and batch do not.
    CHECK(headings == std::vector<std::string>{"config", "dispatch", "batch"});
    CHECK(view.columns[0].values == std::vector<std::string>{"fiddler", "smoe", "smoe"});
    CHECK(view.labels[0] == "fiddler + load_all + batch 1");
}

}  // namespace comparison_test
