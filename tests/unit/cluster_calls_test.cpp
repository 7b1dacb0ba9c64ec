// cluster_calls_test.cpp - goal: calls between homes take the way and the time of the rules, homes
// ask the nearest holders, copies are written one after another. Method: the parts of the emulator
// alone on small_scene(), with times worked by hand in milliseconds.
#include <doctest/doctest.h>

#include <map>
#include <vector>

#include "tools/cluster/cluster_emulator.h"
#include "tests/unit/small_scene.h"

namespace cluster_calls_test {

using namespace moorage::core;
using moorage::test::small_scene;

namespace {

constexpr uint64_t ms = 1'000'000;

// A user at west, who sends 500 bytes a second up and gets 250 down. A hidden state has 10 bytes.
// Between west and east both ways have 1,000 bytes a second and 10 ms. Within west nothing takes
// time.
scene scene_with_user() {
    scene built = small_scene();
    built.cluster.homes = 3;
    built.cluster.home_server.push_back(0);
    built.cluster.home_up_bytes_per_s.push_back(500);
    built.cluster.home_down_bytes_per_s.push_back(250);
    built.cluster.home_call_s.push_back(0);
    return built;
}

// The user's step: two experts on east's device for two tokens, one on west's second for three.
struct user_step {
    explicit user_step(uint32_t flags) {
        user_scene.cluster.flags = flags;
        state.emplace(user_scene, network_options{}, cluster_options{});
        prices.emplace(*state, home_place{MOORAGE_NONE, 2, 0});
        calls.emplace(*state, *prices, 0, 5);
        const std::vector<expert_work> east{{0, 2, 1, MOORAGE_NONE, 7}, {1, 1, 1, MOORAGE_NONE, 8}};
        const std::vector<expert_work> west{{2, 3, 1, MOORAGE_NONE, 9}};
        calls->add({2, 0, 2, 3, east});
        calls->add({1, 0, 3, 3, west});
        calls->send_calls();
    }
    // Runs until the next message has crossed. Returns its result.
    home_calls::call_place next() {
        for (;;) {
            state->now_ns = state->links.due();
            REQUIRE(state->now_ns != MOORAGE_NEVER);
            const auto arrived = state->links.take();
            if (!arrived) continue;
            CHECK(home_calls::home_of(arrived->content.tag) == 5);
            call = home_calls::call_of(arrived->content.tag);
            const home_calls::call_place place = calls->message_crossed(arrived->content.tag);
            if (place == home_calls::call_place::home)
                for (const expert_work &expert : calls->arrived_experts())
                    home_ns[expert.tag] = state->now_ns;
            return place;
        }
    }
    void run_until(home_calls::call_place place) {
        while (next() != place) {
        }
    }

    scene user_scene = scene_with_user();
    std::optional<cluster_state> state;
    std::optional<call_prices> prices;
    std::optional<home_calls> calls;
    uint32_t call = 0;
    std::map<uint32_t, uint64_t> home_ns;  // by tag
};

}  // namespace

TEST_CASE("calls at once: up, there, back as a sum, down") {
    user_step step(0);
    // Three hidden states go up in 60. West's second device is there at once ...
    step.run_until(home_calls::call_place::server);
    CHECK(step.state->now_ns == 60 * ms);
    CHECK(step.call == 1);
    step.calls->computed(1, 0);
    // ... east's after 20 and 10, with a sum for two tokens once both experts are computed.
    step.run_until(home_calls::call_place::server);
    CHECK(step.state->now_ns == 90 * ms);
    CHECK(step.call == 0);
    step.calls->computed(0, 1);
    step.calls->computed(0, 0);
    // West's outputs were down at 60 + 120; east's back at 120, down when the line is free, + 80.
    step.run_until(home_calls::call_place::home);
    step.run_until(home_calls::call_place::home);
    CHECK(step.home_ns ==
          std::map<uint32_t, uint64_t>{{9, 180 * ms}, {7, 260 * ms}, {8, 260 * ms}});
    CHECK(step.calls->figures().calls == 2);
    CHECK(step.calls->figures().ns == (180 + 260) * ms);
    CHECK(step.calls->figures().experts == 3);
    CHECK(step.state->links.due() == MOORAGE_NEVER);
}

TEST_CASE("calls one after another: the nearest first, outputs in turn, all down at the end") {
    user_step step(MOORAGE_CALLS_SERIAL | MOORAGE_RETURNS_EACH);
    step.run_until(home_calls::call_place::server);
    CHECK(step.call == 1);
    step.calls->computed(1, 0);
    step.run_until(home_calls::call_place::server);
    CHECK(step.state->now_ns == 90 * ms);
    CHECK(step.call == 0);
    // The second expert's output crosses until 110, and only then the first one's, until 140.
    step.calls->computed(0, 1);
    step.calls->computed(0, 0);
    for (int i = 0; i < 3; ++i) step.run_until(home_calls::call_place::home);
    CHECK(step.home_ns ==
          std::map<uint32_t, uint64_t>{{9, 260 * ms}, {7, 340 * ms}, {8, 380 * ms}});
}

TEST_CASE("an offer is the way there, what queues, the compute, the way back") {
    const scene scene = small_scene();
    cluster_state state(scene, {}, {});
    call_prices prices(state, {0, 0, 0});
    state.holders.add({0, 1});
    state.holders.add({0, 2});
    const auto offers_for = [&](uint32_t tokens) {
        std::vector<remote_offer> offers;
        prices.offers(0, tokens, offers);
        return offers;
    };
    std::vector<remote_offer> offers = offers_for(2);
    REQUIRE(offers.size() == 2);
    CHECK(offers[0].server == 1);
    CHECK(offers[0].total_ns == 2 * ms);
    CHECK(offers[1].server == 2);
    CHECK(offers[1].total_ns == (30 + 2 + 30) * ms);
    CHECK(offers[1].once_ns == offers[1].total_ns);  // side by side with others
    // Another's 50 bytes are on the line.
    state.links.send(prices.outbound_channel(2), {traffic::activation, 50, 0}, 0);
    CHECK(offers_for(2)[1].total_ns == (50 + 30 + 2 + 30) * ms);
    state.holders.remove({0, 1});
    offers = offers_for(1);
    REQUIRE(offers.size() == 1);
    CHECK(offers[0].total_ns == (50 + 20 + 1 + 20) * ms);
}

TEST_CASE("of equally near holders homes take those that follow them") {
    scene scene = small_scene();
    scene.cluster.servers = scene.cluster.homes = scene.demand.homes = 4;
    scene.cluster.device_server = {0, 1, 2, 3};
    scene.cluster.home_server = {0, 1, 2, 3};
    for (auto *of_device : {&scene.cluster.device_load_bytes_per_s, &scene.cluster.device_call_s,
                            &scene.cluster.device_token_s})
        of_device->assign(4, 0.001);
    scene.cluster.device_bytes.assign(4, 40);
    scene.cluster.link_bytes_per_s.assign(16, 1000);
    scene.cluster.link_s.assign(16, 0.01);
    scene.cluster.home_up_bytes_per_s.assign(4, 1000);
    scene.cluster.home_down_bytes_per_s.assign(4, 1000);
    scene.cluster.home_call_s.assign(4, 0);
    cluster_state state(scene, {}, {.offers_max = 1});
    for (uint32_t device = 0; device < 4; ++device) state.holders.add({3, device});
    for (uint32_t device = 0; device < 4; ++device) {
        call_prices prices(state, {device, device, 0});
        std::vector<remote_offer> offers;
        prices.offers(3, 1, offers);
        REQUIRE(offers.size() == 1);
        CHECK(offers[0].server == (device + 1) % 4);
    }
}

TEST_CASE("copies cross the network, and are written to a device one after another") {
    struct : cluster_watcher {
        void activated(uint32_t, uint32_t, uint32_t) override {}
        void brought(uint32_t step) override { at_ns[step] = emulator->now_ns(); }
        cluster_emulator *emulator = nullptr;
        std::map<uint32_t, uint64_t> at_ns;
    } seen;
    const scene scene = small_scene();
    cluster_emulator emulator(scene, {}, {});
    seen.emulator = &emulator;
    emulator.watch(&seen);
    emulator.begin();
    // Two of 10 bytes from west to east, over the link at 20 and 30, whose device takes 500 each;
    // one within west, whose second device takes 200. A long one keeps the clock going.
    emulator.bring({0, 0, 0, 2, 10});
    emulator.bring({1, 1, 1, 2, 10});
    emulator.bring({2, 2, 0, 1, 10});
    emulator.bring({3, 3, 2, 0, 2000});
    while (emulator.next_ns() != MOORAGE_NEVER) emulator.step();
    CHECK(seen.at_ns == std::map<uint32_t, uint64_t>{{0, 520 * ms}, {1, 1020 * ms}, {2, 200 * ms}});
    CHECK(emulator.now_ns() == 2010 * ms);
    CHECK(emulator.take({0, 2}));
}

}  // namespace cluster_calls_test
