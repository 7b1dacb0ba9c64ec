// node_fixture.h - several nodes of one process that serve each other over a wire within it.
#pragma once

#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/base/log.h"
#include "core/base/random.h"
#include "tools/node/fingerprint.h"
#include "tools/node/home.h"
#include "tools/node/peer_node.h"
#include "tests/golden/golden_fixture.h"
#include "tests/unit/loop_wire.h"
#include "tests/unit/tampering_wire.h"

namespace moorage::test {

inline node_plan plan_of(const model &model, uint32_t servers,
                         std::span<const std::vector<uint32_t>> holders) {
    node_plan plan;
    for (uint32_t i = 0; i < servers; ++i)
        plan.servers.push_back({format("server{}", i), {format("loop:{}", i)}});
    const model_config &config = model.config();
    plan.cluster = cluster_fingerprint(plan.servers);
    plan.model = fingerprint_of(model, run_config().arithmetic_mode);
    plan.sizes = {static_cast<uint32_t>(config.moe_layers().size()), config.experts, config.hidden,
                  64};
    plan.top_k = config.top_k;
    plan.model_name = "golden";
    set_holders(plan, holders);
    return plan;
}

// One to three copies of each page, each on a random server other than `without`.
inline std::vector<std::vector<uint32_t>> random_holders(uint32_t pages, uint32_t servers,
                                                         random_stream &draw,
                                                         uint32_t without = no_server) {
    std::vector<std::vector<uint32_t>> holders(pages);
    for (auto &page_holders : holders)
        for (uint64_t copies = 1 + draw.below(3); copies != 0;) {
            const auto server = static_cast<uint32_t>(draw.below(servers));
            if (server == without) continue;
            page_holders.push_back(server);
            --copies;
        }
    return holders;
}

// A node that serves on a thread of its own until it is stopped or dies.
class running_node {
public:
    running_node(loop_hub &hub, const node_plan &plan, const model &model, uint32_t server,
                 tampering change = {}, uint64_t incarnation = 1000,
                 const std::string &identity = "", plan_board *board = nullptr,
                 mover_options moving = {}, uint64_t expert_bytes = 0,
                 arithmetic numbers = arithmetic::exact)
        : loop_(new loop_wire(hub, identity)),
          wire_(std::unique_ptr<wire>(loop_), std::move(change)),
          pool_(1, numbers),
          node_({&wire_,
                 &plan,
                 {server, incarnation + server, "test"},
                 &model,
                 &pool_,
                 board,
                 expert_bytes,
                 moving}) {
        REQUIRE(node_.listen(plan.servers[server].addresses.front()).ok());
        thread_ = std::thread([this] { node_.serve([this] { return stopped_.load(); }); });
    }
    running_node(loop_hub &hub, const node_plan &plan, const model &model, uint32_t server,
                 arithmetic numbers)
        : running_node(hub, plan, model, server, {}, 1000, "", nullptr, {}, 0, numbers) {}
    ~running_node() { stop(); }
    // Drains, as after SIGTERM.
    void stop() {
        stopped_ = true;
        wire_.wake();
        if (thread_.joinable()) thread_.join();
        loop_->die();
    }
    // Ends as after SIGKILL: connected peers find the connection lost. It may still be computing.
    void kill() { loop_->die(); }
    const peer_node &node() const { return node_; }  // once it has stopped
    size_t lent() { return loop_->lent(); }

private:
    loop_wire *loop_;  // below wire_
    tampering_wire wire_;
    thread_pool pool_;
    peer_node node_;
    std::atomic<bool> stopped_ = false;
    std::thread thread_;
};

// The written tokens and the likelihood of a run.
struct run_result {
    std::vector<std::pair<uint64_t, int32_t>> tokens;
    double nll = 0;
    caller_figures calls;
    std::map<std::string, std::vector<fact>> facts;  // that policies state, where text is scored
    std::string error;                               // in place of the rest
    bool operator==(const run_result &right) const {
        return tokens == right.tokens && nll == right.nll;
    }
};

class node_bench {
public:
    explicit node_bench(const std::string &name) {
        set_log_level(log_level::error);
        const std::vector<std::filesystem::path> plugins{std::filesystem::path(MOORAGE_BINARY_DIR) /
                                                         "plugins"};
        REQUIRE(shared.scan(plugins).ok());
        config.file = "nodes_test";
        config.executor = "cpu";
        config.profile = "host";
        config.model = golden_path(name);
        config.threads = 1;
        config.stop.at_model_ends = false;
        auto opened = shared.open_model(config.model);
        REQUIRE(opened.ok());
        loaded_model = (*opened)->loaded_model.get();
    }
    uint32_t pages() const {
        return static_cast<uint32_t>(loaded_model->config().moe_layers().size()) *
               loaded_model->config().experts;
    }
    // Runs one process without nodes. Written text is computed without a pipeline.
    run_result alone(const std::vector<model_request> &requests) {
        run_result result;
        if (requests.front().new_tokens == 0) {
            run_options options;
            options.requests = &requests;
            options.own_routing = false;
            auto done = run(config, shared, options);
            if (!done) FAIL(done.failure().text);
            result.nll = done->text.nll;
            result.facts = done->facts;
            return result;
        }
        model_source_options options;
        options.batch = config.batch;
        options.prefill = config.prefill;
        options.on_token = [&](uint64_t request, int32_t id) {
            result.tokens.emplace_back(request, id);
        };
        model_source source(*loaded_model, requests, options);
        thread_pool pool(1, config.arithmetic_mode);
        const auto compute = compute_of(*loaded_model, pool,
                                        {.tokens_max = source.tokens_max(),
                                         .streams = source.streams(),
                                         .context_max = source.context_max(),
                                         .outputs_max = source.outputs_max()});
        source.connect(*compute);
        forward run_pass(*compute, *loaded_model);
        for (pass next; source.next(next);) run_pass(next);
        return result;
    }
    run_result at_home(loop_hub &hub, const node_plan &plan, uint32_t server,
                       const std::vector<model_request> &requests, bool own_disk = true,
                       std::function<void(const caller &)> after_pass = {},
                       const std::string &identity = "") {
        run_result result;
        loop_wire wire(hub, identity);
        thread_pool pool(1, config.arithmetic_mode);
        peer_node home_node(
            {&wire, &plan, {server, 77 + server, "test"}, loaded_model, &pool, board, 0, moving});
        if (server != no_server) {
            const auto bound = home_node.listen(plan.servers[server].addresses.front());
            (void)bound;  // another home of this server may serve already
        }
        home_options options;
        options.own_disk = own_disk;
        options.slots = slots;
        options.connect_ns = connect_ns;
        options.hedge = hedge;
        options.prices = prices;
        options.requests = &requests;
        options.after_pass = std::move(after_pass);
        options.on_token = [&](uint64_t request, int32_t id) {
            result.tokens.emplace_back(request, id);
        };
        auto done = run_home(config, shared, home_node, pool, options);
        while (keeps_serving && keeps_serving()) home_node.turn(1'000'000);
        if (!done) {
            result.error = done.failure().text;
            return result;
        }
        result.nll = done->report.text.nll;
        result.calls = done->calls;
        result.facts = done->report.facts;
        return result;
    }

    run_resources shared;
    run_config config;
    const model *loaded_model = nullptr;
    uint64_t connect_ns = 2'000'000'000;
    plan_board *board = nullptr;  // of the home
    mover_options moving;         // of the home
    uint32_t slots = 0;           // of the home, if they are more than the plan gives it
    bool hedge = false;
    std::vector<planned_price> prices;    // by which holders are chosen, if there are any
    std::function<bool()> keeps_serving;  // serves on after its own text
};

}  // namespace moorage::test
