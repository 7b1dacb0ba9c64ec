// nodes_over_wires_test.cpp - goal: text has the bits of one process over every bundled wire.
// Method: a home and two nodes in threads of one process, each with an instance of the wire.
#include <doctest/doctest.h>

#include "core/node/wire_plugin.h"
#include "tests/golden/node_fixture.h"
#include "tests/skip.h"

namespace nodes_over_wires_test {

namespace {

using namespace moorage::test;

const std::vector<model_request> written = {{{5, 3, 9, 2, 7, 1, 1, 4, 30, 6}, 9, 0},
                                            {{8, 8, 4}, 12, 0}};

struct wired_node {
    std::unique_ptr<wire> over;
    thread_pool pool{1};
    std::unique_ptr<peer_node> node;
    std::atomic<bool> over_now = false;
    std::thread thread;

    std::string begin(const node_bench &on, const node_plan &plan, uint32_t server) {
        auto opened = open_wire(on.config, on.shared.policies(), plan, wire_calls::beside);
        if (!opened) FAIL(opened.failure().text);
        over = std::move(*opened);
        node = std::make_unique<peer_node>(
            node_parts{over.get(), &plan, {server, 100 + server, "test"}, on.of, &pool});
        const auto bound = node->listen("127.0.0.1:0");
        if (!bound) FAIL(bound.failure().text);
        return *bound;
    }
    void serve() {
        thread = std::thread([this] { node->serve([this] { return over_now.load(); }); });
    }
    ~wired_node() {
        over_now = true;
        if (over) over->wake();
        if (thread.joinable()) thread.join();
    }
};

}  // namespace

TEST_CASE("the bits of one process, over each wire") {
    random_stream draw(43, 0);
    node_bench on("qwen2_moe");
    on.config.prefill = 4;
    on.config.batch = 2;
    const run_result texts = on.alone(written);
    for (const char *plugin : {"tcp", "ucx"}) {
        CAPTURE(plugin);
        on.config.wire.plugin = plugin;
        const auto file = std::filesystem::path(MOORAGE_BINARY_DIR) / "plugins/wire" /
                          (std::string(plugin) + ".so");
        if (!std::filesystem::exists(file)) {
            skip(format("the {} wire is not built", plugin));
            continue;
        }
        node_plan plan = plan_of(*on.of, 3, random_holders(on.pages(), 3, draw));
        wired_node nodes[2];
        for (uint32_t server : {1u, 2u})
            plan.servers[server].addresses = {nodes[server - 1].begin(on, plan, server)};
        for (wired_node &one : nodes) one.serve();
        auto opened = open_wire(on.config, on.shared.policies(), plan, wire_calls::beside);
        REQUIRE(opened.ok());
        thread_pool pool(1);
        plan.servers[0].addresses.clear();
        peer_node own({opened->get(), &plan, {0, 77, "test"}, on.of, &pool});
        run_result there;
        home_options options;
        options.requests = &written;
        options.connect_ns = 60'000'000'000;
        options.on_token = [&](uint64_t request, int32_t id) {
            there.tokens.emplace_back(request, id);
        };
        const auto done = run_home(on.config, on.shared, own, pool, options);
        if (!done) FAIL(done.failure().text);
        CHECK(there.tokens == texts.tokens);
        CHECK(done->calls.replies != 0);
        CHECK(done->calls.here == 0);
    }
}

}  // namespace nodes_over_wires_test
