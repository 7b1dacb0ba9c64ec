// nodes_over_wires_test.cpp - goal: text has the bits of one process over every bundled wire.
// Method: a home and two nodes in threads of one process, each with an instance of the wire.
#include <doctest/doctest.h>

#include "tools/node/wire_plugin.h"
#include "tests/golden/node_fixture.h"
#include "tests/skip.h"

namespace nodes_over_wires_test {

namespace {

using namespace moorage::test;

const std::vector<model_request> written = {{{5, 3, 9, 2, 7, 1, 1, 4, 30, 6}, 9, 0},
                                            {{8, 8, 4}, 12, 0}};

struct wired_node {
    std::unique_ptr<wire> local_wire;
    thread_pool pool{1};
    std::unique_ptr<peer_node> node;
    std::atomic<bool> stopped = false;
    std::thread thread;

    std::string begin(const node_bench &bench, const node_plan &plan, uint32_t server) {
        auto opened = open_wire(bench.config, bench.shared.policies(), plan, wire_calls::beside);
        if (!opened) FAIL(opened.failure().text);
        local_wire = std::move(*opened);
        node = std::make_unique<peer_node>(node_parts{
            local_wire.get(), &plan, {server, 100 + server, "test"}, bench.loaded_model, &pool});
        const auto bound = node->listen("127.0.0.1:0");
        if (!bound) FAIL(bound.failure().text);
        return *bound;
    }
    void serve() {
        thread = std::thread([this] { node->serve([this] { return stopped.load(); }); });
    }
    ~wired_node() {
        stopped = true;
        if (local_wire) local_wire->wake();
        if (thread.joinable()) thread.join();
    }
};

}  // namespace

TEST_CASE("the bits of one process, over each wire") {
    random_stream draw(43, 0);
    node_bench bench("qwen2_moe");
    bench.config.prefill = 4;
    bench.config.batch = 2;
    const run_result texts = bench.alone(written);
    for (const char *plugin : {"tcp", "ucx"}) {
        CAPTURE(plugin);
        bench.config.wire.plugin = plugin;
        const auto file = std::filesystem::path(MOORAGE_BINARY_DIR) / "plugins/wire" /
                          (std::string(plugin) + ".so");
        if (!std::filesystem::exists(file)) {
            skip(format("the {} wire is not built", plugin));
            continue;
        }
        node_plan plan = plan_of(*bench.loaded_model, 3, random_holders(bench.pages(), 3, draw));
        wired_node nodes[2];
        for (uint32_t server : {1u, 2u})
            plan.servers[server].addresses = {nodes[server - 1].begin(bench, plan, server)};
        for (wired_node &node : nodes) node.serve();
        auto opened = open_wire(bench.config, bench.shared.policies(), plan, wire_calls::beside);
        REQUIRE(opened.ok());
        thread_pool pool(1);
        plan.servers[0].addresses.clear();
        peer_node home_node({opened->get(), &plan, {0, 77, "test"}, bench.loaded_model, &pool});
        run_result distributed;
        home_options options;
        options.requests = &written;
        options.connect_ns = 60'000'000'000;
        options.on_token = [&](uint64_t request, int32_t id) {
            distributed.tokens.emplace_back(request, id);
        };
        const auto done = run_home(bench.config, bench.shared, home_node, pool, options);
        if (!done) FAIL(done.failure().text);
        CHECK(distributed.tokens == texts.tokens);
        CHECK(done->calls.replies != 0);
        CHECK(done->calls.from_own_disk == 0);
    }
}

}  // namespace nodes_over_wires_test
