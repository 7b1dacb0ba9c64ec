// Goal: the page is well-formed, complete and self-contained for any comparison, and its plots put
// points where they belong. Method: a small XML checker, hostile texts, extreme shapes (one run,
// one size, thirty policies, nothing), and coordinates worked out by hand.
#include <doctest/doctest.h>

#include <cmath>
#include <cstdlib>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/json.h"
#include "core/base/text.h"
#include "core/report/chart.h"
#include "core/report/html.h"
#include "core/report/svg.h"

using namespace moorage::core;

namespace {

bool is_entity(std::string_view text) {
    for (const char *known : {"&amp;", "&lt;", "&gt;", "&quot;", "&#39;"})
        if (text.starts_with(known)) return true;
    return false;
}

// The attributes of a tag: name="value", values without < and with known entities only.
bool attributes_are_sound(std::string_view tag) {
    for (size_t at = tag.find(' '); at != std::string_view::npos && at < tag.size();) {
        if (tag.find_first_not_of(" \n/", at) == std::string_view::npos) return true;
        const size_t equals = tag.find("=\"", at);
        if (equals == std::string_view::npos) return false;
        const size_t end = tag.find('"', equals + 2);
        if (end == std::string_view::npos) return false;
        const std::string_view value = tag.substr(equals + 2, end - equals - 2);
        for (size_t i = 0; i < value.size(); ++i)
            if (value[i] == '<' || (value[i] == '&' && !is_entity(value.substr(i)))) return false;
        at = end + 1;
    }
    return true;
}

// "" when every tag is closed in order and every text escaped, else where it goes wrong.
std::string flaw_in(std::string_view text) {
    if (text.starts_with("<!doctype html>")) text.remove_prefix(15);
    std::vector<std::string> open;
    for (size_t at = 0; at < text.size();) {
        const std::string near(text.substr(at, 60));
        if (text[at] == '&' && !is_entity(text.substr(at))) return "bare ampersand: " + near;
        if (text[at] == '>') return "bare >: " + near;
        if (text[at] != '<') {
            ++at;
            continue;
        }
        // The end of the tag is outside of quotes.
        bool quoted = false;
        size_t end = at + 1;
        for (; end < text.size() && (quoted || text[end] != '>'); ++end)
            if (text[end] == '"') quoted = !quoted;
        if (end == text.size()) return "unclosed tag: " + near;
        const std::string_view tag = text.substr(at + 1, end - at - 1);
        const std::string name(tag.substr(0, tag.find_first_of(" />", 1)));
        if (!attributes_are_sound(tag)) return "attributes: " + near;
        if (name.starts_with('/')) {
            if (open.empty() || open.back() != name.substr(1)) return "closes nothing: " + near;
            open.pop_back();
        } else if (!tag.ends_with('/')) {
            open.push_back(name);
        }
        at = end + 1;
    }
    return open.empty() ? "" : "left open: " + open.back();
}

size_t count_of(std::string_view text, std::string_view part) {
    size_t count = 0;
    for (size_t at = text.find(part); at != std::string_view::npos; at = text.find(part, at + 1))
        ++count;
    return count;
}

bool contains(std::string_view text, std::string_view part) {
    return text.find(part) != std::string_view::npos;
}

comparison_row row_of(const std::string &profile, const std::string &cache, uint64_t slots) {
    comparison_row row;
    run_report &report = row.report;
    report.tokens = 100;
    report.requests = 2;
    report.executor = "emulator";
    report.profile = profile;
    report.tpot_ms = {20 + 100 / double(slots), 20, 30};
    report.total_ms = 2000;
    report.tokens_per_s = 50;
    report.experts = {.requested = 800, .hits = 400 + slots, .misses = 400 - slots};
    report.time = {.compute = 500, .transfer = 1000, .stall = 1200, .cpu = 0, .policy = 0};
    report.causes = {{{}, {}}};
    report.causes[0][1][cause::compute] = 500'000'000;
    report.causes[0][1][cause::link] = 1'200'000'000;
    report.opt_misses = 200;
    *report.config = {{"cache", {{"plugin", cache}}}, {"memory", {{"experts", slots}}}};
    for (uint64_t layer = 0; layer < 4; ++layer) {
        report.layers.emplace_back();
        report.layers.back().experts = {
            .requested = 200, .hits = 50 * layer, .misses = 200 - 50 * layer};
    }
    row.slots = slots;
    row.experts_all = 256;
    return row;
}

comparison sample(size_t policies, const std::vector<uint64_t> &sizes,
                  const std::vector<std::string> &profiles) {
    comparison made;
    made.title = "a page";
    for (const std::string &profile : profiles)
        for (const uint64_t slots : sizes)
            for (size_t i = 0; i < policies; ++i)
                made.rows.push_back(row_of(profile, "policy" + std::to_string(i), slots));
    return made;
}

}  // namespace

TEST_CASE("the checker finds what is wrong") {
    CHECK(flaw_in("<a><b x=\"1 > 0\"/>t &amp; u</a>") == "");
    CHECK(flaw_in("<a><b></a></b>") != "");
    CHECK(flaw_in("<a>") != "");
    CHECK(flaw_in("a & b") != "");
    CHECK(flaw_in("<a x=1></a>") != "");
    CHECK(flaw_in("<a x=\"&\"></a>") != "");
    CHECK(flaw_in("a > b") != "");
}

TEST_CASE("pages of every shape are well-formed and need nothing from outside") {
    std::vector<comparison> pages = {comparison{},
                                     sample(1, {64}, {"gpu"}),
                                     sample(6, {16, 32, 64, 128}, {"gpu a", "gpu b"}),
                                     sample(30, {64}, {"gpu"}),
                                     sample(30, {16, 64}, {""}),
                                     sample(1, {16, 32, 64, 128, 200}, {"gpu"})};
    pages.push_back(sample(2, {16, 32}, {"gpu"}));
    for (comparison_row &row : pages.back().rows) {
        row.report.layers.clear();
        row.report.opt_misses = 0;
        row.experts_all = 0;
        row.report.tpot_ms.mean = 0;
    }
    pages.push_back(pages.front());
    pages.back().rows.resize(3);  // reports of which nothing is known
    for (const comparison &page : pages) {
        const std::string html = to_html(page, "moorage compare a.toml");
        CHECK(flaw_in(html) == "");
        for (const char *outside :
             {"http:", "https:", "src=", "href=", "<script", "@import", "url("})
            CHECK_FALSE(contains(html, outside));
        CHECK_FALSE(contains(html, "nan"));
        CHECK_FALSE(contains(html, "inf\""));
    }
}

TEST_CASE("hostile texts stay texts") {
    const std::string hostile = "<script>alert(\"x\")</script> & 'y' \x01 \xff";
    comparison page = sample(2, {16, 32}, {hostile});
    page.title = page.trace = page.shape = hostile;
    for (comparison_row &row : page.rows) {
        row.report.config["cache"]["plugin"] =
            hostile + row.report.config["cache"]["plugin"].get<std::string>();
        row.report.warnings = {hostile};
        row.report.faults = {{hostile, 1}};
        row.report.executor = hostile;
    }
    const std::string html = to_html(page, hostile);
    CHECK(flaw_in(html) == "");
    CHECK_FALSE(contains(html, "<script"));
    CHECK(contains(html, "&lt;script&gt;alert(&quot;x&quot;)"));
    CHECK_FALSE(contains(html, "\x01"));
    CHECK_FALSE(contains(html, "\xff"));
}

TEST_CASE("the page has every plot and every run") {
    comparison page = sample(3, {16, 32, 64}, {"gpu a", "gpu b"});
    page.trace = "prose.safetensors";
    const std::string html = to_html(page, "moorage compare a.toml --html b.html");
    CHECK(contains(html, "<pre>moorage compare a.toml --html b.html</pre>"));
    CHECK(contains(html, "prose.safetensors"));
    CHECK(count_of(html, "mean time per output token on gpu a") == 1);
    CHECK(count_of(html, "mean time per output token on gpu b") == 1);
    // Both profiles miss the same: one plot of misses, one of distances, one map per size.
    CHECK(count_of(html, "aria-label=\"miss rate against cache size\"") == 1);
    CHECK(count_of(html, ">optimum</text>") == 1);
    CHECK(count_of(html, "<figcaption>Distance to the optimum</figcaption>") == 1);
    CHECK(count_of(html, "<figure class=\"map\">") == 3);
    CHECK(count_of(html, ", layer 3: 75.0 %</title>") == 9);
    CHECK(count_of(html, "<svg class=\"time\"") == 18);
    CHECK(contains(html, "32 experts (12.5\u00a0%)"));

    page.rows.back().report.experts.misses += 1;  // now the profiles differ
    const std::string apart = to_html(page, "");
    CHECK(count_of(apart, "aria-label=\"miss rate against cache size\"") == 2);
    CHECK_FALSE(contains(apart, "<pre>"));
}

TEST_CASE("maps of very many layers and policies show the middle size only") {
    comparison page = sample(10, {16, 32, 64}, {"gpu"});
    for (comparison_row &row : page.rows) row.report.layers.resize(250);
    const std::string html = to_html(page, "");
    CHECK(count_of(html, "<figure class=\"map\">") == 1);
    CHECK(contains(html, "<figcaption>32 experts (12.5 %)</figcaption>"));
}

namespace {

// Two servers with two layers of four experts each, three requests' homes, a migration at 1 s.
comparison_row cluster_row(const std::string &policy, double latency_ms, uint64_t bytes) {
    comparison_row row;
    run_report &report = row.report;
    report.requests = 30;
    report.tokens = 300;
    report.executor = "emulator";
    report.profile = "cluster";
    report.bytes.network = 5'000'000;
    *report.config = {{"cluster", {{"models", {"one", "two"}}}},
                      {"placement", {{"plugin", policy}}}};
    cluster_report &of = report.cluster.emplace();
    of.bucket_s = 1;
    of.duration_s = 4;
    of.latency_ms = {latency_ms, latency_ms, latency_ms};
    of.over_time = {{1, 10, 5, 0, 0}, {0.5, 20, 5, 0, 0}, {0.5, 0, 0, 0, 0}, {0.75, 30, 5, 0, 0}};
    of.migrations = {{1, 2, true, 3, 300, 0, 9, 5}, {2, 2, false, 0, 0, 0, 5, 5}};
    of.homes = {{"h0", 10, 100, {latency_ms, 0, 0}, {}, 0.5}, {"h1", 10, 100, {8, 0, 0}, {}, 1}};
    of.devices = {
        {"a.gpu0", 0.5, 0, bytes, 0}, {"a.gpu1", 0.5, 0, bytes, 0}, {"b.gpu0", 0.1, 0, bytes, 0}};
    of.links = {{"a", "b", 3'000'000, 1'000'000, 1, 0.5}, {"b", "a", 1'000'000, 0, 1, 0.1}};
    of.layers_experts = {4, 4};
    of.models_layers = {1, 1};
    of.servers_layers = {{4, 1}, {0, 3}};
    return row;
}

}  // namespace

TEST_CASE("the page of clusters has their plots, and none of caches") {
    comparison page;
    page.rows = {cluster_row("uniform", 16, 1'000'000'000), cluster_row("prism", 4, 1'000'000'000)};
    std::string html = to_html(page, "");
    CHECK(flaw_in(html) == "");
    CHECK(contains(html, "2 servers with 3 devices, requests at 2 homes"));
    for (const char *label : {"Latency by run", "Experts by run", "local ratio over time",
                              "latency over time", "Latency by home", "Bytes by link"})
        CHECK(count_of(html, "aria-label=\"" + std::string(label) + "\"") == 1);
    for (const char *of_caches : {"misses", "TPOT, ms", "hit rate", "<h2>Speed", "<h2>Results"})
        CHECK_FALSE(contains(html, of_caches));
    // A mark for each run that moved, on both plots over time; latency where requests came.
    CHECK(count_of(html, "class=\"mark\"") == 4);
    CHECK(count_of(html, "migration at 1.00 s: 3 copies, 300 B, done after 1.00 s") == 4);
    CHECK(count_of(html, "% local</title>") == 8);
    CHECK(count_of(html, " ms</title>") == 6);
    CHECK(count_of(html, "<figure class=\"map\">") == 2);
    CHECK(count_of(html, "<title>a, one layer 0: 100.0 %</title>") == 2);
    CHECK(count_of(html, "<title>b, two layer 0: 75.0 %</title>") == 2);
    CHECK(contains(html, "a to b, prism\nactivations 3.00 MB, migration 1.00 MB\nbusy 50.0 %"));
    CHECK(count_of(html, "class=\"pale\"") == 2);
    CHECK(count_of(html, "<tr class=\"best\">") == 1);
    page.rows[1].report.cluster->devices[0].name = page.rows[1].report.cluster->devices[1].name =
        "edge.1";  // an ideal device has its server's name
    CHECK(contains(to_html(page, ""), "<title>edge.1, one layer 0: 100.0 %</title>"));

    for (const char *policy : {"uniform", "prism"})
        page.rows.push_back(cluster_row(policy, 2, 2'000'000'000));
    html = to_html(page, "");
    CHECK(flaw_in(html) == "");
    CHECK(count_of(html, "aria-label=\"Latency against expert memory, GB a device\"") == 1);
    CHECK(contains(html, "Of the runs at 1.00 (expert memory, GB a device)."));
    CHECK(count_of(html, "<figure class=\"map\">") == 2);

    page.rows.push_back(row_of("gpu", "lru", 64));
    html = to_html(page, "");
    CHECK(flaw_in(html) == "");
    CHECK(contains(html, "<h2>Results"));
    CHECK(contains(html, "<h2>Clusters"));
    CHECK(count_of(html, "mean time per output token on") == 1);
}

TEST_CASE("pages of clusters of every shape are well-formed") {
    const std::string hostile = "<script>alert(\"x\")</script> & 'y' \x01 \xff";
    comparison page;
    for (size_t i = 0; i < 20; ++i) {
        page.rows.push_back(cluster_row(hostile + std::to_string(i), double(i), 1'000'000));
        cluster_report &of = *page.rows.back().report.cluster;
        for (size_t home = 0; home < 30; ++home)
            of.homes.push_back({hostile + std::to_string(home), home, 1, {1, 1, 1}, {}, 1});
        for (auto &link : of.links) link.from = hostile;
        of.devices[0].name = hostile;
        if (i % 3 == 1) of.over_time.resize(1000);
        if (i % 3 == 2) of = {};
    }
    *page.rows[0].report.config = json();
    const std::string html = to_html(page, hostile);
    CHECK(flaw_in(html) == "");
    CHECK_FALSE(contains(html, "<script"));
    CHECK_FALSE(contains(html, "nan"));
    CHECK_FALSE(contains(html, "inf\""));
    CHECK(contains(html, "The first 8 of 20 runs."));
    CHECK(contains(html, "the highest 12 of"));
    comparison empty;
    empty.rows.resize(2);
    for (comparison_row &row : empty.rows) row.report.cluster.emplace();
    CHECK(flaw_in(to_html(empty, "")) == "");
}

TEST_CASE("marks of equal looks share a lane at the bottom") {
    line_chart chart{"l", "x", "y", {{"s", {5, false}, {{0, 1, ""}, {20, 1, ""}}, true}}};
    chart.marks = {{0, 10, {5, false}, "a"}, {5, 6, {7, false}, "b"}, {10, 99, {5, false}, "c"}};
    const std::string svg = draw(chart);
    CHECK(flaw_in(svg) == "");
    // Left 52, right 560 - 6.7 - 52 = 501.3, to 20; bottom 290. What ends later ends at the edge.
    CHECK(contains(svg, "<rect x=\"52\" y=\"284\" width=\"224.7\" height=\"5\" class=\"bar\"/>"));
    CHECK(contains(svg, "<rect x=\"164.3\" y=\"278\" width=\"22.5\" height=\"5\" class=\"bar\"/>"));
    CHECK(
        contains(svg, "<rect x=\"276.7\" y=\"284\" width=\"224.7\" height=\"5\" class=\"bar\"/>"));
}

TEST_CASE("bars end where their values are") {
    const series_look look{0, false};
    bar_chart chart{"l", "x", {{"one", look}}, {{"a", {{50, 10, "h"}}}, {"b", {{100, 0, "<"}}}}};
    const std::string svg = draw(chart);
    CHECK(flaw_in(svg) == "");
    // Left of 6.7 + 14, right of 560 - 56, axis to 100: 20.7 + 40 % and 50 % of 483.3.
    CHECK(contains(svg, "x=\"20.7\" y=\"10\" width=\"193.3\" height=\"15\" class=\"bar\""));
    CHECK(contains(svg, "x=\"214\" y=\"10\" width=\"48.3\" height=\"15\" class=\"pale\""));
    CHECK(contains(svg, "x=\"20.7\" y=\"34\" width=\"483.3\" height=\"15\" class=\"bar\""));
    CHECK(draw(bar_chart{}) == "");
    chart.blocks[0].bars[0].value = chart.blocks[1].bars[0].value = std::nan("");
    CHECK(draw(chart) == "");
}

TEST_CASE("axes have round ticks that cover the data") {
    const round_axis simple = axis_for(0, 87, 5);
    CHECK(simple.ticks == std::vector<double>{0, 20, 40, 60, 80, 100});
    CHECK(simple.high == 100);
    CHECK(simple.label(40) == "40");
    const round_axis small = axis_for(1, 1.19, 5);
    CHECK(small.decimals == 2);
    CHECK(small.label(small.ticks.front()) == "1.00");
    CHECK(small.label(small.ticks[1]) == "1.05");
    CHECK(small.place(1.1, 0, 200) == doctest::Approx(100));
    std::srand(1);
    for (int i = 0; i < 2000; ++i) {
        const double scale = std::pow(10, std::rand() % 13 - 6);
        const double low = (std::rand() % 1000 - 300) * scale;
        const double high = low + (std::rand() % 1000) * scale;
        const round_axis axis = axis_for(low, high, 5);
        CHECK(axis.low <= low + 1e-6 * scale);
        CHECK(axis.high >= high - 1e-6 * scale);
        CHECK(axis.ticks.size() >= 2);
        CHECK(axis.ticks.size() <= 8);
        const double step = axis.ticks[1] - axis.ticks[0];
        const double lead = step / std::pow(10, std::floor(std::log10(step) + 1e-9));
        const bool is_round =
            std::abs(lead - 1) < 1e-6 || std::abs(lead - 2) < 1e-6 || std::abs(lead - 5) < 1e-6;
        CHECK(is_round);
    }
}

TEST_CASE("points lie where their values are, and names do not overlap") {
    line_chart chart{"l", "x", "y", {}};
    const double ends[] = {50, 50.5, 51};
    for (size_t i = 0; i < 3; ++i)
        chart.series.push_back({"s" + std::to_string(i),
                                {i, false},
                                {{10, 100, "first"}, {20, ends[i], "<last>"}},
                                true});
    const std::string svg = draw(chart);
    CHECK(flaw_in(svg) == "");
    CHECK(contains(svg, "&lt;last&gt;"));
    // Width 560, left 52, right 560 - 2 * 6.7 - 52 = 494.6; top 34, bottom 290; x to 20, y to 100.
    CHECK(contains(svg, "d=\"M273.3 34L494.6 162\""));    // half way; top; right; half way
    CHECK(contains(svg, "d=\"M273.3 34L494.6 160.7\""));  // 50.5 of 100
    // Names are 15 apart, in the order of the ends: highest value on top.
    std::vector<double> heights;
    for (const char *name : {">s2</text>", ">s1</text>", ">s0</text>"}) {
        const size_t at = svg.find(name);
        REQUIRE(at != std::string::npos);
        const size_t y = svg.rfind(" y=\"", at) + 4;
        heights.push_back(std::strtod(svg.c_str() + y, nullptr));
    }
    CHECK(heights[1] - heights[0] >= 14.9);
    CHECK(heights[2] - heights[1] >= 14.9);
}

TEST_CASE("charts without a finite point are left out, and bad points skipped") {
    const double nan = std::nan("");
    CHECK(draw(line_chart{"l", "x", "y", {}}) == "");
    CHECK(draw(line_chart{"l", "x", "y", {{"s", {}, {{nan, 1, ""}}, true}}}) == "");
    CHECK(draw(dot_chart{}) == "");
    CHECK(draw(heat_map{}) == "");
    const double infinite = std::numeric_limits<double>::infinity();
    const std::string svg =
        draw(line_chart{"l", "x", "y", {{"s", {}, {{1, 2, ""}, {2, infinite, ""}}, true}}});
    CHECK(count_of(svg, "class=\"reach\"") == 1);
}

TEST_CASE("the colour scale has its ends and grows lighter all the way") {
    CHECK(scale_color(0) == "#440154");
    CHECK(scale_color(1) == "#fde725");
    CHECK(scale_color(-5) == scale_color(0));
    CHECK(scale_color(7) == scale_color(1));
    double previous = 0;
    for (int i = 0; i <= 100; ++i) {
        const std::string color = scale_color(i / 100.0);
        const auto channel = [&](size_t at) {
            return double(std::strtoul(color.substr(at, 2).c_str(), nullptr, 16));
        };
        const double light = 0.2126 * channel(1) + 0.7152 * channel(3) + 0.0722 * channel(5);
        CHECK(light >= previous);
        previous = light;
    }
}

TEST_CASE("thirty series all look different") {
    std::vector<std::string> looks;
    for (size_t i = 0; i < 30; ++i) {
        const series_look look{i, false};
        const std::string all = look.color_class() + look.dashes() + marker(look, 0, 0, 4);
        CHECK(std::count(looks.begin(), looks.end(), all) == 0);
        looks.push_back(all);
    }
}
