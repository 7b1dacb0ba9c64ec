// Goal: no figure of a run's report is a number that nothing ever assigns. Each is measured by some
// run, or null. Method: runs that together use all features, the union of their JSON by path, and a
// complaint for every number that is 0 in all of them. Each key of the contract must be among the
// paths.
#include <doctest/doctest.h>

#include <map>
#include <set>

#include "core/base/json.h"
#include "tools/cluster/cluster_run.h"
#include "core/pipeline/run.h"
#include "core/source/synth.h"
#include "tests/unit/toy_run.h"

namespace report_keys_test {

using namespace moorage::core;
namespace test = moorage::test;

namespace {

const std::filesystem::path binaries = MOORAGE_BINARY_DIR;

// By path, array elements all as one: whether a number was ever other than 0.
struct seen {
    std::map<std::string, bool> numbers;
    std::set<std::string> paths;
    void add(const json &value, const std::string &path) {
        paths.insert(path);
        if (value.is_number()) numbers[path] = numbers[path] || value.get<double>() != 0;
        if (value.is_object())
            for (const auto &[key, inner] : value.items())
                if (key != "config" && key != "faults") add(inner, path + "/" + key);
        if (value.is_array())
            for (const json &inner : value) add(inner, path + "/*");
    }
};

struct bench : test::toy_run {
    seen collected;

    bench() : toy_run({"plugins", "tests/policies/substitute.so"}) {
        const synth_options options{.layers = 4,
                                    .experts = 12,
                                    .top_k = 3,
                                    .tokens = 200,
                                    .requests = 6,
                                    .reuse = 0.3,
                                    .gate_scores = true,
                                    .predictions = 6,
                                    .prediction_accuracy = 0.6,
                                    .seed = 2};
        auto data = synthesize(options);
        REQUIRE(data.ok());
        data->metadata["model"] = "toy";
        write(*data);
        config.experts = 20;
        config.cache.plugin = "lru";
        config.seed = 7;
    }
    void run_it(const run_config &tested_config) {
        const auto done = run_either(tested_config, shared, {});
        if (!done) FAIL(done.failure().text);
        const json report_json = to_json(*done);
        if (report_json["virtual_time"] == true) CHECK(report_json["time_ms"]["policy"].is_null());
        collected.add(report_json, "");
    }
};

}  // namespace

TEST_CASE("every number of a report is measured by some run") {
    bench fixture;
    run_config plain = fixture.config;
    fixture.run_it(plain);  // the optimum

    run_config ahead = fixture.config;  // prefetches that are used, wasted and cut off
    ahead.prefetch.plugin = "next_gate";
    ahead.transport = {"chunked", "test", {}};
    ahead.per_layer = true;
    fixture.run_it(ahead);
    ahead.dispatch.plugin = "overlap";  // the CPU, and loads behind its work
    ahead.prefill = 4;
    ahead.guard = true;
    ahead.guard_window = 4;
    fixture.run_it(ahead);

    run_config cut = fixture.config;  // segments, first contents, budgets that change
    cut.per_layer = true;
    cut.split = 0.512;
    cut.cache.plugin = "lcp";
    cut.budget = {"moepic", "test", {{"tau", int64_t{50}, "test"}, {"zeta", 0.01, "test"}}};
    cut.prefetch.plugin = "moepic";
    fixture.run_it(cut);
    run_config filled = fixture.config;
    filled.cache = {"static", "test", {{"which", std::string("first_layers"), "test"}}};
    fixture.run_it(filled);

    run_config lossy = fixture.config;
    lossy.exact_requests = {2};
    lossy.substitution_max = 0.2;
    lossy.router = {"substitute", "test", {}};
    fixture.run_it(lossy);
    for (const double factor : {0.0, 0.5}) {
        lossy.router = {"reweigh", "test", {{"factor", factor, "test"}}};
        fixture.run_it(lossy);
    }

    run_config read = fixture.config;  // experts beyond host memory, in both phases
    read.host_experts = 22;
    read.disk = (fixture.folder / "disk.toml").string();
    read.prefill = 4;
    fixture.run_it(read);
    read.host_cache = filled.cache;
    read.host_cache_given = true;
    fixture.run_it(read);

    run_config real;  // host time of decisions, text
    real.file = fixture.folder / "real.toml";
    real.executor = "cpu";
    real.profile = "host";
    real.model = std::filesystem::path(MOORAGE_SOURCE_DIR) / "configs/demo";
    real.prompts = {"To be", "or"};
    real.max_tokens = 4;
    real.prefill = 512;
    real.experts = 24;
    real.threads = 1;
    fixture.run_it(real);

    const auto servers = parse_run_config(
        "[run]\nbatch = 4\n[cluster]\nrequests = 6\n"
        "[[cluster.models]]\nname = \"toy\"\nshape = \"shape.toml\"\n"
        "[[cluster.servers]]\nname = \"a\"\ncount = 2\ngpus = \"device.toml\"\n"
        "expert_memory_bytes = 2_600_000\nworkload = \"some\"\n"
        "[[cluster.links]]\nfrom = \"*\"\nto = \"*\"\nbits_per_s = 8e9\nlatency_s = 500e-9\n"
        "[[cluster.workloads]]\nname = \"some\"\ntrace = \"trace.safetensors\"\n"
        "poisson_s = 1e-5\n[placement]\nplugin = \"prism\"\ninterval_s = 0\n"
        "[dispatch]\nplugin = \"prism\"\n",
        fixture.folder / "cluster.toml", {});
    if (!servers) FAIL(servers.failure().text);
    fixture.run_it(*servers);

    for (const auto &entry : fixture.collected.numbers) {
        const std::string &path = entry.first;
        const bool measured = entry.second;
        // cluster_run_test, guard_pipeline_test and texts_test have more than one small run of
        // these.
        if (path.starts_with("/cluster/") || path.starts_with("/text/") ||
            path.starts_with("/guard/"))
            continue;
        CHECK_MESSAGE(measured, path, " is 0 in every run");
    }
    for (const char *key : {"/tokens",
                            "/requests",
                            "/executor",
                            "/profile",
                            "/seed",
                            "/virtual_time",
                            "/tpot_ms/mean",
                            "/tpot_ms/p50",
                            "/tpot_ms/p99",
                            "/ttft_ms/mean",
                            "/ttft_ms/p50",
                            "/ttft_ms/p99",
                            "/tokens_per_s",
                            "/experts/requested",
                            "/experts/hits",
                            "/experts/partial_hits",
                            "/experts/misses",
                            "/experts/hit_rate",
                            "/experts/substituted",
                            "/experts/on_cpu",
                            "/experts/remote",
                            "/experts/loaded",
                            "/bytes/h2d",
                            "/bytes/d2h",
                            "/bytes/network",
                            "/bytes/prefetched",
                            "/bytes/prefetch_used",
                            "/bytes/prefetch_wasted",
                            "/time_ms/compute",
                            "/time_ms/transfer",
                            "/time_ms/stall",
                            "/time_ms/cpu",
                            "/time_ms/policy",
                            "/prediction/accuracy",
                            "/layers/*/stall_ms",
                            "/layers/*/h2d_bytes"})
        CHECK_MESSAGE(fixture.collected.paths.contains(key), key, " is missing");
}

}  // namespace report_keys_test
