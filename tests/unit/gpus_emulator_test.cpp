// gpus_emulator_test.cpp - goal: two GPUs work side by side, each from its own memory and over its
// own link. Hidden states go there and come back in order. The time has one cause at every moment.
// Method: schedules on the toy machine, whose second GPU is half as fast, worked by hand.
#include <doctest/doctest.h>

#include <vector>

#include "core/execute/gpus_emulator.h"
#include "tests/unit/toy_machine.h"

namespace gpus_emulator_test {

using namespace moorage::core;

namespace {

struct seen final : span_sink {
    struct one {
        track where;
        std::string kind;
        uint64_t start, end;
    };
    std::vector<one> all;
    void span(track where, const char *kind, uint32_t, uint32_t, uint64_t start_ns,
              uint64_t end_ns) override {
        all.push_back({where, kind, start_ns, end_ns});
    }
};

// A hidden state of 5 values, 10 bytes, takes 300 ns + 1 ns there and 300 + 2 back.
struct bench {
    hardware_profile first = toy::hardware(), other = toy::hardware();
    model_shape shape = toy::shape(2, 4, 2);
    std::vector<cost_model> costs;
    seen sink;
    std::optional<gpus_emulator> on;
    time_causes spent;

    explicit bench(bool through_host = true) {
        other.device.memory_bytes_per_s = 500e9;  // an expert takes 200 ns
        other.link.h2d_bytes_per_s = 20e9;        // 1,000 + 5,000 ns
        other.peer = {"between", 10e9, 5e9, 300};
        other.peer_through_host = through_host;
        costs = {cost_model(first, shape), cost_model(other, shape)};
        on.emplace(device_costs{costs[0], std::span(costs).subspan(1)}, 16, &sink);
        on->charge(spent);
    }
    completion wait(uint64_t at_ns) {
        const completion done = on->wait();
        CHECK(*on->clock() == at_ns);
        return done;
    }
    void expert(uint32_t device, uint32_t tag, uint32_t transfer = MOORAGE_NONE) {
        on->expert_on_gpu({tag, 1, 1, transfer, tag, MOORAGE_WHOLE, static_cast<uint8_t>(device)});
    }
    void causes(uint64_t compute, uint64_t link, uint64_t cpu) {
        CHECK(spent[cause::compute] + spent[cause::launch] == compute);
        CHECK(spent[cause::link] == link);
        CHECK(spent[cause::cpu] == cpu);
        CHECK(spent.sum() == *on->clock());
    }
};

}  // namespace

TEST_CASE("both compute at one time, hidden states before and behind") {
    bench of;
    pass tokens;
    tokens.tokens.resize(1);
    of.on->attention(0, tokens);
    CHECK(of.wait(170).kind == event_kind::gate);
    // The first: 170 to 270 and 370. The other: states until 471, expert until 671, back until 973.
    of.on->hidden_states(1, 1, /*back=*/false);
    of.expert(0, 1);
    of.expert(0, 2);
    of.expert(1, 3);
    of.on->hidden_states(1, 1, /*back=*/true);
    CHECK(of.wait(270).tag == 1);
    CHECK(of.wait(370).tag == 2);
    const completion there = of.wait(471);
    CHECK(there.kind == event_kind::hidden_states);
    CHECK(there.duration_ns == 301);
    CHECK(of.wait(671).tag == 3);
    CHECK(of.wait(973).duration_ns == 302);
    // Computing until 370 and from 471 to 671; hidden states are a link's.
    of.causes(370 + 200, 101 + 302, 0);
    CHECK(of.on->busy_of(0).gpu == 370);
    CHECK(of.on->busy_of(1).gpu == 200);
    CHECK(of.on->busy().gpu == 570);
    REQUIRE(of.sink.all.size() == 6);
    CHECK(of.sink.all[5].kind == "hidden states");
    CHECK(of.sink.all[5].where == span_sink::of_device(span_sink::gpu, 1));
    CHECK(of.sink.all[5].start == 671);
}

TEST_CASE("each loads over its own link, and waits for its own transfer") {
    bench of;
    of.on->expect(1);
    of.on->expect(2);
    of.on->send({link_h2d, 1, MOORAGE_WHOLE, 0, 100'000});
    of.on->send({h2d_of(1), 2, MOORAGE_WHOLE, 0, 100'000});
    of.expert(0, 1, 1);
    of.expert(1, 2, 2);
    // 30 of the memory's 1,000 bytes a ns, so neither is slowed. The other's 6,000 ns, the first
    // 11,000.
    const completion second = of.wait(6'000);
    CHECK(second.kind == event_kind::piece);
    CHECK(second.tag == h2d_of(1));
    of.on->arrived(2);
    CHECK(of.wait(6'200).tag == 2);
    CHECK(of.wait(11'000).tag == link_h2d);
    of.on->arrived(1);
    CHECK(of.wait(11'100).tag == 1);
    of.causes(200 + 100, 6'000 + 4'800, 0);
    CHECK(of.on->busy_of(1).stall == 6'000);
    CHECK(of.on->busy_of(0).stall == 11'000);
    CHECK(of.on->busy_of(1).h2d == 6'000);
    CHECK(of.on->busy().h2d == 17'000);
    CHECK(of.on->stall_ns() == 17'000);
}

TEST_CASE("copies of both and the CPU share host memory; a link between the GPUs does not") {
    for (const bool through_host : {true, false}) {
        bench of(through_host);
        // Slower memory: 20 bytes a ns for two copies of 10 and 20 alone, two thirds of each.
        of.first.node.memory_bytes_per_s = 20e9;
        of.costs = {cost_model(of.first, of.shape), cost_model(of.other, of.shape)};
        of.on.emplace(device_costs{of.costs[0], std::span(of.costs).subspan(1)}, 16, nullptr);
        of.on->charge(of.spent);
        of.on->send({link_h2d, 1, MOORAGE_WHOLE, 0, 100'000});
        of.on->send({h2d_of(1), 2, MOORAGE_WHOLE, 0, 100'000});
        // From 1,000 on at 6.67 and 13.33: the other has its 100,000 at 8,500; then 50,000 are left
        // of the first one's, at 10 alone: 13,500. States of no size come and go meanwhile.
        CHECK(of.wait(8'500).tag == h2d_of(1));
        CHECK(of.wait(13'500).tag == link_h2d);
        // Alone through a memory that the copy does not fill: 10 bytes at 10, as between the GPUs.
        of.on->hidden_states(1, 1, false);
        CHECK(of.wait(13'801).kind == event_kind::hidden_states);
        CHECK(of.spent.sum() == 13'801);
    }
}

TEST_CASE("while no GPU has anything the time is the CPU's") {
    bench of;
    of.on->expert_on_cpu({1, 1, 1, MOORAGE_NONE, 7});
    of.on->hidden_states(1, 1, false);
    of.expert(1, 2);
    CHECK(of.wait(301).kind == event_kind::hidden_states);
    CHECK(of.wait(501).tag == 2);
    CHECK(of.wait(2'500).tag == 7);  // 500 + 2,000
    of.causes(200, 301, 1'999);
}

TEST_CASE("each is slowed by copies on its own link alone") {
    bench of;
    of.first.device.busy_link_slowdown = of.other.device.busy_link_slowdown = 0.25;
    of.costs = {cost_model(of.first, of.shape), cost_model(of.other, of.shape)};
    of.on.emplace(device_costs{of.costs[0], std::span(of.costs).subspan(1)}, 16, &of.sink);
    // Over the second link, 6,000 ns. Its experts take 250, the first's 100 as before.
    of.on->send({.link = h2d_of(1), .page = 5, .bytes = 100'000});
    of.expert(0, 1);
    of.expert(1, 2);
    of.expert(0, 3);
    CHECK(of.wait(100).tag == 1);
    CHECK(of.wait(200).tag == 3);
    const completion slow = of.wait(250);
    CHECK(slow.tag == 2);
    CHECK(slow.duration_ns == 250);
    CHECK(of.on->busy_of(1).gpu == 250);
    of.expert(1, 4);
    of.wait(500);
    CHECK(of.wait(6000).kind == event_kind::piece);
    of.expert(1, 6);  // the link rests
    of.wait(6200);
}

}  // namespace gpus_emulator_test
