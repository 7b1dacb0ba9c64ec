// emulated_nodes_test.cpp - goal: for the same requests in the same order, a cluster of real nodes
// makes the same calls as its emulated run, with the same bytes of hidden states on each link.
// Method: golden models with recorded routing, and placements of several policies and seeds. Both
// read one file. The emulator runs in virtual time, nodes run in threads at the file's prices.
#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>

#include "core/base/json.h"
#include "core/cluster/cluster_run.h"
#include "core/cluster/home_arrivals.h"
#include "core/config/shape_writer.h"
#include "core/node/node_setup.h"
#include "core/source/trace_record.h"
#include "tests/golden/node_fixture.h"
#include "tests/unit/model_files.h"

namespace emulated_nodes_test {

namespace {

using namespace moorage::test;

constexpr uint32_t requests_count = 5, input = 6, output = 5;

struct way {
    uint64_t there = 0, back = 0;
    bool operator==(const way &) const = default;
};
struct counts {
    uint64_t calls = 0;
    std::vector<way> servers;
    bool operator==(const counts &) const = default;
};

doctest::String toString(const counts &of) {
    std::string text = format("{} calls;", of.calls);
    for (const way &one : of.servers) text += format(" {}/{}", one.there, one.back);
    return text.c_str();
}

std::vector<model_request> drawn(random_stream &draw, uint32_t vocabulary) {
    std::vector<model_request> all(requests_count);
    for (model_request &one : all) {
        one.ids.resize(input);
        for (int32_t &id : one.ids) id = static_cast<int32_t>(draw.below(vocabulary));
        one.new_tokens = output;
    }
    return all;
}

class world {
public:
    world(const std::string &name, random_stream &draw)
        : on(name), requests_(drawn(draw, on.of->config().vocabulary)) {
        on.config.prefill = 0;
        const model_config &of = on.of->config();
        trace_recorder recorder(static_cast<uint32_t>(of.moe_layers().size()), of.experts, of.top_k,
                                0);
        // The written tokens, and then their routing when one process scores them.
        std::vector<model_request> texts = requests_;
        for (model_request &one : texts) {
            for (const auto &[request, id] : on.alone({one}).tokens) one.ids.push_back(id);
            one.ids.pop_back();
            one.new_tokens = 0;
            one.score_from = 1;
        }
        run_options options;
        options.requests = &texts;
        options.watcher = &recorder;
        options.own_routing = false;
        REQUIRE(run(on.config, on.shared, options).ok());
        trace_data data = recorder.finish();
        data.metadata["model"] = "golden";
        data.metadata["hidden_size"] = std::to_string(of.hidden);
        REQUIRE(write_trace(data, at_.path() / "trace.safetensors").ok());
        std::ofstream(at_.path() / "golden.toml")
            << to_toml(shape_of(*on.of, "golden"), "[M] test", "[M] test");
    }

    run_config config(const std::string &policy, uint32_t servers, uint64_t seed, uint32_t prefill,
                      double share) {
        const uint64_t expert_bytes = shape_of(*on.of, "golden").expert_bytes;
        const auto slots = static_cast<uint64_t>(share * on.pages() / servers) + 1;
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
        const auto file = at_.path() / "cluster.toml";
        std::ofstream(file) << text;
        auto read = load_run_config(file.string(), {});
        if (!read) FAIL(read.failure().text);
        return *read;
    }

    counts emulated(const run_config &config, uint32_t servers) {
        const auto done = run_cluster(config, on.shared, {});
        if (!done) FAIL(done.failure().text);
        counts made{done->cluster->calls, std::vector<way>(servers)};
        for (const cluster_report::link &one : done->cluster->links) {
            if (one.from == "s0")
                made.servers[std::stoul(one.to.substr(1))].there += one.activation_bytes;
            if (one.to == "s0")
                made.servers[std::stoul(one.from.substr(1))].back += one.activation_bytes;
        }
        return made;
    }

    // The requests in the order in which the emulated home drew them.
    std::vector<model_request> in_order(const run_config &config) {
        auto scene = make_scene(*config.cluster, config.file.parent_path());
        REQUIRE(scene.ok());
        const auto all = arrivals_of_homes(config, on.shared, *scene, 64);
        if (!all) FAIL(all.failure().text);
        std::vector<model_request> made;
        for (const home_arrival &one : *all) made.push_back(requests_[one.of.trace_request]);
        return made;
    }

    counts real(run_config config, uint32_t servers) {
        const std::vector<model_request> requests = in_order(config);
        config.executor = "cpu";
        config.profile = "host";
        config.model = on.config.model;
        config.threads = 1;
        config.stop.at_model_ends = false;
        const auto setup = set_up_node(config, "s0", on.shared);
        if (!setup) FAIL(setup.failure().text);
        loop_hub hub;
        std::deque<running_node> nodes;
        for (uint32_t server = 1; server < servers; ++server)
            nodes.emplace_back(hub, setup->plan, *on.of, server);
        loop_wire wire(hub, "");
        thread_pool pool(1);
        peer_node own({&wire, &setup->plan, {0, 77, "test"}, on.of, &pool});
        counts made{0, std::vector<way>(servers)};
        home_options options;
        options.connect_ns = 60'000'000'000;
        options.requests = &requests;
        options.prices = setup->prices;
        const uint64_t row_bytes = uint64_t{on.of->config().hidden} * sizeof(float);
        options.after_pass = [&](const caller &at_work) {
            for (uint32_t i = 0; i < servers; ++i)
                made.servers[i] = {at_work.called(i).rows * row_bytes,
                                   at_work.called(i).pairs * row_bytes};
        };
        const auto done = run_home(config, on.shared, own, pool, options);
        if (!done) FAIL(done.failure().text);
        CHECK(done->calls.here == 0);
        CHECK(done->calls.retried == 0);
        made.calls = done->calls.calls;
        return made;
    }

    node_bench on;

private:
    std::vector<model_request> requests_;
    scratch_directory at_;
};

}  // namespace

TEST_CASE("calls and bytes of each link are those of the emulated cluster") {
    random_stream draw(41, 0);
    uint64_t calls = 0;
    for (const char *name : {"mixtral", "qwen2_moe", "olmoe"}) {
        CAPTURE(name);
        world all(name, draw);
        for (const char *policy : {"uniform", "redundance", "eplb", "prism"}) {
            CAPTURE(policy);
            const auto servers = static_cast<uint32_t>(2 + draw.below(3));
            const auto prefill = static_cast<uint32_t>(draw.below(2) ? 4 : 512);
            const double share = 1 + static_cast<double>(draw.below(3)) / 2;
            CAPTURE(servers);
            CAPTURE(prefill);
            CAPTURE(share);
            const run_config config = all.config(policy, servers, draw.below(1000), prefill, share);
            const counts emulated = all.emulated(config, servers);
            CHECK(emulated == all.real(config, servers));
            calls += emulated.calls;
        }
    }
    CHECK(calls > 1000);
}

}  // namespace emulated_nodes_test
