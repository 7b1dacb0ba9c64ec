// Goal: a run over a cluster takes the time of the rules, loses no call, and is equal to the byte
// when repeated. Method: the toy machine on two and three servers, schedules worked by hand;
// conservation laws on synthetic routing under several placements; calls served while experts move.
#include "tools/cluster/cluster_run.h"

#include <doctest/doctest.h>

#include <cmath>
#include <fstream>
#include <numeric>

#include "tools/cluster/home_arrivals.h"
#include "tools/cluster/home_requests.h"
#include "tools/placement/scene.h"
#include "core/source/synth.h"
#include "toy_machine.h"

namespace cluster_run_test {

using namespace moorage::core;

namespace {

// Servers a, b, c with one toy GPU each, of which the first `homes` have requests of their own. A
// hidden state is 5 values of 2 bytes; links carry a byte a nanosecond, a message takes 500 more.
// So a call of one token takes 510 there, 100 an expert, 510 back.
struct bench {
    toy::folder folder;
    run_resources shared;
    std::string cluster;  // further keys of [cluster]
    std::string placement = "[placement]\nplugin = \"uniform\"\ninterval_s = 0\n";
    std::string links =
        "[[cluster.links]]\nfrom = \"*\"\nto = \"*\"\nbits_per_s = 8e9\n"
        "latency_s = 500e-9\n";
    std::string workload;  // further keys of it, and further ones
    std::string server;    // further keys of each
    uint32_t room = 1;     // experts of a server

    bench() {
        const std::filesystem::path built(MOORAGE_BINARY_DIR);
        REQUIRE(
            shared.scan(std::vector{built / "plugins", built / "tests/policies/wider.so"}).ok());
    }
    void write(const trace_data &data, uint32_t servers, uint32_t homes, const std::string &csv) {
        toy::write_files(folder, data.layers, data.experts, data.top_k);
        REQUIRE(write_trace(data, folder / "trace.safetensors").ok());
        folder.write("come.csv", "arrival_s,input,output\n" + csv);
        std::string text =
            "[run]\nexecutor = \"emulator\"\nbatch = 4\n[cluster]\nduration_s = 1\n" + cluster +
            "[[cluster.models]]\nname = \"toy\"\nshape = \"shape.toml\"\n";
        for (uint32_t i = 0; i < servers; ++i) {
            text += "[[cluster.servers]]\nname = \"" + std::string(1, char('a' + i)) +
                    "\"\ngpus = \"device.toml\"\nexpert_memory_bytes = " +
                    std::to_string(room * 100'000) + "\n" + server;
            if (i < homes) text += "workload = \"some\"\n";
        }
        text += links;
        text +=
            "[[cluster.workloads]]\nname = \"some\"\ntrace = \"trace.safetensors\"\n"
            "arrivals = \"come.csv\"\n" +
            workload + placement;
        folder.write("run.toml", text);
    }
    run_report run_it(const std::vector<override_value> &changed = {}) {
        const auto config = load_run_config(folder / "run.toml", changed);
        if (!config) FAIL(config.failure().text);
        auto done = run_either(*config, shared, {});
        if (!done) FAIL(done.failure().text);
        return std::move(done).value();
    }
};

double ns(double value) { return value / 1e6; }  // in the report's unit

// The time that a home waited for others: for messages, and for their compute.
std::pair<uint64_t, uint64_t> waits_of(const run_report &report, size_t home) {
    time_causes sum;
    for (const time_causes &phase : report.cluster->homes[home].causes) sum += phase;
    return {sum[cause::network], sum[cause::away]};
}
using waits = std::pair<uint64_t, uint64_t>;

}  // namespace

TEST_CASE("one home, one call: by hand") {
    bench fixture;
    // Expert 0 lies on a, expert 1 on b. The first token needs its own, the second the other's.
    fixture.write(toy::routing({{{0}}, {{1}}}, 2, {0, 2}, false), 2, 1, "0.000001,1,2\n");
    const run_report report = fixture.run_it();
    const cluster_report &cluster = *report.cluster;
    // Gate 170, expert 100, head 10: the first output after 280. Then 170, 510 + 100 + 510, 10.
    CHECK(report.ttft_ms.mean == doctest::Approx(ns(280)));
    CHECK(report.tpot_ms.mean == doctest::Approx(ns(1300)));
    CHECK(cluster.latency_ms.mean == doctest::Approx(ns(1580)));
    CHECK(cluster.experts_ms_per_token.value() == doctest::Approx(ns((100 + 1120) / 2.0)));
    CHECK(cluster.local_ratio == doctest::Approx(0.5));
    CHECK(cluster.remote_call_ms == doctest::Approx(ns(1120)));
    CHECK(cluster.calls == 1);
    CHECK(report.experts.remote == 1);
    CHECK(report.bytes.network == 20);
    REQUIRE(cluster.homes.size() == 1);
    CHECK(cluster.homes[0].name == "a");
    CHECK(cluster.homes[0].tokens == 2);
    CHECK(waits_of(report, 0) == waits{1020, 100});
    REQUIRE(cluster.links.size() == 2);
    CHECK(cluster.links[0].activation_bytes == 10);
    CHECK(cluster.devices[0].served == 0);
    CHECK(cluster.devices[1].served == 1);
}

TEST_CASE("requests that come twice as fast come in half the time, in a run and for nodes") {
    bench fixture;
    fixture.cluster = "requests = 3\n";
    fixture.write(toy::routing({{{0}}, {{1}}}, 2, {0, 2}, false), 2, 1,
                  "0.000001,1,2\n0.5,1,2\n0.9,1,2\n");
    const auto first_at = [&](double faster) {
        auto config = load_run_config(fixture.folder / "run.toml", {});
        REQUIRE(config.ok());
        config->cluster->rate_factor = faster;
        auto scene = make_scene(*config->cluster, fixture.folder.path());
        REQUIRE(scene.ok());
        const auto arrivals = arrivals_of_homes(*config, fixture.shared, *scene, 100);
        REQUIRE(arrivals.ok());
        REQUIRE(arrivals->size() == 3);
        const auto done = run_either(*config, fixture.shared, {});
        REQUIRE(done.ok());
        // It ends with the last request, which takes microseconds.
        CHECK(done->total_ms == doctest::Approx(900 / faster).epsilon(1e-4));
        return (*arrivals)[1].times.arrived_ns;
    };
    CHECK(first_at(1) == 500'000'000);
    CHECK(first_at(2) == 250'000'000);
    CHECK(first_at(0.5) == 1'000'000'000);
}

TEST_CASE("a home's requests are divided among its models and devices, and all of them are there") {
    using counts = std::vector<uint64_t>;
    // 20 * (0.45, 0.33, 0.22) = 9, 6.6, 4.4: 9, 6 and 4 are whole, one is left for the remainder
    // 0.6.
    CHECK(apportioned(20, std::vector{0.45, 0.33, 0.22}) == counts{9, 7, 4});
    CHECK(apportioned(1, std::vector{0.2, 0.5, 0.3}) == counts{0, 1, 0});
    CHECK(apportioned(1, std::vector{0.5, 0.5}) == counts{1, 0});
    CHECK(apportioned(100, std::vector{0.25, 0.75}) == counts{25, 75});
    CHECK(apportioned(7, std::vector{1.0}) == counts{7});
    for (uint64_t total = 1; total < 50; ++total) {
        const counts shares = apportioned(total, std::vector(7, 1.0 / 7));
        CHECK(std::accumulate(shares.begin(), shares.end(), uint64_t{0}) == total);
        CHECK(std::ranges::max(shares) - std::ranges::min(shares) <= 1);
    }
}

TEST_CASE("what another device of the home's server has is on the server, and not remote") {
    bench fixture;
    // Two GPUs of one server, one expert on each. Requests alternate between them, and each token
    // asks for both experts in turn, so one expert of each request is on the other GPU.
    fixture.write(toy::routing({{{0}}, {{1}}}, 2, {0, 2}, false), 1, 1, "0.000001,1,2\n0.5,1,2\n");
    const run_report report = fixture.run_it({{"cluster", "servers.gpu_count", "2"}});
    CHECK(report.cluster->local_ratio == 1);
    CHECK(report.experts.requested == 4);
    CHECK(report.experts.hits == 4);
    CHECK(report.experts.misses == 0);
    CHECK(report.experts.remote == 0);
    CHECK(report.cluster->calls == 0);
    CHECK(report.cluster->links.empty());
}

TEST_CASE("an ideal server that holds everything has no misses and nothing remote") {
    bench fixture;
    fixture.write(toy::routing({{{0}}, {{1}}}, 2, {0, 2}, false), 1, 1, "0.000001,1,2\n");
    std::ifstream config_file(fixture.folder / "run.toml");
    std::string text{std::istreambuf_iterator<char>(config_file), {}};
    const std::string gpu = "gpus = \"device.toml\"\nexpert_memory_bytes = 100000\n";
    text.replace(text.find(gpu), gpu.size(), "flops = 1e12\nexpert_memory_bytes = 200000\n");
    fixture.folder.write("run.toml", text);
    const run_report report = fixture.run_it();
    CHECK(report.cluster->local_ratio == 1);
    CHECK(report.experts.requested == 2);
    CHECK(report.experts.hits == 2);
    CHECK(report.experts.misses == 0);
    CHECK(report.experts.remote == 0);
}

TEST_CASE("two homes call one server at the same time: the second waits for its GPU") {
    bench fixture;
    // Three servers, three experts: 2 lies on c, which a and b both want.
    fixture.write(toy::routing({{{2}}}, 3, {0, 1}, false), 3, 2, "0.000001,1,1\n");
    const run_report report = fixture.run_it();
    REQUIRE(report.cluster->homes.size() == 2);
    CHECK(report.cluster->homes[0].latency_ms.mean == doctest::Approx(ns(170 + 1120 + 10)));
    CHECK(report.cluster->homes[1].latency_ms.mean == doctest::Approx(ns(170 + 1220 + 10)));
    CHECK(waits_of(report, 0) == waits{1020, 100});
    CHECK(waits_of(report, 1) == waits{1020, 200});
}

TEST_CASE("what a device does for others while its home has no request is no time of the home's") {
    bench fixture;
    // Expert 1 lies on b. Both want it: b is done after 280, a's call comes to it after 680.
    fixture.write(toy::routing({{{1}}}, 2, {0, 1}, false), 2, 2, "0.000001,1,1\n");
    const run_report report = fixture.run_it();
    const auto busy = [&](size_t home) {
        time_causes sum;
        for (const time_causes &phase : report.cluster->homes[home].causes) sum += phase;
        return sum.sum() - sum[cause::idle];
    };
    CHECK(report.cluster->devices[1].served == 1);
    CHECK(busy(0) == 170 + 1120 + 10);
    CHECK(busy(1) == 280);
}

TEST_CASE("two servers at once, or one after another") {
    bench fixture;
    const trace_data trace = toy::routing({{{1, 2}}}, 3, {0, 1}, false);
    fixture.write(trace, 3, 1, "0.000001,1,1\n");
    run_report report = fixture.run_it();
    CHECK(report.cluster->latency_ms.mean == doctest::Approx(ns(170 + 1120 + 10)));
    CHECK(waits_of(report, 0) == waits{1020, 100});
    fixture.cluster = "serial_calls = true\n";
    fixture.write(trace, 3, 1, "0.000001,1,1\n");
    report = fixture.run_it();
    CHECK(report.cluster->latency_ms.mean == doctest::Approx(ns(170 + 2 * 1120 + 10)));
    CHECK(waits_of(report, 0) == waits{2040, 200});
}

TEST_CASE("two experts of one server share the way there; outputs come as a sum, or each") {
    bench fixture;
    fixture.room = 2;
    // Experts 0 and 1 on a, 2 and 3 on b.
    const trace_data trace = toy::routing({{{2, 3}}}, 4, {0, 1}, false);
    fixture.write(trace, 2, 1, "0.000001,1,1\n");
    // 510 there, 100 and 100, 510 back.
    run_report report = fixture.run_it();
    CHECK(report.cluster->latency_ms.mean == doctest::Approx(ns(170 + 1220 + 10)));
    CHECK(report.bytes.network == 20);
    // Each: the first output leaves 100 earlier, the second one as before.
    fixture.cluster = "returns_each = true\n";
    fixture.write(trace, 2, 1, "0.000001,1,1\n");
    report = fixture.run_it();
    CHECK(report.cluster->latency_ms.mean == doctest::Approx(ns(170 + 1220 + 10)));
    CHECK(report.bytes.network == 30);
    // The first output is on its way while the second expert is computed.
    CHECK(waits_of(report, 0) == waits{1020, 200});
}

TEST_CASE("a prompt crosses once for all of its tokens") {
    bench fixture;
    // Both tokens need the expert of b: 20 bytes there and back, one expert for two tokens.
    fixture.write(toy::routing({{{1}}, {{1}}}, 2, {0, 2}, false), 2, 1, "0.000001,2,1\n");
    const run_report report = fixture.run_it();
    CHECK(report.cluster->latency_ms.mean ==
          doctest::Approx(ns(170 + 520 + 100 + 520 + 10)).epsilon(0.01));
    CHECK(report.bytes.network == 40);
    CHECK(report.cluster->calls == 1);
}

TEST_CASE("messages queue on a link") {
    bench fixture;
    // A byte takes a microsecond. Both GPUs of a call b at the same time over the one link from a
    // to b: 10,000 each, one after the other; so do the outputs on the way back, the first of which
    // is ready 100 after its hidden states came.
    toy::write_files(fixture.folder, 1, 3, 1);
    REQUIRE(write_trace(toy::routing({{{2}}}, 3, {0, 1}, false), fixture.folder / "t.safetensors")
                .ok());
    fixture.folder.write("come.csv", "arrival_s,input,output\n0.000001,1,1\n0.000001,1,1\n");
    fixture.folder.write("run.toml", R"([cluster]
duration_s = 1
[[cluster.models]]
name = "toy"
shape = "shape.toml"
[[cluster.servers]]
name = "a"
gpus = "device.toml"
gpu_count = 2
expert_memory_bytes = 100000
workload = "some"
[[cluster.servers]]
name = "b"
gpus = "device.toml"
expert_memory_bytes = 100000
[[cluster.links]]
from = "a"
to = "b"
bits_per_s = 8e6
[[cluster.workloads]]
name = "some"
trace = "t.safetensors"
arrivals = "come.csv"
[placement]
plugin = "uniform"
interval_s = 0
)");
    const run_report report = fixture.run_it();
    REQUIRE(report.cluster->homes.size() == 1);
    const cluster_report::home &home = report.cluster->homes[0];
    CHECK(home.requests == 2);
    CHECK(home.latency_ms.p50 == doctest::Approx(ns(170 + 20'100 + 10)));
    CHECK(home.latency_ms.p99 == doctest::Approx(ns(170 + 30'100 + 10)));
    for (const cluster_report::link &link : report.cluster->links)
        CHECK(link.activation_bytes == 20);
    CHECK(report.cluster->links[0].queue_peak == 1);
}

TEST_CASE("an expert that its server no longer holds is brought for the call") {
    bench fixture;
    // b can load from its own memory, and at 1,000 ns does so: expert 0 takes the one slot that
    // expert 1 had. The call of a comes later.
    toy::write_files(fixture.folder, 1, 2, 1);
    REQUIRE(write_trace(toy::routing({{{1}}, {{0}}}, 2, {0, 1, 2}, false),
                        fixture.folder / "t.safetensors")
                .ok());
    fixture.folder.write("early.csv", "arrival_s,input,output\n0.000001,1,1\n");
    fixture.folder.write("late.csv", "arrival_s,input,output\n0.0001,1,1\n");
    fixture.folder.write("run.toml", R"([cluster]
duration_s = 1
[[cluster.models]]
name = "toy"
shape = "shape.toml"
[[cluster.servers]]
name = "a"
gpus = "device.toml"
expert_memory_bytes = 100000
workload = "late"
[[cluster.servers]]
name = "b"
gpus = "device.toml"
host_experts = true
expert_memory_bytes = 100000
workload = "early"
[[cluster.links]]
from = "*"
to = "*"
bits_per_s = 8e9
latency_s = 500e-9
[[cluster.workloads]]
name = "late"
trace = "t.safetensors"
request_step = 2
arrivals = "late.csv"
[[cluster.workloads]]
name = "early"
trace = "t.safetensors"
request_first = 1
request_step = 2
arrivals = "early.csv"
[placement]
plugin = "uniform"
interval_s = 0
)");
    const run_report report = fixture.run_it();
    REQUIRE(report.cluster->homes.size() == 2);
    CHECK(report.cluster->homes[1].latency_ms.mean == doctest::Approx(ns(170 + 11'100 + 10)));
    CHECK(report.cluster->homes[0].latency_ms.mean ==
          doctest::Approx(ns(170 + 510 + 11'100 + 510 + 10)));
    CHECK(report.experts.loaded == 1);
    CHECK(report.bytes.h2d == 200'000);
}

TEST_CASE("a server that could not load it again is not asked to give up an expert") {
    for (const bool loads : {false, true}) {
        bench fixture;
        fixture.placement += "[cache]\nplugin = \"keeper\"\ngive_up = true\n";
        if (loads) fixture.server = "host_experts = true\n";
        fixture.write(toy::routing({{{0}}, {{0}}, {{1}}}, 2, {0, 3}, false), 2, 1,
                      "0.000001,1,3\n");
        const run_report report = fixture.run_it();
        CHECK(report.cluster->homes[0].tokens == 3);
        // Policies of each home state their facts for themselves.
        REQUIRE(report.facts.size() == report.cluster->devices.size());
        for (const auto &[name, facts] : report.facts) {
            CHECK(name.starts_with("keeper at "));
            REQUIRE(facts.size() == 1);
            CHECK(facts[0].name == "given_up");
        }
        const double given_up = report.facts.begin()->second[0].value;
        if (loads)
            CHECK(given_up != 0);
        else
            CHECK(given_up == 0);
    }
}

namespace {

// Skewed routing of two layers, 16 experts, top-2.
trace_data skewed(uint64_t seed) {
    synth_options options;
    options.tokens = 600;
    options.layers = 2;
    options.experts = 16;
    options.top_k = 2;
    options.requests = 40;
    options.seed = seed;
    options.a = 1.1;
    options.domains = 2;
    auto trace = synthesize(options);
    REQUIRE(trace.ok());
    trace->metadata["model"] = "toy";
    return std::move(*trace);
}

}  // namespace

TEST_CASE("nothing is lost: every expert asked for is computed here or by another") {
    for (const char *policy : {"uniform", "redundance", "smartmoe", "eplb", "prism"})
        for (const char *keys : {"", "serial_calls = true\n", "returns_each = true\n"}) {
            CAPTURE(policy);
            CAPTURE(keys);
            bench fixture;
            fixture.room = 14;
            fixture.cluster = keys;
            fixture.placement =
                "[placement]\nplugin = \"" + std::string(policy) + "\"\ninterval_s = 0\n";
            std::string csv;
            for (int i = 1; i <= 30; ++i) csv += std::to_string(i * 3e-6) + ",4,5\n";
            fixture.write(skewed(3), 3, 3, csv);
            const run_report report = fixture.run_it();
            const cluster_report &cluster = *report.cluster;
            CHECK(report.requests == 90);
            CHECK(report.tokens == 90 * (4 + 4));
            uint64_t served = 0, sent = 0;
            for (const cluster_report::device &device : cluster.devices) served += device.served;
            for (const cluster_report::link &link : cluster.links) sent += link.activation_bytes;
            CHECK(served == report.experts.remote);
            CHECK(report.experts.hits + report.experts.remote == report.experts.requested);
            CHECK(sent == report.bytes.network);
            // Each of the three homes had all of the time.
            uint64_t caused_ns = 0;
            for (const auto &layer : report.causes)
                for (const time_causes &phase : layer) caused_ns += phase.sum();
            CHECK(caused_ns == 3 * std::llround(report.total_ms * 1e6));
            CHECK(json_text(report) == json_text(fixture.run_it()));
        }
}

TEST_CASE("a plan that changes while it serves loses no call") {
    bench fixture;
    fixture.room = 12;
    // Requests of the one kind, then of the other.
    fixture.workload =
        "request_step = 2\nthen = \"other\"\nthen_s = 0.005\n"
        "[[cluster.workloads]]\nname = \"other\"\ntrace = \"trace.safetensors\"\n"
        "arrivals = \"come.csv\"\nrequest_first = 1\nrequest_step = 2\n";
    fixture.placement =
        "[placement]\nplugin = \"prism\"\ninterval_s = 0.001\nwindow_s = 0.0005\n"
        "cost_per_remote = 1\nmigration_delay_max = 1000\n";
    std::string csv;
    for (int i = 1; i <= 200; ++i) csv += std::to_string(i * 5e-5) + ",4,5\n";
    fixture.write(skewed(5), 3, 3, csv);
    const run_report report = fixture.run_it();
    uint64_t adopted = 0;
    for (const cluster_report::migration &migration : report.cluster->migrations)
        adopted += migration.adopted;
    CHECK(adopted >= 2);
    CHECK(report.requests == 600);
    CHECK(report.experts.hits + report.experts.remote == report.experts.requested);
    uint64_t moved = 0;
    for (const cluster_report::link &link : report.cluster->links) moved += link.migration_bytes;
    CHECK(moved > 0);
    CHECK(moved % 100'000 == 0);
    CHECK(report.bytes.h2d == 0);  // the called node still has the expert
    for (const cluster_report::device &device : report.cluster->devices)
        CHECK(device.used_bytes <= device.bytes);
    CHECK(json_text(report) == json_text(fixture.run_it()));
}

TEST_CASE("what a cluster cannot run is refused with the remedy") {
    bench fixture;
    fixture.write(toy::routing({{{0}}, {{1}}}, 2, {0, 2}, false), 2, 1, "0.000001,1,2\n");
    const auto refused = [&](const char *change) {
        const auto parsed = parse_override(change);
        REQUIRE(parsed.ok());
        const auto config = load_run_config(fixture.folder / "run.toml", std::vector{*parsed});
        if (!config) return config.failure().text;
        const auto done = run_either(*config, fixture.shared, {});
        REQUIRE(!done.ok());
        return done.failure().text;
    };
    CHECK(refused("cluster.duration_s=0").find("duration_s = 600") != std::string::npos);
    CHECK(refused("placement.plan=there_is_none.json").find("there_is_none.json") !=
          std::string::npos);
    CHECK(refused("prefetch.plugin=next_gate").find("host_experts = true") != std::string::npos);
    CHECK(refused("placement.plugin=slim_greed").find("slim_greedy") != std::string::npos);
}

}  // namespace cluster_run_test
