// placement_report_test.cpp - goal: the report of a placement is right, fits a terminal and holds
// the contract's fields. Method: the small cluster worked out by hand, and texts measured.
#include <doctest/doctest.h>

#include <sstream>
#include <string>

#include "core/base/json.h"
#include "tools/placement/placement_stage.h"
#include "core/report/figures.h"
#include "tools/comparison/placement_report.h"
#include "tests/unit/small_scene.h"

namespace placement_report_test {

using namespace moorage::core;
using namespace moorage::test;

namespace {

plan hand_plan(const scene &scene) {
    plan result{"hand", {{0, 0}, {0, 1}, {1, 2}, {2, 1}, {3, 2}}, {{"curvature", 0.25}}, 0.002};
    REQUIRE(check_plan(scene, result).ok());
    return result;
}

placement_report report_of(scene scene, size_t rows) {
    placement_report report;
    report.title = "a <title> & more";
    report.statistics = {"mixed: drawn, popularity by Zipf 1, seed 1"};
    report.scenes.push_back({std::move(scene), {}});
    for (size_t i = 0; i < rows; ++i) {
        placement_row row;
        row.placement = hand_plan(report.scenes[0].setup);
        row.placement.policy = i == 0 ? "hand" : "hand_number_" + std::to_string(i);
        row.figures = predict(report.scenes[0].setup, row.placement);
        report.rows.push_back(std::move(row));
    }
    return report;
}

size_t widest(const std::string &text) {
    size_t most = 0;
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) most = std::max(most, columns_of(line));
    return most;
}

size_t count_of(const std::string &text, const std::string &part) {
    size_t count = 0;
    for (size_t position = text.find(part); position != std::string::npos;
         position = text.find(part, position + 1))
        ++count;
    return count;
}

}  // namespace

TEST_CASE("what is predicted agrees with the remote calls counted for moves") {
    const placement_report report = report_of(small_scene(), 1);
    const moorage::latency_figures &figures = report.rows[0].figures;
    // West misses experts 1 and 3 (0.25 + 0.5 a token, 1 token/s), east 0 and 2 (0.1, 10 tokens/s).
    CHECK(figures.remote_calls_per_s == doctest::Approx(1.75));
    CHECK(figures.remote_calls_per_s ==
          doctest::Approx(remote_per_s(report.scenes[0].setup, report.rows[0].placement.copies)));
    CHECK(figures.calls_per_s == doctest::Approx(22));  // two layers of 11 tokens/s
    CHECK(figures.local_ratio == doctest::Approx(1 - 1.75 / 22));
    CHECK(figures.absent == 0);
}

TEST_CASE("the map counts each expert of a layer once a server") {
    const scene scene = small_scene();
    const auto shares = layer_shares(scene, hand_plan(scene));
    REQUIRE(shares.size() == 2);
    CHECK(shares[0] == std::vector<double>{0.5, 0.5});  // expert 0 twice at west counts once
    CHECK(shares[1] == std::vector<double>{0.5, 0.5});
    auto two = two_model_scene();
    plan hand_made{"hand", {{0, 0}, {1, 0}, {2, 1}, {3, 1}, {4, 2}, {5, 2}}, {}, 0};
    REQUIRE(check_plan(two, hand_made).ok());
    CHECK(layer_shares(two, hand_made)[0] == std::vector<double>{1, 1, 0});
    CHECK(layer_shares(two, hand_made)[1] == std::vector<double>{0, 0, 1});
}

TEST_CASE("JSON has the contract's fields, memory by server, latency by home") {
    const placement_report report = report_of(small_scene(), 1);
    const json figures = to_json(report);
    CHECK(figures["policy"] == "hand");
    CHECK(figures["objective"] == doctest::Approx(1.75));
    CHECK(figures["objective_is"] == "remote_calls_per_s");
    CHECK(figures["latency_ms"].get<double>() ==
          doctest::Approx(1e3 * report.rows[0].figures.token_s));
    CHECK(figures["placement"].size() == 5);
    REQUIRE(figures["memory"].size() == 2);
    CHECK(figures["memory"][0]["server"] == 0);
    CHECK(figures["memory"][0]["name"] == "west");
    CHECK(figures["memory"][0]["used"] == 30);
    CHECK(figures["memory"][0]["capacity"] == 40);
    CHECK(figures["memory"][1]["devices"][0]["used"] == 20);
    CHECK(figures["seconds"] == 0.002);
    CHECK(figures["facts"]["curvature"] == 0.25);
    REQUIRE(figures["homes"].size() == 2);
    // Homes' latencies, by their tokens a second, are the latency.
    const double mean = (figures["homes"][0]["latency_ms"].get<double>() +
                         10 * figures["homes"][1]["latency_ms"].get<double>()) /
                        11;
    CHECK(mean == doctest::Approx(figures["latency_ms"].get<double>()));
    // The same object is a plan file.
    CHECK(parse_plan(figures.dump(), "made.json", report.scenes[0].setup).ok());
}

TEST_CASE("with a cloud the objective is what is saved") {
    scene scene = small_scene();
    give_cloud(scene);
    const placement_report report = report_of(std::move(scene), 1);
    const json figures = to_json(report);
    CHECK(figures["objective_is"] == "saved_ms");
    CHECK(figures["objective"].get<double>() + figures["latency_ms"].get<double>() ==
          doctest::Approx(figures["empty_latency_ms"].get<double>()));
    CHECK(figures["objective"].get<double>() > 0);
}

TEST_CASE("texts fit 80 columns whatever the names, and say what was refused") {
    scene scene = small_scene();
    scene.server_names[0] = scene.device_names[0] = scene.home_names[0] = std::string(200, 'n');
    CHECK(widest(to_text(report_of(scene, 1))) <= 80);
    placement_report several = report_of(scene, 4);
    several.scenes[0].settings = {{"cluster.servers.expert_memory_bytes", "2500000000"},
                                  {"cluster.users.count", "20"}};
    several.rows[2].placement = {std::string(60, 'p'), {}, {}, 0};
    several.rows[2].refusal = "placement plugin smartmoe: plan failed: " + std::string(90, 'x');
    const std::string text = to_text(several);
    CHECK(widest(text) <= 80);
    CHECK(text.find("no plan") != std::string::npos);
    CHECK(text.find("smartmoe: plan failed") != std::string::npos);
    const json results = to_json(several)["results"];
    REQUIRE(results.size() == 4);
    CHECK(results[2]["refusal"] == several.rows[2].refusal);
    CHECK(!results[2].contains("latency_ms"));
    CHECK(results[1]["settings"]["cluster.users.count"] == "20");
}

TEST_CASE("a page carries a map per plan, and no markup from outside") {
    const placement_report report = report_of(small_scene(), 3);
    const std::string page = to_html(report, "moorage place <x>");
    CHECK(page.find("a &lt;title&gt; &amp; more") != std::string::npos);
    CHECK(page.find("<title> &") == std::string::npos);
    CHECK(page.find("place &lt;x&gt;") != std::string::npos);
    CHECK(count_of(page, "\"layer_shares\":") == 3);
    CHECK(page.find("\"servers\":[\"") != std::string::npos);
}

}  // namespace placement_report_test
