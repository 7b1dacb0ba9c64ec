// Goal: runs over clusters side by side show requests, calls and bytes, mark the fastest fairly and
// fit 80 columns. Runs on one machine may stand beside them. Method: hand-made reports with known
// lines, the width as a property, and toy runs with times worked by hand.
#include "core/base/json.h"
#include "tools/comparison/cluster_comparison.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "core/base/text.h"
#include "tools/cluster/cluster_run.h"
#include "core/report/figures.h"
#include "toy_machine.h"

namespace cluster_comparison_test {

using namespace moorage::core;

namespace {

struct choice {
    std::string placement = "uniform";
    double latency_ms = 100;
    double local_ratio = 0.5;
    uint64_t device_bytes = 2'000'000'000;
    bool moves = false;
};

comparison_row row_of(const choice &chosen) {
    comparison_row row;
    run_report &report = row.report;
    report.executor = "emulator";
    report.profile = "cluster";
    report.requests = 10;
    report.tokens = 100;
    report.ttft_ms.mean = chosen.latency_ms / 2;
    report.tpot_ms.mean = chosen.latency_ms / 10;
    report.bytes.network = 3'000'000;
    *report.config = {{"cluster", {{"servers", 2}, {"devices", 2}}},
                      {"placement", {{"plugin", chosen.placement}}}};
    cluster_report &cluster = report.cluster.emplace();
    cluster.policy = chosen.placement;
    cluster.duration_s = 4;
    cluster.bucket_s = 1;
    cluster.latency_ms = {chosen.latency_ms, chosen.latency_ms, chosen.latency_ms * 2};
    cluster.experts_ms_per_token = chosen.latency_ms / 20;
    cluster.homes = {{"a", 10, 100, cluster.latency_ms, {}, chosen.local_ratio}};
    cluster.local_ratio = chosen.local_ratio;
    cluster.devices = {{"a.gpu0", 0.5, 0, chosen.device_bytes, 0},
                       {"b.gpu0", 0.1, 0, chosen.device_bytes, 0}};
    cluster.servers_layers = {{2}, {2}};
    if (chosen.moves)
        cluster.migrations = {{1, 2, true, 3, 300, 0, 9, 5}, {2, 2, false, 0, 0, 0, 5, 5}};
    return row;
}

comparison_row single_row() {
    comparison_row row;
    row.report.profile = "rtx3090";
    row.report.ttft_ms.mean = 30;
    row.report.tpot_ms.mean = 7;
    row.report.total_ms = 100;
    row.report.experts = {.requested = 100, .hits = 75, .misses = 25};
    *row.report.config = {{"cache", {{"plugin", "lru"}}}, {"memory", {{"experts", 64}}}};
    row.slots = 64;
    return row;
}

bool contains(const std::string &text, const std::string &part) {
    return text.find(part) != std::string::npos;
}

size_t widest(const std::string &text) {
    size_t columns = 0;
    for (const std::string &line : split(text, '\n')) columns = std::max(columns, columns_of(line));
    return columns;
}

}  // namespace

TEST_CASE("the table of clusters has what matters there") {
    const comparison table{
        "", "", "", {row_of({}), row_of({"prism", 40, 0.9, 2'000'000'000, true})}};
    const std::string text = to_text(table);
    CHECK(contains(text,
                   "  placement  latency      p99  TTFT  experts   local  network  moves\n"
                   "  uniform      100.0    200.0  50.0     5.00  50.0 %  3.00 MB      0\n"
                   "  prism         40.0 *   80.0  20.0     2.00  90.0 %  3.00 MB      1\n"));
    CHECK(contains(text, "- prism has the lowest latency, 60.0 % below uniform\n"));
    for (const char *of_caches : {"hit rate", "tokens/s", "GB/token", "GPU computes", "no profile"})
        CHECK_FALSE(contains(text, of_caches));
}

TEST_CASE("repeats of clusters have an interval, their mean, and no winner by chance") {
    comparison table;
    table.rows = {row_of({.placement = "prism", .latency_ms = 9}),
                  row_of({.placement = "joint", .latency_ms = 10})};
    table.rows[0].repeats_ms = {9, 18, 27};
    table.rows[1].repeats_ms = {10, 20, 30};
    std::string text = to_text(table);
    CAPTURE(text);
    CHECK(contains(text, "  placement  latency      95 %  "));
    CHECK(contains(text, "  prism         18.0 *  ± 22.4"));
    CHECK(contains(text, "- prism has the lowest latency, 10.0 % below joint"));
    table.rows[1].repeats_ms = {10, 18.5, 26};
    CHECK(contains(to_text(table), "- prism and joint are not told apart by 3 repeats"));
}

TEST_CASE("one machine stands beside a cluster, with its own table below") {
    const comparison table{"", "", "", {row_of({}), single_row()}};
    const std::string text = to_text(table);
    CHECK(contains(text, "100    10.00"));  // latency and TPOT of the cluster
    CHECK(contains(text, "-     7.00"));
    CHECK(contains(text, "rtx3090\n"));
    CHECK(contains(text, "75.0 %"));
    CHECK_FALSE(contains(text, "lowest latency"));  // there is nothing to be lower than
    const comparison_view view = view_of(table);
    CHECK(view.profiles == std::vector<std::string>{"rtx3090"});
    CHECK(view.group[0] != view.group[1]);
    const json document = to_json(table);
    CHECK(document["results"][0]["cluster"]["latency_ms"]["mean"] == 100.0);
    CHECK_FALSE(document["results"][1].contains("cluster"));
}

TEST_CASE("memory that was swept parts the table; runs compare within it") {
    std::vector<comparison_row> rows;
    for (const char *policy : {"uniform", "prism"})
        for (const uint64_t bytes : {2'000'000'000u, 4'000'000'000u}) {
            // prism is twice as fast on little memory, and a quarter slower on much.
            const bool prism = *policy == 'p';
            rows.push_back(
                row_of({policy, prism ? (bytes < 3e9 ? 50.0 : 100.0) : (bytes < 3e9 ? 100.0 : 80.0),
                        0.5, bytes}));
            rows.back().report.config["cluster"]["servers.expert_memory_bytes"] =
                std::to_string(bytes);
        }
    const comparison table{"", "", "", rows};
    const comparison_view view = view_of(table);
    CHECK(view.labels == std::vector<std::string>{"uniform", "uniform", "prism", "prism"});
    CHECK(view.best == std::vector<bool>{false, true, true, false});
    CHECK(view.storage_bytes[1] == 2 * view.storage_bytes[0]);
    const std::string text = to_text(table);
    const size_t little = text.find("2.00 GB for experts a device");
    const size_t much = text.find("4.00 GB for experts a device");
    REQUIRE(much != std::string::npos);
    CHECK(little < much);
    const size_t prism = text.find("\n  prism");
    CHECK(little < prism);
    CHECK(prism < much);
    CHECK(contains(text, "uniform has the lowest latency at 1 of 2 settings"));
    // sqrt(50 / 100 * 100 / 80) = 0.79: on average prism is ahead, and nothing is claimed.
    CHECK_FALSE(contains(text, "below"));
}

TEST_CASE("more local calls that are slower are pointed out, and migrations that did not end") {
    comparison table{"", "", "", {row_of({}), row_of({"prism", 40, 0.4})}};
    table.rows[1].report.cluster->migrations = {{1, -1, true, 3, 300, 0, 9, 5}};
    const std::vector<std::string> lines = cluster_reading(table, view_of(table));
    REQUIRE(lines.size() == 3);
    CHECK(contains(lines[1], "uniform keeps most (50.0 %), yet prism (40.0 %) is faster"));
    CHECK(lines[2] == "1 of 1 migrations were not done at the end");
}

TEST_CASE("80 columns hold, whatever the names and figures") {
    for (const double latency_ms : {1e-4, 1.0, 123'456.0, 9'876'543.0})
        for (const bool mixed : {false, true}) {
            comparison table{std::string(200, 't'), "", "", {}};
            for (size_t i = 0; i < 6; ++i) {
                table.rows.push_back(
                    row_of({std::string(10 * i + 3, char('a' + i)), latency_ms * double(i + 1), 1,
                            (i + 1) * 1'000'000'000, true}));
                table.rows.back().report.bytes.network = 999'999'999'999;
                table.rows.back().config = "some_configuration_" + std::to_string(i);
            }
            if (mixed) table.rows.push_back(single_row());
            const comparison_view view = view_of(table);
            CHECK(widest(cluster_table(table, view)) <= 80);
            CHECK(widest(to_text(table)) <= (mixed ? 100 : 80));
        }
}

TEST_CASE("toy runs: what memory brings, by hand") {
    toy::folder folder;
    run_resources shared;
    REQUIRE(shared.scan(std::vector{std::filesystem::path(MOORAGE_BINARY_DIR) / "plugins"}).ok());
    const trace_data data = toy::routing({{{0}}, {{1}}}, 2, {0, 2}, false);
    toy::write_files(folder, data.layers, data.experts, data.top_k);
    REQUIRE(write_trace(data, folder / "trace.safetensors").ok());
    folder.write("come.csv", "arrival_s,input,output\n0.000001,1,2\n");
    folder.write("run.toml", R"([cluster]
duration_s = 1
[[cluster.models]]
name = "toy"
shape = "shape.toml"
[[cluster.servers]]
name = "a"
gpus = "device.toml"
expert_memory_bytes = 100000
workload = "some"
[[cluster.servers]]
name = "b"
gpus = "device.toml"
expert_memory_bytes = 100000
[[cluster.links]]
from = "*"
to = "*"
bits_per_s = 8e9
latency_s = 500e-9
[[cluster.workloads]]
name = "some"
trace = "trace.safetensors"
arrivals = "come.csv"
[placement]
plugin = "redundance"
interval_s = 0
)");
    comparison table;
    for (const char *bytes : {"100000", "200000"}) {
        const std::vector<override_value> change{{"cluster", "servers.expert_memory_bytes", bytes}};
        const auto config = load_run_config(folder / "run.toml", change);
        REQUIRE(config.ok());
        auto done = run_either(*config, shared, {});
        REQUIRE(done.ok());
        table.rows.emplace_back();
        table.rows.back().report = std::move(*done);
    }
    // One expert each: the second token calls b, 280 + 1300. Both experts: 280 + 280.
    const auto latency_ns = [&](size_t row) {
        return 1e6 * table.rows[row].report.cluster->latency_ms.mean;
    };
    CHECK(latency_ns(0) == doctest::Approx(1580));
    CHECK(latency_ns(1) == doctest::Approx(560));
    const comparison_view view = view_of(table);
    CHECK(view.storage_bytes == std::vector<uint64_t>{200'000, 400'000});
    const cluster_report &small = *table.rows[0].report.cluster;
    CHECK(small.layers_experts == std::vector<uint32_t>{2});
    CHECK(small.models_layers == std::vector<uint32_t>{1});
    CHECK(small.servers_layers == std::vector<std::vector<uint32_t>>{{1}, {1}});
    CHECK(table.rows[1].report.cluster->servers_layers[0] == std::vector<uint32_t>{2});
    const std::string text = to_text(table);
    CHECK(widest(text) <= 80);
    CHECK(contains(text, " 50.0 %"));
    CHECK(contains(text, "100.0 %"));
}

}  // namespace cluster_comparison_test
