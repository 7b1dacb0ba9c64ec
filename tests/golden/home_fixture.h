// home_fixture.h - a home of one process that takes requests over a wire within it, and a client.
#pragma once

#include <atomic>
#include <deque>
#include <string>
#include <thread>
#include <vector>

#include "tools/node/load_run.h"
#include "tests/golden/node_fixture.h"

namespace moorage::test {

// Serves on a thread of its own until it is stopped or dies.
class running_home {
public:
    // The home owns `bench` alone, because a bench serves one thread.
    running_home(node_bench &bench, loop_hub &hub, const node_plan &plan, uint32_t server,
                 bool own_disk = true, tampering change = {}, uint32_t context_max = 64)
        : bench_(bench),
          loop_(new loop_wire(hub, "")),
          wire_(std::unique_ptr<wire>(loop_), std::move(change)),
          pool_(1),
          node_({&wire_, &plan, {server, 500 + server, "test"}, bench.loaded_model, &pool_}),
          desk_(node_.connections(), {bench.loaded_model->config().vocabulary, context_max}) {
        REQUIRE(node_.listen(plan.servers[server].addresses.front()).ok());
        node_.set_desk(&desk_);
        home_options options;
        options.own_disk = own_disk;
        options.connect_ns = bench.connect_ns;
        options.desk = &desk_;
        options.context_max = context_max;
        options.stop = [this] { return stopped_.load(); };
        options.after_pass = [this](const caller &at_work) {
            const std::lock_guard lock(guard_);
            calls_ = at_work.figures();
            asked_ = desk_.figures();
            for (uint32_t i = 0; i < called_.size(); ++i) called_[i] = at_work.called(i);
        };
        called_.resize(plan.servers.size());
        thread_ = std::thread([this, options] {
            const status done = serve_home(bench_.config, bench_.shared, node_, pool_, options);
            if (!done) error_ = done.failure().text;
            node_.serve([] { return true; });
        });
    }
    ~running_home() { stop(); }
    // Drains, as after SIGTERM.
    void stop() {
        stopped_ = true;
        wire_.wake();
        if (thread_.joinable()) thread_.join();
        loop_->die();
    }
    // Ends as after SIGKILL, as seen by connected peers.
    void kill() { loop_->die(); }
    std::string error() const { return error_; }  // once it has stopped
    caller_figures calls() const { return locked(calls_); }
    desk_figures asked() const { return locked(asked_); }
    std::vector<call_totals> called() const { return locked(called_); }

private:
    template <class Value>
    Value locked(const Value &value) const {
        const std::lock_guard lock(guard_);
        return value;
    }
    node_bench &bench_;
    loop_wire *loop_;  // below wire_
    tampering_wire wire_;
    thread_pool pool_;
    peer_node node_;
    request_desk desk_;
    mutable std::mutex guard_;
    caller_figures calls_;
    desk_figures asked_;
    std::vector<call_totals> called_;
    std::atomic<bool> stopped_ = false;
    std::string error_;
    std::thread thread_;
};

inline std::vector<load_outcome> load_over(loop_hub &hub, const node_plan &plan,
                                           const std::vector<load_request> &requests,
                                           const load_options &options = {}) {
    loop_wire wire(hub, "");
    return run_load(wire, plan, 4711, requests, options);
}

}  // namespace moorage::test
