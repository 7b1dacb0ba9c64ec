// emulated_nodes_test.cpp - goal: for the same requests in the same order, a cluster of real nodes
// makes the same calls as its emulated run, with the same bytes of hidden states on each link.
// Method: golden models with recorded routing, and placements of several policies and seeds. Both
// read one file. The emulator runs in virtual time, nodes run in threads at the file's prices.
#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>

#include "core/base/json.h"
#include "tools/cluster/cluster_run.h"
#include "tools/cluster/home_arrivals.h"
#include "core/config/shape_writer.h"
#include "tools/node/node_setup.h"
#include "core/source/trace_record.h"
#include "tests/golden/node_fixture.h"
#include "tests/unit/model_files.h"

namespace emulated_nodes_test {

namespace {

using namespace moorage::test;

constexpr uint32_t requests_count = 5, input = 6, output = 5;

struct link_bytes {
    uint64_t outward_bytes = 0, return_bytes = 0;
    bool operator==(const link_bytes &) const = default;
};
struct counts {
    uint64_t calls = 0;
    std::vector<link_bytes> servers;
    bool operator==(const counts &) const = default;
};

doctest::String toString(const counts &counted) {
    std::string text = format("{} calls;", counted.calls);
    for (const link_bytes &server : counted.servers)
        text += format(" {}/{}", server.outward_bytes, server.return_bytes);
    return text.c_str();
}

std::vector<model_request> drawn(random_stream &draw, uint32_t vocabulary) {
    std::vector<model_request> requests(requests_count);
    for (model_request &request : requests) {
        request.ids.resize(input);
        for (int32_t &id : request.ids) id = static_cast<int32_t>(draw.below(vocabulary));
        request.new_tokens = output;
    }
    return requests;
}

class world {
public:
    world(const std::string &name, random_stream &draw)
        : bench(name), requests_(drawn(draw, bench.loaded_model->config().vocabulary)) {
        bench.config.prefill = 0;
        const model_config &golden_config = bench.loaded_model->config();
        trace_recorder recorder(static_cast<uint32_t>(golden_config.moe_layers().size()),
                                golden_config.experts, golden_config.top_k, 0);
        // The written tokens, and then their routing when one process scores them.
        std::vector<model_request> texts = requests_;
        for (model_request &text : texts) {
            for (const auto &[request, id] : bench.alone({text}).tokens) text.ids.push_back(id);
            text.ids.pop_back();
            text.new_tokens = 0;
            text.score_from = 1;
        }
        run_options options;
        options.requests = &texts;
        options.watcher = &recorder;
        options.own_routing = false;
        REQUIRE(run(bench.config, bench.shared, options).ok());
        trace_data data = recorder.finish();
        data.metadata["model"] = "golden";
        data.metadata["hidden_size"] = std::to_string(golden_config.hidden);
        REQUIRE(write_trace(data, folder_.path() / "trace.safetensors").ok());
        std::ofstream(folder_.path() / "golden.toml")
            << to_toml(shape_of(*bench.loaded_model, "golden"), "[M] test", "[M] test");
    }

    run_config config(const std::string &policy, uint32_t servers, uint64_t seed, uint32_t prefill,
                      double share) {
        const uint64_t expert_bytes = shape_of(*bench.loaded_model, "golden").expert_bytes;
        const auto slots = static_cast<uint64_t>(share * bench.pages() / servers) + 1;
        std::string text = format(
            "[run]\nexecutor = \"emulator\"\nbatch = 1\nprefill = {}\nseed = {}\n"
            "[cluster]\nrequests = {}\nreturns_each = true\n"
            "[[cluster.models]]\nname = \"golden\"\nshape = \"golden.toml\"\nvalue_bits = 32\n"
            "[dispatch]\nplugin = \"prism\"\n[placement]\nplugin = \"{}\"\ninterval_s = 0\n"
            "[[cluster.links]]\nfrom = \"*\"\nto = \"*\"\nbits_per_s = 500e6\nlatency_s = 1e-4\n"
            "[[cluster.workloads]]\nname = \"texts\"\ntrace = \"trace.safetensors\"\n"
            "poisson_s = 1000\ninput_tokens = {}\noutput_tokens = {}\n",
            prefill, seed, requests_count + 2, policy, input, output);
        for (uint32_t i = 0; i < servers; ++i)
            text += format(
                "[[cluster.servers]]\nname = \"s{}\"\nflops = 1e9\naddress = \"loop:{}\"\n"
                "expert_memory_bytes = {}\n{}",
                i, i, slots * expert_bytes, i == 0 ? "workload = \"texts\"\n" : "");
        const auto file = folder_.path() / "cluster.toml";
        std::ofstream(file) << text;
        auto read = load_run_config(file.string(), {});
        if (!read) FAIL(read.failure().text);
        return *read;
    }

    counts emulated(const run_config &config, uint32_t servers) {
        const auto done = run_cluster(config, bench.shared, {});
        if (!done) FAIL(done.failure().text);
        counts counted{done->cluster->calls, std::vector<link_bytes>(servers)};
        for (const cluster_report::link &link : done->cluster->links) {
            if (link.source == "s0")
                counted.servers[std::stoul(link.target.substr(1))].outward_bytes +=
                    link.activation_bytes;
            if (link.target == "s0")
                counted.servers[std::stoul(link.source.substr(1))].return_bytes +=
                    link.activation_bytes;
        }
        return counted;
    }

    // The requests in the order in which the emulated home drew them.
    std::vector<model_request> in_order(const run_config &config) {
        auto scene = make_scene(*config.cluster, config.file.parent_path());
        REQUIRE(scene.ok());
        const auto arrivals = arrivals_of_homes(config, bench.shared, *scene, 64);
        if (!arrivals) FAIL(arrivals.failure().text);
        std::vector<model_request> requests;
        for (const home_arrival &arrival : *arrivals)
            requests.push_back(requests_[arrival.times.trace_request]);
        return requests;
    }

    counts real(run_config config, uint32_t servers) {
        const std::vector<model_request> requests = in_order(config);
        config.executor = "cpu";
        config.profile = "host";
        config.model = bench.config.model;
        config.threads = 1;
        config.stop.at_model_ends = false;
        const auto setup = set_up_node(config, "s0", bench.shared);
        if (!setup) FAIL(setup.failure().text);
        loop_hub hub;
        std::deque<running_node> nodes;
        for (uint32_t server = 1; server < servers; ++server)
            nodes.emplace_back(hub, setup->plan, *bench.loaded_model, server);
        loop_wire wire(hub, "");
        thread_pool pool(1);
        peer_node home_node({&wire, &setup->plan, {0, 77, "test"}, bench.loaded_model, &pool});
        counts counted{0, std::vector<link_bytes>(servers)};
        home_options options;
        options.connect_ns = 60'000'000'000;
        options.requests = &requests;
        options.prices = setup->prices;
        const uint64_t row_bytes = uint64_t{bench.loaded_model->config().hidden} * sizeof(float);
        options.after_pass = [&](const caller &at_work) {
            for (uint32_t i = 0; i < servers; ++i)
                counted.servers[i] = {at_work.called(i).rows * row_bytes,
                                      at_work.called(i).pairs * row_bytes};
        };
        const auto done = run_home(config, bench.shared, home_node, pool, options);
        if (!done) FAIL(done.failure().text);
        CHECK(done->calls.from_own_disk == 0);
        CHECK(done->calls.retried == 0);
        counted.calls = done->calls.calls;
        return counted;
    }

    node_bench bench;

private:
    std::vector<model_request> requests_;
    scratch_directory folder_;
};

}  // namespace

TEST_CASE("calls and bytes of each link are those of the emulated cluster") {
    random_stream draw(41, 0);
    uint64_t calls = 0;
    for (const char *name : {"mixtral", "qwen2_moe", "olmoe"}) {
        CAPTURE(name);
        world scenario(name, draw);
        for (const char *policy : {"uniform", "redundance", "eplb", "prism"}) {
            CAPTURE(policy);
            const auto servers = static_cast<uint32_t>(2 + draw.below(3));
            const auto prefill = static_cast<uint32_t>(draw.below(2) ? 4 : 512);
            const double share = 1 + static_cast<double>(draw.below(3)) / 2;
            CAPTURE(servers);
            CAPTURE(prefill);
            CAPTURE(share);
            const run_config config =
                scenario.config(policy, servers, draw.below(1000), prefill, share);
            const counts emulated = scenario.emulated(config, servers);
            CHECK(emulated == scenario.real(config, servers));
            calls += emulated.calls;
        }
    }
    CHECK(calls > 1000);
}

}  // namespace emulated_nodes_test
