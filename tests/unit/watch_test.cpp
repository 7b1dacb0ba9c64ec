// watch_test.cpp - goal: a node that dies or is stopped is found dead, and one that comes back is
// alive again. One that was never there is unknown. Method: watchers over a wire within this
// process, whose answers are swallowed for a while.
#include "tools/node/watch.h"

#include <doctest/doctest.h>

#include <atomic>
#include <chrono>

#include "core/base/log.h"
#include "tools/node/fingerprint.h"
#include "tests/unit/loop_wire.h"
#include "tests/unit/tampering_wire.h"

namespace watch_test {

using namespace moorage::core;
using namespace moorage::test;

namespace {

constexpr uint64_t beat_ns = 5'000'000;

node_plan plan_of(uint32_t servers) {
    node_plan plan;
    for (uint32_t i = 0; i < servers; ++i)
        plan.servers.push_back({format("server{}", i), {format("beats:{}", i)}});
    plan.cluster = cluster_fingerprint(plan.servers);
    plan.sizes = {1, 2, 4, 1};
    set_holders(plan, std::vector<std::vector<uint32_t>>{{0}, {0}});
    return plan;
}

struct watcher {
    std::atomic<bool> mute = false;  // says nothing, as a process that is stopped
    std::atomic<int> deaths = 0;
    loop_wire *inner_wire;
    std::unique_ptr<watch> peer_watch;

    watcher(loop_hub &hub, const node_plan &plan, uint32_t server, uint64_t incarnation = 5) {
        auto loop = std::make_unique<loop_wire>(hub);
        inner_wire = loop.get();
        peer_watch = std::make_unique<watch>(
            std::make_unique<tampering_wire>(std::move(loop),
                                             [this](sent_frame &) { return mute ? 0 : 1; }),
            plan, node_identity{server, incarnation + server, "test"}, [this] { ++deaths; },
            beat_ns);
        REQUIRE(peer_watch->listen(plan.servers[server].addresses.front()).ok());
        peer_watch->begin();
    }
    // Waits for what has to come; a test that waits for ever is ended from outside.
    void wait_until(uint32_t server, pulse wanted) const {
        while (peer_watch->pulse_of(server) != wanted)
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
};

}  // namespace

TEST_CASE("alive, stopped, back, dead, and back as somebody else") {
    set_log_level(log_level::error);
    loop_hub hub;
    const node_plan plan = plan_of(3);
    watcher observer(hub, plan, 0);
    auto two = std::make_unique<watcher>(hub, plan, 1);
    observer.wait_until(1, pulse::alive);
    two->wait_until(0, pulse::alive);
    CHECK(observer.peer_watch->pulse_of(2) == pulse::unknown);
    CHECK(observer.deaths == 0);

    two->mute = true;
    observer.wait_until(1, pulse::dead);
    CHECK(observer.deaths == 1);
    two->mute = false;
    observer.wait_until(1, pulse::alive);
    CHECK(observer.peer_watch->round_trip_ns(1) != 0);

    two->inner_wire->die();
    observer.wait_until(1, pulse::dead);
    CHECK(observer.deaths == 2);
    two.reset();
    watcher again(hub, plan, 1, /*incarnation=*/50);
    observer.wait_until(1, pulse::alive);
    CHECK(observer.peer_watch->pulse_of(2) == pulse::unknown);
}

TEST_CASE("heartbeats of another cluster are refused") {
    set_log_level(log_level::off);
    loop_hub hub;
    const node_plan plan = plan_of(2);
    node_plan other_plan = plan;
    ++other_plan.cluster;
    watcher observer(hub, plan, 0), stranger(hub, other_plan, 1);
    // Long enough for both to have refused the other many times.
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    CHECK(observer.peer_watch->pulse_of(1) == pulse::unknown);
    CHECK(stranger.peer_watch->pulse_of(0) == pulse::unknown);
}

}  // namespace watch_test
