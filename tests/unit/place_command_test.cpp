// place_command_test.cpp - goal: `moorage place` keeps the contract: fields, exit codes, plans that
// come back as they were, bytes that do not change. Method: the built program on the smallest
// cluster of configs/clusters; its figures are compared with those of the library.
#include <doctest/doctest.h>

#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "core/base/json.h"
#include "core/config/run_config.h"
#include "core/report/figures.h"
#include "tools/comparison/placement_report.h"

namespace place_command_test {

using namespace moorage::core;

namespace {

namespace fs = std::filesystem;

const fs::path source = MOORAGE_SOURCE_DIR;
const fs::path tiny = source / "configs/clusters/tiny.toml";

struct outcome {
    int code = -1;
    std::string output, errors;
};

// A file for the life of a test.
struct scratch {
    fs::path path;
    explicit scratch(const std::string &name)
        : path(fs::temp_directory_path() /
               ("moorage-place-" + std::to_string(getpid()) + "-" + name)) {}
    ~scratch() { fs::remove(path); }
    std::string text() const {
        std::ifstream input(path);
        return {std::istreambuf_iterator<char>(input), {}};
    }
};

outcome moorage_place(const std::string &arguments) {
    const scratch output("out"), errors("errors");
    const std::string line = std::string(MOORAGE_BINARY_DIR) + "/bin/moorage place " + arguments +
                             " >" + output.path.string() + " 2>" + errors.path.string();
    const int state = std::system(line.c_str());
    return {WIFEXITED(state) ? WEXITSTATUS(state) : -1, output.text(), errors.text()};
}

json place_figures(const std::string &arguments) {
    const outcome done = moorage_place(tiny.string() + " " + arguments + " --json -");
    REQUIRE_MESSAGE(done.code == 0, done.errors);
    return parse_json(done.output);
}

scene tiny_scene() {
    const auto config = load_run_config(tiny, {});
    REQUIRE(config.ok());
    auto result = make_scene(*config->cluster, tiny.parent_path());
    REQUIRE(result.ok());
    return std::move(result).value();
}

bool has(const std::string &text, const std::string &part) {
    return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("the fields of the contract are there and agree with the library") {
    const json figures = place_figures("");
    const scene tiny_cluster = tiny_scene();
    CHECK(figures["policy"] == "slim_greedy");
    const auto parsed = parse_plan(figures.dump(), "output", tiny_cluster);
    REQUIRE_MESSAGE(parsed.ok(), (parsed.ok() ? "" : parsed.failure().text));
    CHECK(!parsed->copies.empty());
    const moorage::latency_figures expected = predict(tiny_cluster, *parsed);
    CHECK(figures["latency_ms"].get<double>() == stable(1e3 * expected.token_s));
    CHECK(figures["objective"].get<double>() == stable(1e3 * expected.saved_s));
    CHECK(figures["local_ratio"].get<double>() == stable(expected.local_ratio));
    const auto used = device_used_bytes(tiny_cluster, parsed->copies);
    REQUIRE(figures["memory"].size() == 2);
    for (size_t i = 0; i < 2; ++i) {
        CHECK(figures["memory"][i]["used"] == used[i]);
        CHECK(figures["memory"][i]["capacity"] == uint64_t{1'000'000'000});
    }
    CHECK(figures["seconds"].get<double>() >= 0);
    CHECK(has(figures["statistics"][0], "both: drawn, popularity by Zipf 0.8, seed 1"));
}

TEST_CASE("equal calls give equal bytes but for the policy's time") {
    const auto strip = [](json figures) {
        for (json &row : figures["results"]) row.erase("seconds");
        return figures.dump();
    };
    const std::string arguments = "--policies slim_greedy,lfu,random";
    CHECK(strip(place_figures(arguments)) == strip(place_figures(arguments)));
}

TEST_CASE("several policies stand side by side, in their order and within 80 columns") {
    const outcome done = moorage_place(tiny.string() + " --policies random,slim_greedy,lfu");
    REQUIRE_MESSAGE(done.code == 0, done.errors);
    size_t widest = 0, position = 0;
    std::istringstream lines(done.output);
    for (std::string line; std::getline(lines, line);) widest = std::max(widest, columns_of(line));
    CHECK(widest <= 80);
    for (const char *name : {"\nrandom", "\nslim_greedy", "\nlfu"}) {
        CHECK(done.output.find(name) > position);
        position = done.output.find(name);
    }
    const json results = place_figures("--policies random,slim_greedy,lfu")["results"];
    REQUIRE(results.size() == 3);
    // The greedy adds the largest saving, so it is not behind a random choice.
    CHECK(results[1]["latency_ms"].get<double>() <= results[0]["latency_ms"].get<double>());
}

TEST_CASE("a plan that was written is placed again, and refused elsewhere") {
    const scratch plan("plan.json");
    const json first = place_figures("--out " + plan.path.string());
    const json again = place_figures("--plan " + plan.path.string());
    CHECK(again["placement"] == first["placement"]);
    CHECK(again["latency_ms"] == first["latency_ms"]);
    CHECK(again["policy"] == "slim_greedy");
    const outcome other_cluster = moorage_place(
        tiny.string() + " --set cluster.servers.count=3 --plan " + plan.path.string());
    CHECK(other_cluster.code == 1);
    CHECK(has(other_cluster.errors, "was made for 2 devices, and this cluster has 3"));
    const outcome smaller =
        moorage_place(tiny.string() + " --set cluster.servers.expert_memory_bytes=1e8 --plan " +
                      plan.path.string());
    CHECK(smaller.code == 1);
    CHECK(has(smaller.errors, "which has room for 100000000"));
}

TEST_CASE("what is swept becomes rows with their settings") {
    const json results = place_figures(
        "--policies lfu --sweep cluster.servers.expert_memory_bytes=5e8,1e9")["results"];
    REQUIRE(results.size() == 2);
    for (size_t i = 0; i < 2; ++i) {
        CHECK(results[i]["settings"]["cluster.servers.expert_memory_bytes"] ==
              (i == 0 ? "5e8" : "1e9"));
        CHECK(results[i]["memory"][0]["capacity"] ==
              (i == 0 ? uint64_t{500'000'000} : uint64_t{1'000'000'000}));
    }
    const scratch page("page.html");
    const outcome done =
        moorage_place(tiny.string() + " --policies lfu,random --html " + page.path.string() +
                      " --sweep cluster.servers.expert_memory_bytes=5e8,1e9");
    CHECK(done.code == 0);
    const std::string html = page.text();
    CHECK(has(html, "cluster.servers.expert_memory_bytes"));
    CHECK(has(html, "\"servers\":[\"edge.0\""));
}

TEST_CASE("a swept value that is impossible costs its rows alone") {
    // An expert of demo has 73,728 bytes; each of three servers needs 64 of 192: 1e6 holds 13.
    const fs::path local = source / "configs/clusters/local.toml";
    const scratch file("sweep.json");
    const outcome done =
        moorage_place(local.string() + " --policies prism,lfu --json " + file.path.string() +
                      " --sweep cluster.servers.expert_memory_bytes=1e6,2e7");
    CHECK(done.code == 1);
    CHECK(has(done.errors, "prism, cluster.servers.expert_memory_bytes=1e6: "));
    CHECK(has(done.output, "FAILED"));
    const json results = parse_json(file.text())["results"];
    REQUIRE(results.size() == 4);
    for (size_t i = 0; i < 4; ++i) {
        CHECK(results[i].contains("failed") == (i < 2));
        CHECK(results[i].contains("latency_ms") == (i >= 2));
        CHECK(results[i]["settings"]["cluster.servers.expert_memory_bytes"] ==
              (i < 2 ? "1e6" : "2e7"));
    }
}

TEST_CASE("wrong usage is told from failure") {
    const std::string config = tiny.string();
    for (const auto &test_case :
         {std::pair<std::string, const char *>{config + " --policies slim_gredy", "slim_greedy"},
          {config + " --policies lfu,random --out /dev/null", "--out writes one plan"},
          {config + " --set placement.nonsense=1", "nonsense"},
          {(source / "configs/quickstart.toml").string(), "no [cluster]"},
          {config + " --sweep cluster.servers.count", "--sweep"}}) {
        // Not a structured binding: a lambda, and so an assertion, cannot capture one in C++17.
        const auto &arguments = test_case.first;
        const outcome done = moorage_place(arguments);
        CHECK_MESSAGE(done.code == 2, arguments, ": ", done.errors);
        CHECK_MESSAGE(has(done.errors, test_case.second), arguments, ": ", done.errors);
    }
    CHECK(moorage_place("no/such/file.toml").code != 0);
}

}  // namespace place_command_test
